"""Importing minivt is cheap: little time over NumPy, and no compiler, tokenizer or driver before it is needed."""
import subprocess
import sys

import pytest

# Processor seconds over NumPy. Measured on one busy core: 0.001 for the package, 0.1 for all its names.
SECONDS = {"import minivt": 0.1, "from minivt import *": 0.3}
HEAVY = ("llvmlite", "tokenizers", "jinja2", "tqdm", "safetensors", "pycuda", "concurrent.futures.process")

MEASURE = """
import sys, time
import numpy
started = time.process_time()
{statement}
print(time.process_time() - started, *(name for name in {heavy} if name in sys.modules))
"""


def measured(statement):
    """Processor seconds, and the heavy modules that were loaded, in a new process."""
    code = MEASURE.format(statement=statement, heavy=HEAVY)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    seconds, *loaded = out.split()
    return float(seconds), loaded


@pytest.mark.parametrize("statement", SECONDS)
def test_import_costs_little_over_numpy(statement):
    measured(statement)                                        # the first run writes bytecode
    runs = [measured(statement) for _ in range(5)]
    assert min(seconds for seconds, _ in runs) < SECONDS[statement]
    assert not any(loaded for _, loaded in runs)
