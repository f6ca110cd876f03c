"""Operators of Tensor against NumPy."""
import operator

import numpy as np
import pytest

from comparison import INTEGERS, SPECIAL, check, on_host, random_array
from minivt import Tensor, from_numpy, full, maximum, minimum, where
from minivt.errors import BackendError, DTypeError, ShapeError

PAIRS = [((), ()), ((3,), ()), ((2, 3), (3,)), ((4, 1), (1, 5)), ((0, 3), (1, 3)), ((2, 1, 3), (4, 1))]
ARITHMETIC = [operator.add, operator.sub, operator.mul]
ORDER = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("shapes", PAIRS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_arithmetic_and_order_broadcast(shapes, dtype):
    rng = np.random.default_rng(1)
    a, b = (random_array(rng, s, dtype) for s in shapes)
    for op in ARITHMETIC + ORDER:
        check(op(Tensor(a), Tensor(b)), op(a, b))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operators(dtype):
    rng = np.random.default_rng(2)
    a, b = random_array(rng, (50,), dtype), random_array(rng, (50,), dtype)
    b[b == 0] = 3
    for op in (operator.floordiv, operator.mod, operator.and_, operator.or_, operator.xor):
        check(op(Tensor(a), Tensor(b)), op(a, b))
    check(~Tensor(a), ~a)
    check(-Tensor(a), -a)
    check(abs(Tensor(a)), abs(a))
    shift = (abs(b.astype(int)) % (8 * a.itemsize)).astype(dtype)
    check(Tensor(a) << Tensor(shift), a << shift)
    check(Tensor(a) >> Tensor(shift), a >> shift)
    check(Tensor(a) // 0, np.zeros_like(a))
    check(Tensor(a) % 0, np.zeros_like(a))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values(dtype):
    a = np.array(SPECIAL, dtype)[:, None]
    b = a.T
    with np.errstate(all="ignore"):
        for op in [*ARITHMETIC, operator.truediv, *ORDER]:
            check(op(Tensor(a), Tensor(b)), op(a, b))
        check(maximum(Tensor(a), Tensor(b)), np.maximum(a, b))
        check(minimum(Tensor(a), Tensor(b)), np.minimum(a, b))
    check(Tensor(a).isnan(), np.isnan(a))
    check(Tensor(a).isinf(), np.isinf(a))
    check(Tensor(a).isfinite(), np.isfinite(a))
    assert not np.signbit(abs(Tensor(a)).numpy()[~np.isnan(a)]).any()


def test_float_floor_division_and_remainder():
    a, b = np.float32([7, -7, 5.5, 3, 0, -0.1])[:, None], np.float32([2, -2, 0.5, 3, np.inf, -np.inf])
    check(Tensor(a) % Tensor(b), np.remainder(a, b), atol=1e-6)
    check(Tensor(a) // Tensor(b), np.floor(a / b))


def test_numbers_on_either_side_are_weak():
    x = np.float32([1, 2, 4])
    t = Tensor(x)
    check(1 + t, 1 + x)
    check(8 - t, 8 - x)
    check(8 / t, 8 / x)
    check(9 // t, np.float32(9) // x)
    check(9 % t, np.float32(9) % x)
    check(2 ** t, np.float32(2) ** x)
    check(3 > t, 3 > x)
    check(x * t, x * x)
    i = Tensor(np.int8([1, 2]))
    assert (i + 1).dtype.name == (True + i).dtype.name == "int8"
    assert (i * 1.0).dtype.name == (i / 2).dtype.name == "float32"
    assert (Tensor(True) + 1).dtype.name == "int64"
    assert (Tensor(np.float16(1)) + 1.0).dtype.name == "float16"
    check(1 << Tensor([1, 3]), [2, 8])
    check(256 >> Tensor([1, 3]), [128, 32])
    check(6 & Tensor([3]), [2])


@pytest.mark.parametrize("a, b, expected", [
    ("int32", "float32", "float32"), ("int64", "float16", "float16"), ("bool", "int8", "int8"),
    ("bool", "float16", "float16"), ("float16", "bfloat16", "float32"), ("bfloat16", "float32", "float32"),
    ("float32", "float64", "float64"), ("int8", "int32", "int32"), ("uint8", "int8", "int16"),
    ("uint32", "int8", "int64"), ("int64", "uint8", "int64"), ("uint16", "uint8", "uint16")])
def test_promotion(a, b, expected):
    left, right = full((2,), 1, a), full((2,), 1, b)
    assert (left * right).dtype.name == (right * left).dtype.name == expected
    assert (left @ right).dtype.name == expected


def test_powers():
    x = np.float32([0.5, 1, 2, 3, -2, 0])
    t = Tensor(x)
    for n in (0, 1, 2, 3, 5, 10):
        check(t ** n, x ** np.float32(n), rtol=1e-6)
    with np.errstate(all="ignore"):
        check(t ** -2, x ** np.float32(-2), rtol=1e-6)
        check(t ** 0.5, np.sqrt(x))
        for y in (1.5, -0.5, 3.0, -3.0, 0.0):
            check(t ** Tensor(np.full(6, y, np.float32)), x ** np.float32(y), rtol=1e-6)
    i = np.int32([-3, 0, 1, 2, 7])
    check(Tensor(i) ** 3, i ** 3)
    check(Tensor(i) ** Tensor(np.int32([0, 1, 5, 30, 11])), i ** np.int32([0, 1, 5, 30, 11]))


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "bool"])
def test_maximum_minimum_clip_where(dtype):
    rng = np.random.default_rng(3)
    a, b = random_array(rng, (4, 5), dtype), random_array(rng, (5,), dtype)
    condition = rng.integers(0, 2, (4, 1)).astype(bool)
    check(maximum(Tensor(a), Tensor(b)), np.maximum(a, b))
    check(minimum(Tensor(a), Tensor(b)), np.minimum(a, b))
    check(where(Tensor(condition), Tensor(a), Tensor(b)), np.where(condition, a, b))
    if dtype != "bool":
        check(Tensor(a).clip(1, 3), a.clip(1, 3))
        check(Tensor(a).clip(max=2), np.minimum(a, a.dtype.type(2)))


def test_extremes_do_not_overflow():
    a = np.int8([-128, 127])
    check(minimum(Tensor(a), Tensor(a[::-1].copy())), np.int8([-128, -128]))
    check(Tensor(a).min(), np.int8(-128))
    check(Tensor(np.uint8([0, 255])).min(), np.uint8(0))


def test_where_of_numbers():
    c = Tensor([True, False])
    check(c.where(1, 0), np.array([1, 0]))
    check(c.where(1, 0.5), np.float32([1, 0.5]))
    check(c.where(True, False), [True, False])
    check(where(c, np.float64([1, 2]), 0), np.float64([1, 0]))
    check(maximum(0, Tensor([-1, 2])), [0, 2])
    check(minimum(0, Tensor([-1, 2])), [-1, 0])


def test_casts_and_bitcasts():
    x = np.float32([1.7, -1.7, 3.2e4])
    for dtype in ("int16", "int64", "float16", "float64", "bool"):
        check(Tensor(x).cast(dtype), x.astype(dtype))
    check(Tensor(x).bitcast("uint32"), x.view(np.uint32))
    check(Tensor(x).cast("bfloat16").cast("float32"), np.float32([1.703125, -1.703125, 32000]))
    raw = np.random.default_rng(4).integers(0, 256, (3, 2, 4)).astype(np.uint8)
    check(Tensor(raw).bitcast("uint32"), raw.view(np.uint32)[..., 0])
    check(Tensor(raw).bitcast("int32"), raw.view(np.int32)[..., 0])
    half = np.uint8([[0, 0x3C], [0, 0xC0]])
    check(Tensor(half).bitcast("float16"), np.float16([1, -2]))
    check(Tensor(np.uint8([[0x80, 0x3F]])).bitcast("bfloat16").float(), np.float32([1]))


def test_half_precision_rounds_once_per_operation():
    rng = np.random.default_rng(5)
    a, b = (rng.normal(0, 3, 100).astype(np.float16) for _ in range(2))
    for op in [*ARITHMETIC, operator.truediv]:
        check(op(Tensor(a), Tensor(b)), op(a, b))


@on_host
def test_no_hidden_copy_of_an_array():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert from_numpy(array).node.arg.owner is array or np.shares_memory(from_numpy(array).numpy(), array)


@pytest.mark.parametrize("wrong, error, message", [
    (lambda t: t + Tensor([1.0, 2.0]), ShapeError,
     "add: shapes (3,) and (2,) do not broadcast; aligned at the last axis, sizes must be equal or 1"),
    (lambda t: Tensor(np.uint8([1])) + 256, DTypeError,
     "add: 256 does not fit uint8, which holds 0 to 255; cast the tensor first"),
    (lambda t: t & 1, DTypeError, "and: the tensor has dtype float32; bool or an integer is needed: cast first"),
    (lambda t: ~t, DTypeError, "invert: the tensor has dtype float32; bool or an integer is needed: cast first"),
    (lambda t: Tensor([True]) - Tensor([True]), DTypeError,
     "subtract: the tensor has dtype bool; a number is needed: cast first"),
    (lambda t: -Tensor([True]), DTypeError, "negative: the tensor has dtype bool; a number is needed: cast first"),
    (lambda t: t.where(1, 0), DTypeError,
     "where: the tensor has dtype float32; a bool condition is needed: cast first"),
    (lambda t: Tensor(np.uint64([1])) + Tensor([1]), DTypeError,
     "add: uint64 and int64 have no integer dtype that holds both; cast one of them"),
    (lambda t: t.bitcast("uint8"), DTypeError,
     "bitcast: float32 cannot be read as uint8; choose a dtype of the same or a larger size, not bool"),
    (lambda t: Tensor(np.uint8([1, 2, 3])).bitcast("uint16"), ShapeError,
     "bitcast: uint8 (3,) cannot be read as uint16; the last axis must hold the 2 parts of one element"),
    (lambda t: t.cast("float8"), DTypeError, "dtype: float8 is not supported; choose one of bool, "),
    (lambda t: Tensor([2]) ** -1, DTypeError,
     "pow: the tensor has dtype int64; a float for a negative exponent is needed: cast first"),
    (lambda t: t + t.to("cuda:0"), BackendError,
     "add: operands are on DEVICE and cuda:0; move one with to(device)")])
def test_errors(wrong, error, message):
    with pytest.raises(error) as caught:
        wrong(Tensor([1.0, 2.0, 3.0]))
    assert str(caught.value).startswith(message.replace("DEVICE", Tensor(0).device))
