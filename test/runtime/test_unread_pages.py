"""What the statistics cannot fake: memory that a kernel must not read is made unreadable, and the process survives."""
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from minivt.models.quantization import FORMATS

SCRIPT = textwrap.dedent("""
    import ctypes, mmap, sys
    import numpy as np
    import minivt
    from minivt import Tensor
    from minivt.models.quantization import FORMATS, dequantise
    from safetensors.numpy import load_file

    EXPERTS, LEAST_BYTES, COLUMNS = 64, 128 << 10, 1024
    CHOSEN = np.array([3, 60, 17, 8, 9, 31, 44, 5])
    golden = load_file(sys.argv[1])
    rng = np.random.default_rng(0)

    def random_elements(form, count):
        block = FORMATS[form].block_bytes
        if FORMATS[form].block == 1:
            return rng.standard_normal(count // block).astype(FORMATS[form].storage).view(np.uint8)
        usual = golden[form + ".blocks"][np.abs(golden[form + ".values"]).max(1) < 1e4]
        return usual[rng.integers(0, len(usual), count // block)].ravel()

    def check(form):
        row_bytes = FORMATS[form].nbytes(COLUMNS)
        expert_bytes = int(np.lcm(row_bytes, mmap.PAGESIZE))             # whole rows that end at a page
        expert_bytes *= -(-LEAST_BYTES // expert_bytes)
        rows = expert_bytes // row_bytes
        raw = np.frombuffer(mmap.mmap(-1, EXPERTS * expert_bytes), np.uint8)
        raw[:] = random_elements(form, raw.size)
        stored = raw.view(FORMATS[form].storage).reshape(FORMATS[form].storage_shape((EXPERTS, rows, COLUMNS)))
        weights, x = Tensor(stored), Tensor(rng.standard_normal(COLUMNS).astype(np.float32))

        def product():
            ids = Tensor(CHOSEN.astype(np.int32))
            return (dequantise(weights[ids], form) * x).sum(-1).numpy()

        before = product()
        for expert in set(range(EXPERTS)) - set(CHOSEN.tolist()):
            address = raw.ctypes.data + expert * expert_bytes
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(expert_bytes), 0) == 0
        with minivt.stats() as s:
            after = product()
        assert np.array_equal(before, after) and np.isfinite(after).all() and after.all()
        ideal = len(CHOSEN) * expert_bytes
        assert ideal <= s.bytes_read <= 1.1 * ideal, (s.bytes_read, ideal)
        assert s.kernels == 1, s.kernels

    for form in sys.argv[2:]:
        check(form)
        print(form, "survived")
""")


GOLDEN = Path(__file__).parents[2] / "goldens/gguf_formats/formats.safetensors"
PACKED = [name for name, row in FORMATS.items() if row.block > 1]


@pytest.mark.parametrize("forms", [["F32", "F16"], PACKED[:8], PACKED[8:16], PACKED[16:]], ids=" ".join)
def test_unselected_experts_are_not_read(forms):
    done = subprocess.run([sys.executable, "-c", SCRIPT, GOLDEN, *forms], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and done.stdout.count("survived") == len(forms), done.stdout + done.stderr[-2000:]
