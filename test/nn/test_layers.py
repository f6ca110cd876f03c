"""Layers and rotary positions against NumPy."""
import numpy as np
import pytest

from comparison import check
from minivt import Tensor, arange, manual_seed
from minivt.errors import ShapeError
from minivt.nn import Embedding, LayerNorm, Linear, RMSNorm, rotary_frequencies, rotate_adjacent, rotate_halves

RNG = np.random.default_rng(1)
X = RNG.normal(2, 3, (4, 5, 8)).astype(np.float32)


def test_linear():
    manual_seed(1)
    layer = Linear(8, 3)
    w, b = layer.weight.numpy(), layer.bias.numpy()
    check(layer(Tensor(X)), X @ w.T + b, rtol=1e-5, atol=1e-5)
    assert Linear(8, 3, bias=False).bias is None and abs(w).max() <= 8 ** -0.5 and abs(w).max() > 0.25


def test_embedding():
    layer = Embedding(10, 4)
    ids = np.array([[1, 9], [0, 1]])
    check(layer(Tensor(ids)), layer.weight.numpy()[ids])


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_norms(dtype, tolerance):
    w, b = RNG.normal(size=8).astype(np.float32), RNG.normal(size=8).astype(np.float32)
    rms, layer = RMSNorm(8, 1e-5, dtype), LayerNorm(8, dtype=dtype)
    rms.weight = layer.weight = Tensor(w).cast(dtype)
    layer.bias = Tensor(b).cast(dtype)
    x = Tensor(X).cast(dtype)
    for got, expected in (
            (rms(x), X / np.sqrt((X ** 2).mean(-1, keepdims=True) + 1e-5) * w),
            (layer(x), (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5) * w + b)):
        assert got.dtype.name == dtype
        np.testing.assert_allclose(got.float().numpy(), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(LayerNorm(8, bias=False)(Tensor(X)).numpy().mean(-1), 0, atol=1e-6)


@pytest.mark.parametrize("theta", [1e4, 1e6])
def test_rotary(theta):
    x = RNG.normal(size=(2, 5, 3, 8)).astype(np.float32)
    positions = np.array([0, 1, 7, 1000, 9999])
    frequencies = rotary_frequencies(8, theta)
    angle = (positions[:, None, None].astype(np.float32) * frequencies.numpy()).astype(np.float64)
    turn = np.exp(1j * angle)
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
    adjacent = np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)
    pairs = (x[..., :4] + 1j * x[..., 4:]) * turn
    check(rotate_adjacent(Tensor(x), Tensor(positions), frequencies), adjacent.astype(np.float32), atol=2e-6)
    check(rotate_halves(Tensor(x), Tensor(positions), frequencies),
          np.concatenate([pairs.real, pairs.imag], -1).astype(np.float32), atol=2e-6)


def test_rotary_errors():
    with pytest.raises(ShapeError) as caught:
        rotary_frequencies(7)
    assert str(caught.value).startswith("rotary_frequencies: head_dim is 7; it must be even")
    with pytest.raises(ShapeError) as caught:
        rotate_halves(Tensor(X), arange(5), rotary_frequencies(6))
    assert str(caught.value).startswith("rotate_halves: x has shape (4, 5, 8) for 3 frequencies")
