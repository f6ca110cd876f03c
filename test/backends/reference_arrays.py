"""Arrays for tests of the reference: random ones with extremes among them, buffers that hold them, exact comparison."""
import math

import ml_dtypes
import numpy as np

from minivt import dtypes, ops
from minivt.backends.reference import evaluate
from minivt.graph import node
from minivt.runtime.buffer import Buffer

SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (3, 1, 5)]
INTEGERS = [d for d in dtypes.ALL if d.is_int]
FLOATS = [d for d in dtypes.ALL if d.is_float]
NATIVE_FLOATS = [dtypes.float16, dtypes.float32, dtypes.float64]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-40, 6e4, -1e38, 3e38, 127.5, -128.9,
           300.0]
ENDS = [s * 2.0 ** n for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)]  # one beyond the ends of integers


class Memory:
    """Buffers for arrays of a test."""

    def __init__(self):
        self.arrays = {}

    def __call__(self, array, dtype=None):
        array = np.asarray(array)
        dtype = dtype or dtypes.BY_NAME[array.dtype.name]
        buffer = Buffer(array.shape, dtype, "cpu")
        self.arrays[buffer] = array
        return node(ops.BUFFER, (), buffer, dtype)

    def run(self, *roots, **variables):
        return evaluate(list(roots), variables, self.arrays.__getitem__)


def run(op, *arrays, arg=None, dtype=None, types=None):
    memory = Memory()
    inputs = [memory(a, t) for a, t in zip(arrays, types or [None] * len(arrays))]
    made = node(op, inputs, arg, dtype)
    result, = memory.run(made)
    assert isinstance(result, np.ndarray) and result.shape == made.shape and result.dtype == made.dtype.storage
    return result


def same(got, want):
    """Equal values, where NaN equals NaN and -0.0 differs from 0.0."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        finite = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[finite], np.signbit(want)[finite])


def floats(shape, dtype, seed=0):
    """Random numbers with specials sprinkled in, as a NumPy array of the dtype (bfloat16 through ml_dtypes)."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    values = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(ml_dtypes.bfloat16 if dtype is dtypes.bfloat16 else dtype.numpy)


def integers(shape, dtype, seed=0):
    info = np.iinfo(dtype.numpy)
    rng = np.random.default_rng(seed)
    values = rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    ends = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], dtype.numpy)
    return np.where(rng.random(shape) < 0.4, rng.choice(ends, shape), values).astype(dtype.numpy)


def wrapped(value: int, dtype) -> int:
    value &= (1 << 8 * dtype.itemsize) - 1
    return value - (1 << 8 * dtype.itemsize) if dtype.kind == "i" and value >> (8 * dtype.itemsize - 1) else value


def by_element(function, dtype, *arrays):
    """A Python function of Python numbers at each element."""
    flat = [function(*map(np.ndarray.item, row)) for row in zip(*(np.asarray(a).reshape(-1, 1) for a in arrays))]
    return np.array(flat, dtype.numpy).reshape(arrays[0].shape)
