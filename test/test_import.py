"""Importing minivt is cheap: little time over NumPy, and no compiler, tokenizer or driver before it is needed."""
import subprocess
import sys

import pytest

SECONDS = 0.1           # measured: 0.001 for the package, 0.03 for all its names
HEAVY = ("llvmlite", "tokenizers", "jinja2", "tqdm", "safetensors", "pycuda", "concurrent.futures.process")

MEASURE = """
import sys, time
import numpy
started = time.perf_counter()
{statement}
print(time.perf_counter() - started, *(name for name in {heavy} if name in sys.modules))
"""


def measured(statement):
    """Seconds, and the heavy modules that were loaded, in a new process."""
    code = MEASURE.format(statement=statement, heavy=HEAVY)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    seconds, *loaded = out.split()
    return float(seconds), loaded


@pytest.mark.parametrize("statement", ["import minivt", "from minivt import *"])
def test_import_costs_little_over_numpy(statement):
    measured(statement)                                        # the first run writes bytecode
    runs = [measured(statement) for _ in range(5)]
    assert min(seconds for seconds, _ in runs) < SECONDS
    assert not any(loaded for _, loaded in runs)


def test_making_a_graph_needs_no_compiler():
    _, loaded = measured("from minivt import Tensor; (Tensor([1.0, 2.0]) * 2).sum()")
    assert loaded == []
