"""Running sums, products and extremes against NumPy: shapes, dtypes, NaN, long axes in blocks; rows that are added."""
import numpy as np
import pytest

import minivt
from minivt import Tensor, stats
from minivt.errors import DTypeError, ShapeError

RNG = np.random.default_rng(0)
METHODS = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate,
           "cummin": np.minimum.accumulate}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shape, axis", [((1,), 0), ((7,), 0), ((0,), 0), ((3, 5), 0), ((3, 5), -1), ((2, 0, 3), 1),
                                         ((2, 3, 4), 1), ((1500, 3), 0), ((2, 1025), 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_agrees_with_numpy(name, shape, axis, dtype):
    x = RNG.uniform(0.9, 1.1, shape) if dtype is np.float32 else RNG.integers(-5, 6, shape)
    x = x.astype(dtype)
    got, expected = getattr(Tensor(x), name)(axis).numpy(), METHODS[name](x, axis)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=2e-5)


@pytest.mark.parametrize("name", METHODS)
def test_nan_and_infinity_stay(name):
    x = np.array([1, -np.inf, 2, np.nan, 3, np.inf], np.float32)
    np.testing.assert_array_equal(getattr(Tensor(x), name)(0).numpy(), METHODS[name](x))


def test_a_long_axis_is_a_few_kernels():
    x = RNG.integers(-9, 9, 300_000).astype(np.int32)
    with stats() as s:
        got = Tensor(x).cumsum(0).realize()
    np.testing.assert_array_equal(got.numpy(), np.cumsum(x))
    assert s.kernels <= 5


def test_rows_are_added_in_place_of_their_index():
    x, rows, index = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3)), np.array([1, 4, 1, 7])
    expected = x.copy()
    np.add.at(expected, index[:3], rows[:3])
    np.testing.assert_array_equal(Tensor(x).index_add(0, index, rows).numpy(), expected)
    with pytest.raises(ShapeError, match="the source"):
        Tensor(x).index_add(0, index, rows[:3])
    with pytest.raises(DTypeError, match="integer dtype"):
        Tensor(x).index_add(0, index.astype(np.float32), rows)


def test_replays_of_a_captured_scan_follow_their_argument():
    run = minivt.jit(lambda x, total, rows: (x.cumsum(0), total.index_add(0, rows, x)))
    rows = Tensor(np.array([2, 0] * 700))
    for _ in range(3):
        x = RNG.standard_normal(1400).astype(np.float32)
        running, added = run(Tensor(x), Tensor(np.ones(3, np.float32)), rows)
        np.testing.assert_allclose(running.numpy(), np.cumsum(x), atol=1e-3)
        np.testing.assert_allclose(added.numpy(), [1 + x[1::2].sum(), 1, 1 + x[::2].sum()], rtol=1e-4, atol=1e-3)
        again, same = run(Tensor(x), Tensor(np.ones(3, np.float32)), rows)
        assert (again.numpy() == running.numpy()).all() and (same.numpy() == added.numpy()).all()
