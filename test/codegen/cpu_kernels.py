"""Compile tile programs for several vector widths of this machine, run them, and compare with the interpreter."""
import ctypes

import numpy as np
import pytest

from minivt.backends import reference_ir
from minivt.backends.cpu import host, jit
from minivt.codegen.target import cpu_target
from minivt.codegen.vectorize import lower_cpu
from minivt.errors import BackendError

# What to compile for, by MINIVT_CPU's names: the code generator's target beside the compiler's.
TARGETS = {
    "bf16": cpu_target(64, 32, 1 << 20, 1, ("fma", "f16c", "avx512f", "fast_bf16_dot")),
    "avx512": cpu_target(64, 32, 1 << 20, 1, ("fma", "f16c", "avx512f")),
    "avx2": cpu_target(32, 16, 1 << 20, 1, ("fma", "f16c")),
    "sse2": cpu_target(16, 16, 1 << 20, 1, ()),
    "neon": cpu_target(16, 32, 1 << 20, 1, ("fma", "neon")),
}


def compiler_target(level: str):
    """What the compiler is told for a level."""
    return host._host_target("native" if level == "bf16" else level)


def host_levels() -> list[str]:
    """The names of TARGETS that this machine runs."""
    found = []
    for name in TARGETS:
        try:
            if compiler_target(name).has_bf16_dot or name != "bf16":
                found.append(name)
        except BackendError:
            continue
    return found


LEVELS = host_levels()
each_level = pytest.mark.parametrize("level", LEVELS)


def run(program, arrays, variables=None, level=LEVELS[0]):
    """Run every task of the program's kernel on the arrays, one a param, in storage form."""
    kernel = lower_cpu(program, TARGETS[level])
    code = jit.load_object(jit.compile_object(kernel.ir_text, compiler_target(level)),
                           [kernel.name, kernel.name + "_tasks"])
    pointers = np.array([a.ctypes.data for a in arrays], np.int64)
    values = np.array([variables[v] for v in kernel.variables], np.int64)
    memory = np.full(kernel.scratch_bytes + 64, 0xFF, np.uint8)  # NaNs and large integers
    scratch = memory.ctypes.data + -memory.ctypes.data % 64
    number, address = ctypes.c_int64, ctypes.c_void_p
    tasks = ctypes.CFUNCTYPE(number, address)(code[kernel.name + "_tasks"])(values.ctypes.data)
    entry = ctypes.CFUNCTYPE(None, address, address, number, number, address)(code[kernel.name])
    entry(pointers.ctypes.data, values.ctypes.data, 0, tasks, scratch)
    return tasks


def check(program, arrays, variables=None, level=LEVELS[0], rtol=0.0, atol=0.0):
    """Compare every written array with the interpreter's, as the values that their bits stand for."""
    expected, got = [[a.copy() for a in arrays] for _ in range(2)]
    reference_ir.run(program, expected, variables or {})
    run(program, got, variables, level)
    for param, want, have in zip(program.params, expected, got):
        want, have = (as_numbers(x, param.dtype) for x in (want, have))
        np.testing.assert_allclose(have, want, rtol=rtol, atol=atol, err_msg=f"{program.name} param {param.slot}")


def as_numbers(array, dtype):
    from minivt.dtypes import bfloat16, bfloat16_to_float
    if dtype is bfloat16:
        return bfloat16_to_float(array)
    return array.astype(np.float32) if dtype.name == "float16" else array
