"""Reductions of Tensor against NumPy."""
import itertools

import numpy as np
import pytest

from comparison import SHAPES, check, random_array
from minivt import Tensor, Variable, arange
from minivt.errors import ShapeError


def choices(rank: int):
    """(axis, keepdims): all axes, none, each one, the first and the last, counted from either end."""
    axes = [None, (), *range(rank), *([-1, tuple(range(rank))] if rank else []), *([(-1, 0)] if rank > 1 else [])]
    return zip(axes, itertools.cycle((False, True)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
def test_sums_and_extremes(shape, dtype):
    x = random_array(np.random.default_rng(1), shape, dtype)
    t = Tensor(x)
    for axis, keepdims in choices(x.ndim):
        check(t.sum(axis, keepdims), x.sum(axis, keepdims=keepdims), rtol=1e-6, atol=1e-5)
        check(t.any(axis, keepdims), x.any(axis, keepdims=keepdims))
        check(t.all(axis, keepdims), x.all(axis, keepdims=keepdims))
        if x.size:
            check(t.max(axis, keepdims), x.max(axis, keepdims=keepdims))
            check(t.min(axis, keepdims), x.min(axis, keepdims=keepdims))


@pytest.mark.parametrize("shape", [s for s in SHAPES if 0 not in s])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_statistics(shape, dtype):
    x = random_array(np.random.default_rng(2), shape, dtype)
    t, tolerance = Tensor(x), 1e-5 if dtype == "float32" else 1e-13
    for axis, keepdims in choices(x.ndim):
        check(t.mean(axis, keepdims), x.mean(axis, keepdims=keepdims), rtol=tolerance, atol=tolerance)
        check(t.var(axis, keepdims=keepdims), x.var(axis, keepdims=keepdims), rtol=tolerance, atol=tolerance)
        check(t.std(axis, keepdims=keepdims), x.std(axis, keepdims=keepdims), rtol=tolerance, atol=tolerance)
    if x.ndim and x.shape[-1] > 1:
        check(t.var(-1, correction=1), x.var(-1, ddof=1), rtol=tolerance)


def test_nothing_and_too_little():
    with np.errstate(all="ignore"):
        check(Tensor(np.zeros((0, 2), np.float32)).mean(0), np.float32([np.nan, np.nan]))
    check(Tensor([3.0]).var(correction=1), np.float32(np.nan))
    check(Tensor([1, 2]).mean(), np.float32(1.5))


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8"])
def test_first_of_the_largest(dtype):
    x = random_array(np.random.default_rng(3), (5, 6, 7), dtype) // 30 * 30
    t = Tensor(x)
    for axis, keepdims in itertools.product([None, 0, 1, -1], (False, True)):
        check(t.argmax(axis, keepdims), x.argmax(axis, keepdims=keepdims))
        check(t.argmin(axis, keepdims), x.argmin(axis, keepdims=keepdims))


def test_nan_wins():
    x = np.float32([[1, np.nan, 3], [5, 4, np.nan]])
    check(Tensor(x).max(1), np.float32([np.nan, np.nan]))
    check(Tensor(x).min(0), np.float32([1, np.nan, np.nan]))
    check(Tensor(x).argmax(1), x.argmax(1))
    check(Tensor(x).argmin(1), x.argmin(1))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("scale", [1, 100])
def test_softmax(axis, scale):
    x = np.random.default_rng(4).normal(0, scale, (5, 6, 7)).astype(np.float32)
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    exact = powers / powers.sum(axis, keepdims=True)
    check(Tensor(x).softmax(axis), exact.astype(np.float32), rtol=1e-6 * scale, atol=1e-7)
    check(Tensor(x).log_softmax(axis), (np.log(powers / powers.sum(axis, keepdims=True) + 1e-300)).astype(np.float32),
          rtol=1e-5, atol=1e-5)
    total = np.log(powers.sum(axis)) + x.max(axis)
    check(Tensor(x).logsumexp(axis), total.astype(np.float32), rtol=1e-6)
    check(Tensor(x).logsumexp(axis, keepdims=True), np.expand_dims(total, axis).astype(np.float32), rtol=1e-6)


def test_logsumexp_of_infinities():
    x = np.float32([[-np.inf, -np.inf], [np.inf, 0], [-np.inf, 2]])
    check(Tensor(x).logsumexp(1), np.float32([-np.inf, np.inf, 2]))
    check(Tensor(np.float32(3)).logsumexp(), np.float32(3))


def test_masked_softmax():
    x = np.float32([[1, -np.inf, 1], [-np.inf, -np.inf, -np.inf]])
    check(Tensor(x).softmax(), np.float32([[0.5, 0, 0.5], [np.nan] * 3]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32(dtype):
    ones = Tensor(np.ones(4096, np.float32)).cast(dtype)
    assert ones.sum().item() == 4096.0 and ones.mean().item() == 1.0 and ones.mean().dtype.name == dtype
    x = Tensor(np.random.default_rng(5).normal(0, 1, (3, 1000)).astype(np.float32)).cast(dtype)
    exact = np.exp(x.float().numpy()) / np.exp(x.float().numpy()).sum(-1, keepdims=True)
    np.testing.assert_allclose(x.softmax().float().numpy(), exact, rtol=2.0 ** -8)


def test_sum_dtypes():
    assert Tensor(np.int8([1])).sum().dtype.name == "int64"
    assert Tensor(np.uint8([1])).sum().dtype.name == "uint64"
    check(Tensor(np.int8([100, 100])).sum(dtype="int8"), np.int8(-56))


def test_over_symbolic_sizes():
    n = Variable("n", 1, 9).bind(4)
    x = arange(n).cast("float32")
    assert (x.sum().item(), x.mean().item(), x.argmax(0).item(), x.max().item()) == (6.0, 1.5, 3, 3.0)


@pytest.mark.parametrize("wrong, message", [
    (lambda t: t.sum(2), "sum: axis 2 is outside the 2 axes of the tensor; choose -2 to 1"),
    (lambda t: t.max((0, -2)), "max: axis (0, -2) names an axis twice; name each once"),
    (lambda t: t.softmax(1.5), "softmax: axis is 1.5; it must be an integer"),
    (lambda t: t[:, :0].min(1), "min: shape (2, 0) has no elements along axis 1; there is no min of nothing"),
    (lambda t: t.sum().softmax(), "softmax: axis -1 was given, but the tensor has no axes")])
def test_errors(wrong, message):
    with pytest.raises(ShapeError) as caught:
        wrong(Tensor(np.zeros((2, 3), np.float32)))
    assert str(caught.value) == message
