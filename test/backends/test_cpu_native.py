"""The cpu backend's host facts, and its way from LLVM IR to an object file to addresses."""

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minivt.backends.cpu import host, jit
from minivt.backends.cpu.host import host_target
from minivt.errors import BackendError, CompileError

MODULE = """
define i64 @count(ptr %p) {
  %x = load i64, ptr %p
  ret i64 %x
}
define i64 @other(i64 %x) {
  ret i64 %x
}
"""


def root_of_package():
    return str(Path(jit.__file__).parents[3])


def python(script, *arguments, **environment):
    """Run `script` in a fresh interpreter that imports this minivt; its output. Fails the test when it fails."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": root_of_package(), **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- host ---------------------------------------------------------------------------------------------------------

def test_named_levels_are_weaker_than_native(monkeypatch):
    monkeypatch.delenv("MINIVT_CPU", raising=False)
    native = host_target()
    assert native.name == "native" and native.vector_bits in (128, 256, 512) and native.cpu and native.features
    with pytest.raises(BackendError, match="MINIVT_CPU is 'avx1024'; this processor has .*native"):
        monkeypatch.setenv("MINIVT_CPU", "avx1024")
        host_target()


@pytest.mark.parametrize("name, bits, fma", [("sse2", 128, False), ("avx2", 256, True), ("avx512", 512, True)])
def test_level_and_code_for_it(monkeypatch, name, bits, fma):
    monkeypatch.setenv("MINIVT_CPU", name)
    try:
        target = host_target()
    except BackendError:
        pytest.skip(f"this processor has no {name}")
    assert (target.vector_bits, target.has_fma, target.has_bf16_dot) == (bits, fma, False)
    square = "define <16 x float> @square(<16 x float> %x) {\n  %y = fmul <16 x float> %x, %x\n" \
             "  ret <16 x float> %y\n}"
    obj = jit.compile_object(square, target)
    has_evex, has_vex = b"\x62\xf1" in obj, b"\xc5" in obj  # the prefixes of 512- and of 256-bit instructions
    assert has_evex == (bits == 512) and (has_vex or has_evex) == (bits > 128)


def test_cache_sizes_are_shares_of_a_core(tmp_path):
    def index(number, **items):
        (tmp_path / f"index{number}").mkdir()
        for item, text in items.items():
            (tmp_path / f"index{number}" / item).write_text(text + "\n")
    index(0, level="1", type="Data", size="48K", shared_cpu_list="0,16")  # two hardware threads
    index(1, level="1", type="Instruction", size="64K", shared_cpu_list="0,16")
    index(2, level="2", type="Unified", size="2048K", shared_cpu_list="0,16")
    index(3, level="3", type="Unified", size="32M", shared_cpu_list="0-7,16-23")
    assert host.cache_bytes_per_core(tmp_path) == (48 << 10, 2 << 20, 4 << 20)
    assert host.cache_bytes_per_core(tmp_path / "missing") == (32 << 10, 512 << 10, 1 << 20)


# --- jit ----------------------------------------------------------------------------------------------------------

def test_importing_does_not_load_llvm():
    script = "import sys\nfrom minivt.backends.cpu import host, jit, compile_pool, workers\n" \
             "assert 'llvmlite' not in sys.modules\nhost.host_target()\nassert 'llvmlite' in sys.modules"
    python(script)


def test_compile_load_call():
    ir_text = "declare float @expf(float)\ndefine float @twice(float %x) {\n  %e = call float @expf(float %x)\n" \
              "  %y = fadd float %e, %e\n  ret float %y\n}"
    symbols = jit.load_object(jit.compile_object(ir_text, host_target()), ["twice"])
    twice = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(symbols["twice"])
    assert twice(0.0) == 2.0 and abs(twice(1.0) - 5.436563) < 1e-5


def test_object_code_is_reproducible():
    assert jit.compile_object(MODULE, host_target()) == jit.compile_object(MODULE, host_target())


@pytest.mark.parametrize("ir_text, complaint", [
    ("define void @f( {", "expected type"),
    ("define i64 @f() {\n  ret i32 0\n}", "value doesn't match function result type"),
    ("define void @f() {\n  br label %a\na:\n  %x = add i64 %y, 1\n  %y = add i64 %x, 1\n  ret void\n}", "dominate"),
])
def test_rejected_code_is_one_line(ir_text, complaint):
    with pytest.raises(CompileError, match=complaint) as caught:
        jit.compile_object(ir_text, host_target())
    assert "\n" not in str(caught.value)


def test_missing_symbols_are_errors():
    obj = jit.compile_object("declare void @nowhere_to_be_found()\n"
                             "define void @f() {\n  call void @nowhere_to_be_found()\n  ret void\n}", host_target())
    with pytest.raises(CompileError, match="could not link f: "):
        jit.load_object(obj, ["f"])
    with pytest.raises(CompileError, match="absent"):
        jit.load_object(jit.compile_object(MODULE, host_target()), ["absent"])
    with pytest.raises(CompileError):
        jit.load_object(b"not an object", ["f"])


def code_bytes():
    """Bytes of this process's memory that may be executed and come from no file."""
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [[int(bound, 16) for bound in fields[0].split("-")] for fields in maps
              if "x" in fields[1] and len(fields) == 5]
    return sum(end - begin for begin, end in ranges)


def test_dropped_code_is_unloaded():
    obj = jit.compile_object(MODULE, host_target())
    before = code_bytes()
    kept = [jit.load_object(obj, ["count", "other"]) for _ in range(50)]
    assert len({symbols["count"] for symbols in kept}) == 50
    assert code_bytes() - before >= 50 * 4096
    del kept
    gc.collect()
    assert code_bytes() - before <= 2 * 4096
    for _ in range(200):
        jit.load_object(obj, ["count", "other"])
    assert code_bytes() - before <= 2 * 4096
