"""sort, argsort and topk against NumPy: shapes, dtypes, equal elements, NaN, both directions."""
import numpy as np
import pytest

from minivt import Tensor
from minivt.errors import BoundsError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape, axis", [((1,), 0), ((0,), 0), ((37,), 0), ((3, 9), 0), ((3, 9), -1), ((2, 5, 4), 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64, np.bool_])
def test_agrees_with_numpy(shape, axis, dtype):
    x = RNG.integers(0, 6, shape).astype(dtype)
    np.testing.assert_array_equal(Tensor(x).sort(axis).numpy(), np.sort(x, axis))
    np.testing.assert_array_equal(Tensor(x).argsort(axis).numpy(), np.argsort(x, axis, kind="stable"))
    turned = -x.astype(np.float64)
    np.testing.assert_array_equal(Tensor(x).argsort(axis, descending=True).numpy(),
                                  np.argsort(turned, axis, kind="stable"))


def test_nan_is_largest_and_infinities_are_ends():
    x = np.array([np.inf, np.nan, -np.inf, 0.0, np.nan, -1], np.float32)
    np.testing.assert_array_equal(Tensor(x).sort().numpy(), np.sort(x))
    np.testing.assert_array_equal(Tensor(x).argsort().numpy(), [2, 5, 3, 0, 1, 4])
    np.testing.assert_array_equal(Tensor(x).topk(3)[1].numpy(), [1, 4, 0])


def test_topk_takes_the_first_of_equal_elements():
    x = RNG.integers(0, 50, (3, 300)).astype(np.float32)
    order = np.argsort(-x, 1, kind="stable")[:, :7]
    values, index = Tensor(x).topk(7)
    np.testing.assert_array_equal(index.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, order, 1))
    np.testing.assert_array_equal(Tensor(x).topk(7, largest=False)[0].numpy(), np.sort(x, 1)[:, :7])


def test_what_is_too_long_is_refused():
    with pytest.raises(BoundsError, match="split the axis"):
        Tensor(np.zeros(9000, np.float32)).sort()
    with pytest.raises(BoundsError, match="k is 4"):
        Tensor(np.zeros(3, np.float32)).topk(4)
