"""Elementwise primitives and reductions against formulas written here, never with the reference's own code."""
import math
import warnings

import ml_dtypes
import numpy as np
import pytest
from reference_arrays import (ENDS, FLOATS, INTEGERS, NATIVE_FLOATS, SHAPES, by_element, floats, integers, run, same,
                              wrapped)

from minivt import dtypes, ops


@pytest.fixture(autouse=True)
def quiet():
    """No meaning may leak a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# --- elementwise ------------------------------------------------------------------------------------------------------
FLOAT_UNARY = {ops.NEG: lambda x: -x, ops.SQRT: np.sqrt, ops.EXP2: lambda x: np.power(x.dtype.type(2), x),
               ops.LOG2: lambda x: np.log(x.astype(np.float64)) / np.log(2.0), ops.SIN: lambda x: np.sin(x),
               ops.TRUNC: lambda x: np.copysign(np.floor(np.abs(x)), x)}
FLOAT_BINARY = {ops.ADD: lambda x, y: x + y, ops.MUL: lambda x, y: x * y, ops.DIV: lambda x, y: x / y}


@pytest.mark.parametrize("dtype", NATIVE_FLOATS, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", FLOAT_UNARY, ids=repr)
def test_float_unary(op, shape, dtype):
    x = floats(shape, dtype)
    got = run(op, x)
    with np.errstate(all="ignore"):
        want = np.asarray(FLOAT_UNARY[op](x)).astype(dtype.numpy)
    if op in (ops.NEG, ops.SQRT, ops.TRUNC):
        same(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype.numpy).eps, atol=np.finfo(dtype.numpy).tiny)


@pytest.mark.parametrize("dtype", NATIVE_FLOATS, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", FLOAT_BINARY, ids=repr)
def test_float_binary(op, shape, dtype):
    x, y = floats(shape, dtype, 1), floats(shape, dtype, 2)
    with np.errstate(all="ignore"):
        want = FLOAT_BINARY[op](x, y)
    same(run(op, x, y), want)


@pytest.mark.parametrize("op", [*FLOAT_UNARY, *FLOAT_BINARY], ids=repr)
def test_bfloat16_computes_in_float32_and_rounds_once(op):
    count = len(op.inputs)
    inputs = [floats((1000,), dtypes.bfloat16, seed) for seed in range(count)]
    got = run(op, *(x.view(np.uint16) for x in inputs), types=[dtypes.bfloat16] * count)
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float32) for x in inputs]
        want = (FLOAT_UNARY | FLOAT_BINARY)[op](*wide).astype(np.float32).astype(ml_dtypes.bfloat16)
    got = got.view(ml_dtypes.bfloat16)
    if op in (ops.EXP2, ops.LOG2, ops.SIN):  # formulas above may round the float32 the other way
        np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=2 ** -8, atol=1e-38)
    else:
        same(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
@pytest.mark.parametrize("op, formula", [
    (ops.ADD, lambda x, y: x + y), (ops.MUL, lambda x, y: x * y), (ops.IDIV, lambda x, y: x // y if y else 0),
    (ops.MOD, lambda x, y: x % y if y else 0), (ops.MAXIMUM, max), (ops.AND, lambda x, y: x & y),
    (ops.OR, lambda x, y: x | y), (ops.XOR, lambda x, y: x ^ y)], ids=repr)
def test_integer_binary_wraps(op, formula, dtype):
    for shape in SHAPES + [(200,)]:
        x, y = integers(shape, dtype, 3), integers(shape, dtype, 4)
        same(run(op, x, y), by_element(lambda a, b: wrapped(formula(a, b), dtype), dtype, x, y))


def test_the_lowest_integer_divided_by_minus_one_wraps():
    low, minus = np.array([-128], np.int8), np.array([-1], np.int8)
    same(run(ops.IDIV, low, minus), low)
    same(run(ops.MOD, low, minus), np.array([0], np.int8))


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_neg_of_integers_wraps(dtype):
    x = integers((50,), dtype)
    same(run(ops.NEG, x), by_element(lambda a: wrapped(-a, dtype), dtype, x))


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_shifts(dtype):
    width = 8 * dtype.itemsize
    x = integers((40,), dtype)
    for count in [0, 1, width - 1, width, width + 1, 100, *((-1, -128) if dtype.kind == "i" else ())]:
        y = np.full((40,), count, dtype.numpy)
        real = count if 0 <= count < width else 1000  # as if by that many single shifts; a negative count is huge
        same(run(ops.SHL, x, y), by_element(lambda a, _: wrapped(a << real, dtype), dtype, x, y))
        same(run(ops.SHR, x, y), by_element(lambda a, _: a >> real, dtype, x, y))


@pytest.mark.parametrize("op, table", [
    (ops.ADD, [0, 1, 1, 1]), (ops.MUL, [0, 0, 0, 1]), (ops.MAXIMUM, [0, 1, 1, 1]), (ops.AND, [0, 0, 0, 1]),
    (ops.OR, [0, 1, 1, 1]), (ops.XOR, [0, 1, 1, 0]), (ops.LT, [0, 1, 0, 0]), (ops.NE, [0, 1, 1, 0])], ids=repr)
def test_bool_binary(op, table):
    same(run(op, np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)), np.array(table, bool))


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_comparisons_and_maximum_with_nan(dtype):
    x = np.array([1, math.nan, 1, math.nan, -0.0, -math.inf, 2], np.float32)
    y = np.array([2, 1, math.nan, math.nan, 0.0, math.inf, 2], np.float32)
    held = [np.asarray(v.astype(ml_dtypes.bfloat16)).view(np.uint16) if dtype is dtypes.bfloat16
            else v.astype(dtype.numpy) for v in (x, y)]
    same(run(ops.LT, *held, types=[dtype] * 2), np.array([1, 0, 0, 0, 0, 1, 0], bool))
    same(run(ops.NE, *held, types=[dtype] * 2), np.array([1, 1, 1, 1, 0, 1, 0], bool))
    largest = run(ops.MAXIMUM, *held, types=[dtype] * 2)
    largest = largest.view(ml_dtypes.bfloat16) if dtype is dtypes.bfloat16 else largest
    np.testing.assert_array_equal(largest.astype(np.float32), [2, math.nan, math.nan, math.nan, 0, math.inf, 2])


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_where_keeps_bits(shape, dtype):
    rng = np.random.default_rng(5)
    condition = rng.random(shape) < 0.5
    size = int(np.prod(shape)) * dtype.itemsize
    top = 2 if dtype is dtypes.bool_ else 256
    x, y = (rng.integers(0, top, size, np.uint8).view(dtype.storage).reshape(shape) for _ in range(2))
    got = run(ops.WHERE, condition, x, y, types=[dtypes.bool_, dtype, dtype])
    bits = np.dtype(f"u{dtype.itemsize}")
    want = [a if c else b for c, a, b in zip(condition.flat, x.view(bits).flat, y.view(bits).flat)]
    same(got.view(bits), np.array(want, bits).reshape(shape))


@pytest.mark.parametrize("source", FLOATS, ids=repr)
@pytest.mark.parametrize("target", INTEGERS, ids=repr)
def test_cast_float_to_integer_truncates_and_saturates(source, target):
    with np.errstate(all="ignore"):
        x = np.concatenate((floats((500,), source, 6), np.array(ENDS).astype(floats((), source).dtype)))
    info = np.iinfo(target.numpy)
    got = run(ops.CAST, x.view(source.storage), arg=target, types=[source])
    wide = x.astype(np.float64)
    want = by_element(lambda v: 0 if v != v else int(max(info.min, min(info.max, v if abs(v) == math.inf else int(v)))),
                      target, wide)
    same(got, want)


@pytest.mark.parametrize("source", [*INTEGERS, dtypes.bool_], ids=repr)
@pytest.mark.parametrize("target", INTEGERS, ids=repr)
def test_cast_between_integers_wraps(source, target):
    x = integers((100,), source) if source.is_int else np.array([True, False])
    same(run(ops.CAST, x, arg=target), by_element(lambda v: wrapped(int(v), target), target, x))


@pytest.mark.parametrize("source", dtypes.ALL, ids=repr)
def test_cast_to_bool_is_not_zero(source):
    values = [0, 1, 2, 255] if source.kind != "f" else [0.0, -0.0, 1e-30, math.nan, math.inf, -1.0]
    with np.errstate(all="ignore"):
        x = np.array(values).astype(ml_dtypes.bfloat16 if source is dtypes.bfloat16 else source.numpy)
    got = run(ops.CAST, x.view(source.storage), arg=dtypes.bool_, types=[source])
    same(got, np.array([v != 0 for v in x.tolist()]))


@pytest.mark.parametrize("source", FLOATS, ids=repr)
@pytest.mark.parametrize("target", FLOATS, ids=repr)
def test_cast_between_floats_rounds_to_nearest_even(source, target):
    x = floats((500,), source, 7)
    with np.errstate(all="ignore"):
        wide = x if target in (dtypes.float32, dtypes.float64) else x.astype(np.float32)
        want = wide.astype(ml_dtypes.bfloat16 if target is dtypes.bfloat16 else target.numpy)
        got = run(ops.CAST, x.view(source.storage), arg=target, types=[source])
        same(got.view(want.dtype).astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("target", FLOATS, ids=repr)
def test_cast_integer_to_float(target):
    x = np.array([0, 1, -1, 255, 257, 2 ** 24 + 1, 2 ** 53 + 1, -2 ** 63, 2 ** 63 - 1], np.int64)
    got = run(ops.CAST, x, arg=target)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64 if target is dtypes.float64 else np.float32)
        want = wide.astype(ml_dtypes.bfloat16 if target is dtypes.bfloat16 else target.numpy)
    same(got.view(want.dtype).astype(np.float64), want.astype(np.float64))


def test_bitcast():
    x = np.array([1.0, -0.0, math.inf], np.float32)
    same(run(ops.BITCAST, x, arg=dtypes.uint32), np.array([0x3F800000, 0x80000000, 0x7F800000], np.uint32))
    same(run(ops.BITCAST, np.array([0x3F80], np.uint16), arg=dtypes.bfloat16), np.array([0x3F80], np.uint16))
    same(run(ops.BITCAST, np.array(-1, np.int64), arg=dtypes.uint64), np.array(2 ** 64 - 1, np.uint64))


# --- reduce -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 7), (3, 0, 7), (1, 1, 1)], ids=str)
def test_sum_and_max(shape, axes):
    rng = np.random.default_rng(8)
    kept = [a for a in range(3) if a not in axes]
    for dtype in (np.int8, np.uint16, np.int64, np.float32, np.float64):
        x = rng.integers(0, 100, shape).astype(dtype)
        total = np.zeros([shape[a] for a in kept], dtype)
        low = -np.inf if total.dtype.kind == "f" else np.iinfo(dtype).min
        top = np.full(total.shape, low, dtype)
        for place in np.ndindex(*shape):
            out = tuple(place[a] for a in kept)
            with np.errstate(over="ignore"):
                total[out] += x[place]
            top[out] = max(top[out], x[place])
        same(run(ops.SUM, x, arg=axes), total)
        same(run(ops.MAX, x, arg=axes), top)


def test_max_of_nan_and_bool():
    same(run(ops.MAX, np.array([[1, math.nan], [2, 3]], np.float32), arg=(1,)), np.array([math.nan, 3], np.float32))
    same(run(ops.MAX, np.array([[False, True], [False, False]]), arg=(1,)), np.array([True, False]))
    same(run(ops.MAX, np.zeros((2, 0), bool), arg=(1,)), np.array([False, False]))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=repr)
def test_sum_of_half_types_accumulates_in_float32(dtype):
    ones = np.ones(5000, np.float32).astype(ml_dtypes.bfloat16 if dtype is dtypes.bfloat16 else np.float16)
    got = run(ops.SUM, ones.view(dtype.storage), arg=(0,), types=[dtype]).view(ones.dtype)
    assert float(got) == float(np.float32(5000).astype(ones.dtype))  # adding in the type itself stops at 256 or 2048
