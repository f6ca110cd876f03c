"""Comparing a Tensor with a NumPy array, and arrays worth trying. Not for tests themselves."""
import numpy as np
import pytest

from minivt.runtime.seam import default_device

SHAPES = [(), (1,), (7,), (0,), (3, 5), (4, 1, 3), (2, 0, 3), (2, 3, 4, 5)]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-8, 3e38, -3e38, np.inf, -np.inf, np.nan, 100.25, -7.75]


def check(tensor, expected, rtol: float = 0.0, atol: float = 0.0):
    """Shape and dtype equal, values equal up to the tolerance, NaN where NaN is expected."""
    expected = np.asarray(expected)
    got = tensor.numpy()
    assert tensor.shape == expected.shape and got.shape == expected.shape
    assert tensor.dtype.name == expected.dtype.name == got.dtype.name
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)


def random_array(rng, shape, dtype: str) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return rng.normal(0, 3, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -100), min(info.max, 100), shape).astype(dtype)


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The distance from the exact float64 value in units of the last place of got's dtype."""
    with np.errstate(over="ignore"):
        return np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(got.dtype)).astype(np.float64)


# Memory is shared with NumPy where the device reads the host's own.
on_host = pytest.mark.skipif(not default_device().startswith(("cpu", "interpret", "reference")),
                             reason="the default device has memory of its own, so arrays are copied there")
