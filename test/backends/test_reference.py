"""The meaning of each primitive against formulas written here with plain Python or NumPy, never with its own code."""
import math
import warnings

import ml_dtypes
import numpy as np
import pytest

from minivt import dtypes, ops
from minivt.backends.reference import MEANING, evaluate
from minivt.errors import BoundsError
from minivt.graph import const, node
from minivt.runtime.buffer import Buffer
from minivt.scan import scan
from minivt.symbolic import add, idiv, mul, variable

SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (3, 1, 5)]
INTEGERS = [d for d in dtypes.ALL if d.is_int]
FLOATS = [d for d in dtypes.ALL if d.is_float]
NATIVE_FLOATS = [dtypes.float16, dtypes.float32, dtypes.float64]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-40, 6e4, -1e38, 3e38, 127.5, -128.9, 300.0]
ENDS = [s * 2.0 ** n for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)]  # one beyond the ends of integers


@pytest.fixture(autouse=True)
def quiet():
    """No meaning may leak a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Memory:
    """Buffers for arrays of a test."""

    def __init__(self):
        self.arrays = {}

    def __call__(self, array, dtype=None):
        array = np.asarray(array)
        dtype = dtype or dtypes.BY_NAME[array.dtype.name]
        buffer = Buffer(array.shape, dtype, "cpu")
        self.arrays[buffer] = array
        return node(ops.BUFFER, (), buffer, dtype)

    def run(self, *roots, **variables):
        return evaluate(list(roots), variables, self.arrays.__getitem__)


def run(op, *arrays, arg=None, dtype=None, types=None):
    memory = Memory()
    inputs = [memory(a, t) for a, t in zip(arrays, types or [None] * len(arrays))]
    made = node(op, inputs, arg, dtype)
    result, = memory.run(made)
    assert isinstance(result, np.ndarray) and result.shape == made.shape and result.dtype == made.dtype.storage
    return result


def same(got, want):
    """Equal values, where NaN equals NaN and -0.0 differs from 0.0."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        finite = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[finite], np.signbit(want)[finite])


