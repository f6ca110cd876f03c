"""Functions of real numbers against float64 in NumPy and math, with their stated accuracy."""
import math

import numpy as np
import pytest

from comparison import SPECIAL, check, ulps
from minivt import Tensor
from minivt.errors import DTypeError

WIDE = np.concatenate([np.linspace(-90, 90, 4001), np.linspace(-2, 2, 4001)]).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_rounding(name, dtype):
    x = np.concatenate([SPECIAL, np.arange(-4, 4, 0.25), [2.0 ** 23 + 1, -(2.0 ** 24), 0.49999997]]).astype(dtype)
    expected = getattr(np, name)(x)
    check(getattr(Tensor(x), name)(), expected)
    if name != "sign":
        assert (np.signbit(getattr(Tensor(x), name)().numpy()) == np.signbit(expected))[~np.isnan(x)].all()


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
def test_integers_round_to_themselves(name):
    check(getattr(Tensor([1, -2]), name)(), [1, -2])


# NumPy's own exp2 and log2 are off by up to 1 and 2 ulp, a GPU's exp2 by 2; exp rounds |x| * log2 e before that.
@pytest.mark.parametrize("name, limit", [("exp", 2 + 2 * np.abs(WIDE)), ("sqrt", 0.5), ("log", 3), ("exp2", 1),
                                         ("log2", 2)])
def test_ulps_in_float32(name, limit):
    x = WIDE if "exp" in name else np.abs(WIDE) + np.float32(1e-30)
    exact = getattr(np, name)(x.astype(np.float64))
    normal = (exact == 0) | ((np.abs(exact) > 1.2e-38) & (np.abs(exact) < 3.4e38))
    assert (ulps(getattr(Tensor(x), name)().numpy(), exact) <= limit)[normal].all()


def test_exp_in_float64():
    x = np.linspace(-700, 700, 5001)
    exact = np.array([math.exp(v) for v in x])
    assert (ulps(Tensor(x).exp().numpy(), exact) <= 2 + np.abs(x)).all()


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "exp2", "log2", "tanh", "sin", "cos"])
def test_special_values(name):
    x = np.float32([0.0, 1.0, np.inf, -np.inf, np.nan, 88.7, 89.0, -104.0])
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    check(getattr(Tensor(x), name)(), expected, rtol=6e-6 if name == "exp" else 3e-7, atol=1e-6)


@pytest.mark.parametrize("limit", [10.0, 1e4, 2e5])
def test_cos_of_large_angles(limit):
    x = np.linspace(-limit, limit, 20001).astype(np.float32)
    assert np.abs(Tensor(x).cos().numpy() - np.cos(x.astype(np.float64))).max() < 2e-7
    wide = x.astype(np.float64)
    assert np.abs(Tensor(wide).cos().numpy() - np.cos(wide)).max() < 1e-15


def test_cos_near_its_zeros():
    x = np.float32([np.pi / 2, -np.pi / 2])
    check(Tensor(x).cos(), np.cos(x.astype(np.float64)).astype(np.float32), rtol=1e-6)


def test_circular_functions():
    x = np.linspace(-10, 10, 2001).astype(np.float32)
    check(Tensor(x).sin(), np.sin(x), atol=2e-7)
    exact = np.tan(x.astype(np.float64))
    assert (np.abs(Tensor(x).tan().numpy() - exact) <= 4e-7 * (1 + exact ** 2)).all()  # an error in the angle


@pytest.mark.parametrize("dtype, tolerance", [("float32", 3e-7), ("float64", 1e-15)])
def test_tanh_and_erf_keep_relative_accuracy(dtype, tolerance):
    x = np.concatenate([np.linspace(-8, 8, 4001), np.logspace(-20, 0, 200), [0.625, 1.0]]).astype(dtype)
    check(Tensor(x).tanh(), np.array([math.tanh(v) for v in x]).astype(dtype), rtol=tolerance)
    check(Tensor(x).erf(), np.array([math.erf(v) for v in x]).astype(dtype), rtol=tolerance)


def test_activations():
    x = np.linspace(-20, 20, 2001)
    t = Tensor(x.astype(np.float32))
    sigmoid = 1 / (1 + np.exp(-x))
    erf = np.array([math.erf(v / math.sqrt(2)) for v in x])
    tanh = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))
    for got, expected in [
            (t.sigmoid(), sigmoid), (t.silu(), x * sigmoid), (t.relu(), np.maximum(x, 0)),
            (t.gelu(), 0.5 * x * (1 + erf)), (t.gelu("tanh"), 0.5 * x * (1 + tanh)),
            (t.softplus(), np.log1p(np.exp(x))), (abs(t).rsqrt() * 0 + t.square(), x * x)]:
        np.testing.assert_allclose(got.numpy()[x != 0], expected[x != 0], rtol=2e-6, atol=5e-7)


def test_half_precision_is_computed_in_float32():
    x = np.linspace(-8, 8, 1000).astype(np.float16)
    check(Tensor(x).exp(), np.exp(x.astype(np.float32)).astype(np.float16), rtol=1e-3)
    check(Tensor(x).sigmoid(), (1 / (1 + np.exp(-x.astype(np.float32)))).astype(np.float16), rtol=1e-3)
    assert Tensor(x).cast("bfloat16").tanh().dtype.name == "bfloat16"


def test_integers_become_float32():
    check(Tensor([1, 4]).sqrt(), np.float32([1, 2]))


def test_gelu_names_its_choices():
    with pytest.raises(DTypeError) as caught:
        Tensor([1.0]).gelu("fast")
    assert str(caught.value) == "gelu: approximate is 'fast'; choose 'none' or 'tanh'"
