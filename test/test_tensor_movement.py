"""Movement of Tensor against NumPy."""
import itertools

import numpy as np
import pytest

from comparison import SHAPES, check
from minivt import Tensor, Variable, arange, cat, stack
from minivt.errors import DTypeError, ShapeError


def numbered(shape) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_and_orders(shape):
    x = numbered(shape)
    t = Tensor(x)
    check(t.reshape(-1) if x.size else t.reshape(0), x.reshape(x.size))
    check(t.flatten(), x.reshape(x.size))
    for order in itertools.permutations(range(x.ndim)):
        check(t.permute(*order), x.transpose(order))
        check(t.permute(order).permute(tuple(np.argsort(order))), x)
    for axis in range(-x.ndim - 1, x.ndim + 1):
        check(t.unsqueeze(axis), np.expand_dims(x, axis))
        check(t.unsqueeze(axis).squeeze(axis), x)
    for count in range(x.ndim + 1):
        for axes in itertools.combinations(range(x.ndim), count):
            check(t.flip(axes), np.flip(x, axes))
    check(t.flip(), np.flip(x))
    widths = np.array([(a, a + 1) for a in range(x.ndim)], int).reshape(-1, 2)
    check(t.pad(widths.tolist()), np.pad(x, widths) if x.ndim else x)
    check(t.pad(widths.tolist(), 9), np.pad(x, widths, constant_values=9) if x.ndim else x)
    check(t.broadcast_to(2, *shape), np.broadcast_to(x, (2, *shape)))
    check(t.tile(2, 3), np.tile(x, (2, 3)))
    for axis in range(x.ndim):
        check(t.repeat(3, axis), np.repeat(x, 3, axis))
        for shift in (0, 1, -2, 9):
            check(t.roll(shift, axis), np.roll(x, shift, axis))


def test_transposes():
    x = numbered((2, 3, 4))
    check(Tensor(x).mT, x.swapaxes(1, 2))
    check(Tensor(x).transpose(0, 2), x.swapaxes(0, 2))
    check(Tensor(x[0]).T, x[0].T)


def test_flatten_and_expand():
    x = numbered((2, 3, 4, 1))
    check(Tensor(x).flatten(1, 2), x.reshape(2, 12, 1))
    check(Tensor(x).flatten(-2), x.reshape(2, 3, 4))
    check(Tensor(x).expand(5, -1, -1, -1, 7), np.broadcast_to(x, (5, 2, 3, 4, 7)))
    check(Tensor(x).squeeze(None), x[..., 0])
    check(Tensor(x).reshape(3, -1, 2), x.reshape(3, -1, 2))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cat_and_stack(axis):
    shapes = [(2, 3, 4)] * 3
    xs = [numbered(s) + 100 * i for i, s in enumerate(shapes)]
    check(stack([Tensor(x) for x in xs], axis), np.stack(xs, axis))
    pieces = [np.take(x, range(n), axis) for x, n in zip(xs, (1, 0, 2))]
    check(cat([Tensor(p) for p in pieces], axis), np.concatenate(pieces, axis))


def test_cat_keeps_nan_and_promotes():
    a, b = np.float32([1, np.nan]), np.float32([np.inf])
    check(cat([Tensor(a), Tensor(b), Tensor(a)]), np.concatenate([a, b, a]))
    check(cat([Tensor([1]), Tensor([0.5])]), np.float32([1, 0.5]))


def test_split_and_chunk():
    x = numbered((7, 2))
    for size in (1, 3, 7, 10):
        for got, expected in zip(Tensor(x).split(size), np.split(x, range(size, 7, size)), strict=True):
            check(got, expected)
    for got, expected in zip(Tensor(x).split([0, 5, 2]), (x[:0], x[:5], x[5:]), strict=True):
        check(got, expected)
    assert [t.shape[0] for t in Tensor(x).chunk(3)] == [3, 3, 1]
    check(Tensor(x).chunk(2, 1)[1], x[:, 1:])


def test_symbolic_shapes():
    n = Variable("n", 2, 8).bind(3)
    t = arange(n * 4).reshape(n, 4)
    assert t.shape == (n, 4) and t.flatten().shape == (n * 4,) and t.reshape(-1, 2).shape == (n * 2, 2)
    assert t.reshape(2, -1).shape == (2, n * 2) and t.T.shape == (4, n) and t.size == n * 4
    x = np.arange(12).reshape(3, 4)
    for got, expected in ((t.T, x.T), (t.reshape(n * 2, 2), x.reshape(6, 2)), (t.flip(0), x[::-1]),
                          (t.repeat(2, 0), x.repeat(2, 0)), (t.sum(0), x.sum(0)), (t.unsqueeze(0).tile(2, 1, 1),
                                                                                   np.tile(x[None], (2, 1, 1)))):
        np.testing.assert_array_equal(got.numpy(), expected)
    with pytest.raises(ShapeError):
        t.reshape(3, 4)


@pytest.mark.parametrize("wrong, message", [
    (lambda t: t.reshape(5, -1), "reshape: (2, 3) has not the number of elements of (5, -1); at most one size may be "
                                 "-1 and the product must be the same"),
    (lambda t: t.reshape(-1, -1), "reshape: (2, 3) has not the number of elements of (-1, -1); at most one size may be "
                                  "-1 and the product must be the same"),
    (lambda t: t.reshape(1.5, 4), "reshape: the shape is (1.5, 4); every size must be an integer"),
    (lambda t: t.permute(0, 0), "permute: axes (0, 0) are not an order of the 2 axes of (2, 3); name each once"),
    (lambda t: t.broadcast_to(3, 3), "broadcast_to: shapes (2, 3) and (3, 3) do not broadcast; aligned at the last "
                                     "axis, sizes must be equal or 1"),
    (lambda t: t[:, :1].broadcast_to(1, 1), "broadcast_to: (2, 1) does not broadcast to (1, 1); only sizes of 1 grow"),
    (lambda t: t.squeeze(0), "squeeze: axis 0 of (2, 3) has not size 1; select an element instead"),
    (lambda t: t[0].T, "T: the tensor has shape (3,); two axes are needed: use mT or permute"),
    (lambda t: t.pad([(1, 1)]), "pad: widths are [(1, 1)] for shape (2, 3); one pair of sizes that are not negative is "
                                "needed for each axis"),
    (lambda t: t.split([1, 2]), "split: the sizes sum to 3; axis 0 of (2, 3) asks 2"),
    (lambda t: cat([t, t[:, :2]]),
     "cat: shapes (2, 3) and (2, 2) differ outside axis 0; all other sizes must be equal"),
    (lambda t: cat([]), "cat: no tensors were given; at least one is needed"),
    (lambda t: stack([t, t[0]]), "stack: shapes (2, 3) and (3,) differ; all must be equal")])
def test_errors(wrong, message):
    with pytest.raises(ShapeError) as caught:
        wrong(Tensor(np.zeros((2, 3), np.float32)))
    assert str(caught.value) == message


def test_cat_asks_for_tensors_that_fit():
    with pytest.raises(DTypeError) as caught:
        cat([Tensor([1]), 2])
    assert str(caught.value) == "cat: an operand is int; a Tensor is needed"
    with pytest.raises(DTypeError) as caught:
        cat([Tensor([1]), Tensor(np.uint64([1]))])
    assert str(caught.value) == "cat: int64 and uint64 have no integer dtype that holds both; cast one of them"
