"""Blocks, loops and overhangs: rows and products in tiles that do not divide them."""
import numpy as np
import pytest

from scheduled import agree, floats, softmax

X, Y = floats(7, 11), floats(11, 13)


@pytest.mark.parametrize("name, make, expected", [
    ("map", lambda x, y: x * 2 + 1, X * 2 + 1),
    ("sum of rows", lambda x, y: x.sum(-1), X.sum(-1)),
    ("sum of columns", lambda x, y: x.sum(0), X.sum(0)),
    ("sum of all", lambda x, y: x.sum(), X.sum()),
    ("largest", lambda x, y: x.max(-1) - x.max(), X.max(-1) - X.max()),
    ("largest below zero", lambda x, y: (x - 100).max(0), (X - 100).max(0)),
    ("largest of a row below zero", lambda x, y: (x - 100).max(-1), (X - 100).max(-1)),
    ("least of a row", lambda x, y: (x + 100).min(-1), (X + 100).min(-1)),
    ("product", lambda x, y: x @ y, X @ Y),
    ("product after", lambda x, y: (x @ y + 1).maximum(0) * 2, np.maximum(X @ Y + 1, 0) * 2),
    ("product before", lambda x, y: (x + 1) @ (y * 2), (X + 1) @ (Y * 2)),
    ("softmax", lambda x, y: x.softmax(-1), softmax(X)),
    ("softmax of columns", lambda x, y: x.softmax(0), softmax(X.T).T),
    ("normalised", lambda x, y: (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + 1).sqrt(),
     (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1)),
    ("exp of a zero padding", lambda x, y: x.exp2().sum(-1), np.exp2(X).sum(-1)),
    ("product of ones past the end", lambda x, y: (x.exp2() @ y.exp2()), np.exp2(X) @ np.exp2(Y)),
    ("padded", lambda x, y: x.pad(((1, 2), (3, 0))).flip(1), np.pad(X, ((1, 2), (3, 0)))[:, ::-1]),
    ("strided", lambda x, y: x[::2, ::-3] + 1, X[::2, ::-3] + 1),
    ("transposed", lambda x, y: x.T + y[:, :7], X.T + Y[:, :7]),
], ids=lambda v: v if isinstance(v, str) else "")
def test_in_small_tiles(name, make, expected, small_tiles):
    agree(lambda tensor, _: make(tensor(X), tensor(Y)), expected, "interpret")


@pytest.mark.parametrize("make, shape", [(lambda x: x[:, :0] * 2, (3, 0)), (lambda x: x[:0].sum(0), (4,)),
                                         (lambda x: x[:, :0] @ x[:0], None), (lambda x: x[:0] @ x.T, (0, 3))])
def test_nothing_is_computed_of_nothing(make, shape, device):
    x = floats(3, 4)
    expected = np.zeros((3, 4)) if shape is None else np.zeros(shape)
    agree(lambda tensor, _: make(tensor(x)), expected, device)


@pytest.mark.parametrize("columns", [20000, 40000])
def test_rows_longer_than_a_tile(columns, device):
    x = floats(2, columns)
    agree(lambda tensor, _: tensor(x).softmax(-1), softmax(x), device, 1, x.nbytes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_half_precision_are_wide(dtype, small_tiles):
    x = np.ones((2, 700), np.float32)
    agree(lambda tensor, _: tensor(x).cast(dtype).sum(-1).cast("float32"), [700.0] * 2, "interpret", tolerance=4e-3)
