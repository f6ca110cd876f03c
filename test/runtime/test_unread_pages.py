"""What the statistics cannot fake: memory that a kernel must not read is made unreadable, and the process survives."""
import subprocess
import sys
import textwrap

import pytest

SCRIPT = textwrap.dedent("""
    import ctypes, mmap, sys
    import numpy as np
    import minivt
    from minivt import Tensor
    from minivt.models.quantization import dequantise

    EXPERTS, ROWS, COLUMNS = 64, 64, 256
    CHOSEN = np.array([3, 60, 17, 8, 9, 31, 44, 5])
    form = sys.argv[1]
    row_bytes = {"F32": 4 * COLUMNS, "Q4_1": COLUMNS // 32 * 20, "Q8_0": COLUMNS // 32 * 34}[form]
    expert_bytes = -(-ROWS * row_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    rows = expert_bytes // row_bytes if expert_bytes % row_bytes == 0 else None
    if rows is None:  # enough rows that an expert ends at a page
        rows = int(np.lcm(row_bytes, mmap.PAGESIZE)) // row_bytes
        expert_bytes = rows * row_bytes
    memory = mmap.mmap(-1, EXPERTS * expert_bytes)
    raw = np.frombuffer(memory, np.uint8)
    rng = np.random.default_rng(0)
    raw[:] = rng.integers(0, 255, raw.size, np.uint8)
    if form == "F32":
        raw.view(np.float32)[:] = rng.standard_normal(raw.size // 4)
        weights = Tensor(raw.view(np.float32).reshape(EXPERTS, rows, COLUMNS))
        chosen = lambda ids: weights[ids]
    else:
        block = {"Q4_1": 20, "Q8_0": 34}[form]
        scales = raw.reshape(-1, block)[:, :4 if form == "Q4_1" else 2].view(np.float16)
        scales[:] = rng.standard_normal(scales.shape)
        weights = Tensor(raw.reshape(EXPERTS, rows, row_bytes // block, block))
        chosen = lambda ids: dequantise(weights[ids], form).reshape(len(CHOSEN), rows, COLUMNS)
    x = Tensor(rng.standard_normal(COLUMNS).astype(np.float32))

    def product():
        ids = Tensor(CHOSEN.astype(np.int32))
        return (chosen(ids) * x).sum(-1).numpy()

    before = product()
    address = raw.ctypes.data
    for expert in set(range(EXPERTS)) - set(CHOSEN.tolist()):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + expert * expert_bytes),
                                          ctypes.c_size_t(expert_bytes), 0) == 0
    with minivt.stats() as s:
        after = product()
    assert np.array_equal(before, after) and np.isfinite(after).all()
    ideal = len(CHOSEN) * expert_bytes
    assert ideal <= s.bytes_read <= 1.1 * ideal, (s.bytes_read, ideal)
    assert s.kernels == 1, s.kernels
    print("survived")
""")


@pytest.mark.parametrize("form", ["F32", "Q4_1", "Q8_0"])
def test_unselected_experts_are_not_read(form):
    done = subprocess.run([sys.executable, "-c", SCRIPT, form], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "survived" in done.stdout, done.stderr[-2000:]