def floats(shape, dtype, seed=0):
    """Random numbers with specials sprinkled in, as a NumPy array of the dtype (bfloat16 through ml_dtypes)."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    values = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(ml_dtypes.bfloat16 if dtype is dtypes.bfloat16 else dtype.numpy)


def integers(shape, dtype, seed=0):
    info = np.iinfo(dtype.numpy)
    rng = np.random.default_rng(seed)
    values = rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    ends = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], dtype.numpy)
    return np.where(rng.random(shape) < 0.4, rng.choice(ends, shape), values).astype(dtype.numpy)


def wrapped(value: int, dtype) -> int:
    value &= (1 << 8 * dtype.itemsize) - 1
    return value - (1 << 8 * dtype.itemsize) if dtype.kind == "i" and value >> (8 * dtype.itemsize - 1) else value


def by_element(function, dtype, *arrays):
    """A Python function of Python numbers at each element."""
    flat = [function(*map(np.ndarray.item, row)) for row in zip(*(np.asarray(a).reshape(-1, 1) for a in arrays))]
    return np.array(flat, dtype.numpy).reshape(arrays[0].shape)


def test_every_primitive_has_a_meaning():
    assert set(MEANING) == set(ops.PRIMITIVES.values())


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
    same(run(ops.CAST, x.view(source.storage), arg=dtypes.bool_, types=[source]), np.array([v != 0 for v in x.tolist()]))


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


# --- source and movement ----------------------------------------------------------------------------------------------

def test_sources():
    n = variable("n", 1, 9)
    memory = Memory()
    value, half, count, ramp, ramp16 = memory.run(
        const(-0.0, dtypes.float32), const(1.00390625, dtypes.bfloat16), n, node(ops.ARANGE, (), n, dtypes.int32),
        node(ops.ARANGE, (), 300, dtypes.bfloat16), n=5)
    same(value, np.array(-0.0, np.float32))
    same(half, np.array(0x3F80, np.uint16))  # a tie goes to even
    same(count, np.array(5, np.int64))
    same(ramp, np.arange(5, dtype=np.int32))
    same(ramp16, np.arange(300, dtype=np.float32).astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("values", [{}, {"n": 0}, {"n": 10}])
def test_a_variable_without_value_or_out_of_bounds_raises(values):
    with pytest.raises(BoundsError, match="n "):
        Memory().run(variable("n", 1, 9), **values)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
def test_movement(dtype):
    x = np.arange(30).reshape(2, 3, 5).astype(dtype.storage)
    same(run(ops.RESHAPE, x, arg=(5, 6), types=[dtype]), np.array(x.ravel().tolist(), x.dtype).reshape(5, 6))
    same(run(ops.PERMUTE, x, arg=(2, 0, 1), types=[dtype]),
         np.array([[[x[a, b, c] for b in range(3)] for a in range(2)] for c in range(5)], x.dtype))
    same(run(ops.EXPAND, x[:, :1], arg=(2, 4, 5), types=[dtype]), np.stack([x[:, 0]] * 4, 1))
    padded = np.zeros((2, 6, 5), x.dtype)
    padded[:, 1:4] = x
    same(run(ops.PAD, x, arg=((0, 0), (1, 2), (0, 0)), types=[dtype]), padded)
    same(run(ops.SHRINK, x, arg=((1, 1), (0, 2), (3, 2)), types=[dtype]), x[1:2, 0:2, 3:5])
    same(run(ops.FLIP, x, arg=(0, 2), types=[dtype]), x[::-1, :, ::-1])


def test_movement_of_scalars_and_empty_arrays():
    scalar, empty = np.array(3.0), np.zeros((0, 4))
    same(run(ops.RESHAPE, scalar, arg=(1, 1)), np.array([[3.0]]))
    same(run(ops.PAD, scalar, arg=()), scalar)
    same(run(ops.SHRINK, scalar, arg=()), scalar)
    same(run(ops.FLIP, scalar, arg=()), scalar)
    same(run(ops.EXPAND, np.zeros((1, 1)), arg=(0, 4)), empty)
    same(run(ops.PAD, empty, arg=((1, 1), (0, 0))), np.zeros((2, 4)))
    same(run(ops.RESHAPE, empty, arg=(2, 0)), np.zeros((2, 0)))


@pytest.mark.parametrize("op, arg", [(ops.SHRINK, ((2, 3),)), (ops.SHRINK, ((-1, 2),))])
def test_a_region_outside_raises(op, arg):
    with pytest.raises(BoundsError, match="axis of size 4"):
        run(op, np.zeros(4), arg=arg)


def test_symbolic_sizes():
    n = variable("n", 1, 8)
    memory = Memory()
    x = memory(np.arange(8.0))
    head = node(ops.SHRINK, (x,), ((0, n),))
    tail = node(ops.SHRINK, (x,), ((add(mul(n, -1), 8), n),))
    total = node(ops.SUM, (node(ops.MUL, (head, tail)),), (0,))
    for count in (1, 5, 8):
        got, = memory.run(total, n=count)
        assert got == sum(i * (8 - count + i) for i in range(count))
    wide = node(ops.EXPAND, (node(ops.RESHAPE, (head,), (n, 1)),), (n, idiv(add(n, 1), 2)))
    same(memory.run(wide, n=3)[0], np.array([[0.0, 0], [1, 1], [2, 2]]))


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


# --- scan -------------------------------------------------------------------------------------------------------------

def test_scan_is_a_loop_over_axis_0():
    rng = np.random.default_rng(9)
    a, h, x = rng.random(4), rng.random(4), rng.random((6, 4))
    memory = Memory()
    factor = memory(a)

    def step(carry, rows):
        following = node(ops.ADD, (node(ops.MUL, (factor, carry[0])), rows[0]))
        return (following,), (node(ops.SUM, (following,), (0,)),)

    (last,), (sums,) = scan(step, (memory(h),), (memory(x),))
    got_last, got_sums = memory.run(last, sums)
    want = []
    for t in range(6):
        h = a * h + x[t]
        want.append(h.sum())
    np.testing.assert_allclose(got_last, h)
    np.testing.assert_allclose(got_sums, want)


def test_scan_of_several_carries_over_a_symbolic_length_and_no_steps():
    n = variable("n", 0, 9)
    memory = Memory()
    one = const(1, dtypes.int64)

    def fibonacci(carry, rows):
        a, b = carry
        return (b, node(ops.ADD, (a, b))), (a, rows[0])

    carries, ys = scan(fibonacci, (memory(np.int64(0)), one), (node(ops.ARANGE, (), n, dtypes.int64),))
    got = memory.run(*carries, *ys, n=7)
    assert [g.tolist() for g in got] == [13, 21, [0, 1, 1, 2, 3, 5, 8], list(range(7))]
    assert [g.tolist() for g in memory.run(*carries, *ys, n=0)] == [0, 1, [], []]


def test_nested_scans_capture_what_the_outer_step_holds():
    x = np.arange(12.0).reshape(3, 4)
    memory = Memory()

    def outer(carry, rows):
        def inner(total, item):
            return (node(ops.ADD, (total[0], node(ops.MUL, (item[0], carry[0])))),), ()
        (total,), _ = scan(inner, (const(0.0, dtypes.float64),), (rows[0],))
        return (node(ops.ADD, (carry[0], const(1.0, dtypes.float64))),), (total,)

    _, (totals,) = scan(outer, (const(1.0, dtypes.float64),), (memory(x),))
    same(memory.run(totals)[0], x.sum(1) * [1, 2, 3])


def test_scan_stacks_bfloat16():
    bits = np.array([0x3F80, 0x4000, 0x4040], np.uint16)
    memory = Memory()
    (last,), (ys,) = scan(lambda c, r: ((node(ops.ADD, (c[0], r[0])),), (c[0],)),
                          (const(0.0, dtypes.bfloat16),), (memory(bits, dtypes.bfloat16),))
    got, stacked = memory.run(last, ys)
    same(got, np.array(0x40C0, np.uint16))
    same(stacked, np.array([0, 0x3F80, 0x4040], np.uint16))


# --- index ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("index_type", [np.int8, np.int64, np.uint8, np.uint64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(axis, index_type):
    x = np.arange(1.0, 25.0).reshape(2, 3, 4)
    index = np.array([[0, 1, 3], [2, 100, np.iinfo(index_type).max]], index_type)
    if np.iinfo(index_type).min:
        index[:, 0] = -1, -2
    got = run(ops.GATHER, x, index, arg=axis)
    for place in np.ndindex(*got.shape):
        row = int(index[place[axis:axis + 2]])
        want = x[(*place[:axis], row, *place[axis + 2:])] if 0 <= row < x.shape[axis] else 0
        assert got[place] == want


def test_gather_from_nothing_by_a_scalar_and_of_bfloat16():
    same(run(ops.GATHER, np.zeros((0, 3)), np.array([0, 5]), arg=0), np.zeros((2, 3)))
    same(run(ops.GATHER, np.arange(6.0).reshape(2, 3), np.array(2), arg=1), np.array([2.0, 5.0]))
    same(run(ops.GATHER, np.array([1, 2], np.uint16), np.array([1, 9]), arg=0, types=[dtypes.bfloat16, dtypes.int64]),
         np.array([2, 0], np.uint16))
    same(run(ops.GATHER, np.arange(6.0).reshape(2, 3), np.zeros((0,), np.int32), arg=1), np.zeros((2, 0)))


@pytest.mark.parametrize("how", ["store", "add"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter(axis, how):
    rng = np.random.default_rng(10)
    base = rng.random((5, 6, 7))
    index = np.array([[4, 0], [-1, 100]])
    updates = rng.random((*base.shape[:axis], 2, 2, *base.shape[axis + 1:]))
    want = base.copy()
    for place in np.ndindex(*updates.shape):
        row = index[place[axis:axis + 2]]
        if 0 <= row < base.shape[axis]:
            at = (*place[:axis], row, *place[axis + 2:])
            want[at] = updates[place] + (want[at] if how == "add" else 0)
    given = base.copy()
    same(run(ops.SCATTER, base, index, updates, arg=(axis, how)), want)
    same(base, given)


def test_scatter_with_duplicates():
    base, index, updates = np.zeros(3), np.array([1, 1, 9, 9]), np.array([1.0, 2.0, 3.0, 4.0])
    same(run(ops.SCATTER, base, index, updates, arg=(0, "add")), np.array([0.0, 3.0, 0.0]))
    with pytest.raises(BoundsError, match="index 1 is stored twice"):
        run(ops.SCATTER, base, index, updates, arg=(0, "store"))
    big, tiny = 2.0 ** 60, 1.0
    order = np.array([big, tiny, -big])
    same(run(ops.SCATTER, np.zeros(1), np.zeros(3, int), order, arg=(0, "add")), np.array([0.0]))  # in index order
    same(run(ops.SCATTER, np.zeros(1), np.zeros(3, int), order[[0, 2, 1]], arg=(0, "add")), np.array([1.0]))


def test_scatter_of_nothing_and_into_nothing():
    same(run(ops.SCATTER, np.ones((2, 3)), np.zeros((0,), int), np.zeros((0, 3)), arg=(0, "store")), np.ones((2, 3)))
    same(run(ops.SCATTER, np.zeros((0, 3)), np.array([0, 0]), np.ones((2, 3)), arg=(0, "store")), np.zeros((0, 3)))


# --- effect -----------------------------------------------------------------------------------------------------------

def test_assign_yields_the_next_version_and_leaves_the_one_before():
    n = variable("n", 0, 3)
    memory = Memory()
    first = memory(np.zeros((4, 2)))
    second = node(ops.ASSIGN, (first, memory(np.ones((1, 2)))), ((n, 1), (0, 2)))
    third = node(ops.ASSIGN, (second, memory(np.full((2, 2), 7.0))), ((0, 2), (0, 2)))
    a, b, c = memory.run(first, second, third, n=1)
    same(a, np.zeros((4, 2)))
    same(b, np.array([[0, 0], [1, 1], [0, 0], [0, 0.0]]))
    same(c, np.array([[7, 7], [7, 7], [0, 0], [0, 0.0]]))
    beyond = node(ops.ASSIGN, (first, memory(np.ones((2, 2)))), ((3, 2), (0, 2)))
    with pytest.raises(BoundsError, match="axis of size 4"):
        memory.run(beyond)


def test_copy_and_contiguous_are_the_same_elements():
    x = np.arange(6.0).reshape(2, 3)
    same(run(ops.COPY, x, arg="cuda:0"), x)
    same(run(ops.CONTIGUOUS, x), x)


def test_custom_runs_the_kernels_meaning_once_for_all_outputs():
    class DivMod:
        output_shapes, output_dtypes = ((3,), (3,)), (dtypes.int32, dtypes.int32)
        calls = 0

        def meaning(self, x, y):
            self.calls += 1
            return x // y, x % y

    kernel, memory = DivMod(), Memory()
    inputs = memory(np.array([7, 8, 9], np.int32)), memory(np.array([2, 3, 4], np.int32))
    quotient, rest = memory.run(*(node(ops.CUSTOM, inputs, (kernel, i)) for i in range(2)))
    assert quotient.tolist() == [3, 2, 2] and rest.tolist() == [1, 2, 1] and kernel.calls == 1


# --- graphs -----------------------------------------------------------------------------------------------------------

def test_deep_and_shared_graphs():
    memory = Memory()
    chain = doubled = memory(np.array(1.0))
    one = const(1.0, dtypes.float64)
    for _ in range(100_000):
        chain = node(ops.ADD, (chain, one))
    for _ in range(200):
        doubled = node(ops.ADD, (doubled, doubled))
    got_chain, got_doubled = memory.run(chain, doubled)
    assert got_chain == 100_001 and got_doubled == 2.0 ** 200


def test_a_buffer_of_the_wrong_size_raises():
    memory = Memory()
    x = memory(np.zeros(3))
    memory.arrays[x.arg] = np.zeros(4)
    with pytest.raises(BoundsError, match="4 elements"):
        memory.run(x)
