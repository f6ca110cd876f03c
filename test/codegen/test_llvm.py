"""Every primitive in LLVM code against its NumPy meaning, on values where implementations differ."""
import numpy as np
import pytest
from cpu_kernels import LEVELS, as_numbers, check, each_level, run

from minivt import dtypes, ops
from minivt.codegen.tile import Param, TileProgram, block, load, store
from minivt.graph import node
from minivt.symbolic import add, axis, mul

FLOATS = [d for d in dtypes.ALL if d.is_float]
INTEGERS = [d for d in dtypes.ALL if d.is_int]
SIZE = 83  # not a multiple of any vector


def special(dtype, seed):
    """Values at the edges of a dtype, then random ones, in storage form."""
    rng = np.random.default_rng(seed)
    if dtype is dtypes.bool_:
        return rng.integers(0, 2, SIZE).astype(bool)
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        edges = [0, 1, 2, 7, 8, 31, 32, 63, 64, info.max, info.min, info.max - 1, info.min + 1]
        edges += [] if dtype.kind == "u" else [-1, -2, -7, -8]
        values = np.array(edges, dtype.numpy)
        small = rng.integers(0, 70, SIZE) if dtype.kind == "u" else rng.integers(-70, 70, SIZE)
        wide = rng.integers(info.min, info.max, SIZE, dtype.numpy, endpoint=True)
        rest = np.where(rng.random(SIZE) < 0.5, small.astype(dtype.numpy), wide)
        return rng.permutation(np.concatenate((values, rest))[:SIZE])
    if dtype is dtypes.bfloat16 or dtype is dtypes.float16:
        bits = np.concatenate((rng.integers(0, 1 << 16, SIZE - 6).astype(np.uint16),
                               np.array([0, 0x8000, 1, 0x7C00, 0x7F80, 0xFF80], np.uint16)))
        return bits.view(dtype.storage)
    info = np.finfo(dtype.numpy)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, info.tiny / 8, info.smallest_subnormal,
             1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 127.5, 128.0, 255.7, -129.3, 3e9, -3e9, 1e19, -1e19,
             65519.0, 65520.0, 6e-8]
    scale = np.exp(rng.normal(0, 4, SIZE)) * rng.choice([-1, 1], SIZE)
    return rng.permutation(np.concatenate((np.array(edges), scale))[:SIZE].astype(dtype.numpy))


def points(dtype, operations, inputs):
    """A program that stores each operation of the loaded inputs one after another."""
    params = [Param(i, d, SIZE) for i, d in enumerate(inputs)]
    x = axis("x", SIZE, "tile")
    values = [make(*(load(p, x) for p in params)) for make in operations]
    out = Param(len(params), dtype, SIZE * len(values), True)
    stores = [store(out, (x,), add(x, n * SIZE), value) for n, value in enumerate(values)]
    return TileProgram("points", (*params, out), (), block(*stores)), np.zeros(SIZE * len(values), dtype.storage)


def of(op):
    return lambda *args: node(op, args)


@each_level
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_arithmetic(level, dtype):
    table = [of(op) for op in (ops.ADD, ops.MUL, ops.DIV, ops.MAXIMUM)]
    table += [lambda x, y, op=op: node(op, (x,)) for op in (ops.NEG, ops.SQRT, ops.TRUNC)]
    table += [lambda x, y: node(ops.WHERE, (node(ops.LT, (x, y)), y, x)),
              lambda x, y: node(ops.WHERE, (node(ops.NE, (x, y)), y, node(ops.ADD, (x, x))))]
    program, out = points(dtype, table, (dtype, dtype))
    check(program, [special(dtype, 1), special(dtype, 2), out], level=level)


@each_level
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic(level, dtype):
    table = [of(op) for op in (ops.ADD, ops.MUL, ops.IDIV, ops.MOD, ops.MAXIMUM, ops.AND, ops.OR, ops.XOR, ops.SHL,
                               ops.SHR)]
    table += [lambda x, y: node(ops.NEG, (x,)), lambda x, y: node(ops.WHERE, (node(ops.LT, (x, y)), x, y)),
              lambda x, y: node(ops.IDIV, (x, node(ops.CONST, (), 7, dtype))),
              lambda x, y: node(ops.MOD, (x, node(ops.CONST, (), 8, dtype)))]
    program, out = points(dtype, table, (dtype, dtype))
    check(program, [special(dtype, 3), special(dtype, 4), out], level=level)


@each_level
def test_bool_arithmetic(level):
    table = [of(op) for op in (ops.ADD, ops.MUL, ops.MAXIMUM, ops.AND, ops.OR, ops.XOR, ops.LT, ops.NE)]
    program, out = points(dtypes.bool_, table, (dtypes.bool_, dtypes.bool_))
    check(program, [special(dtypes.bool_, 5), special(dtypes.bool_, 6), out], level=level)


@each_level
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_casts_to(level, dtype):
    """From every dtype; every float16 from its bits."""
    params = [Param(i, d, SIZE) for i, d in enumerate(dtypes.ALL)]
    x = axis("x", SIZE, "tile")
    out = Param(len(params), dtype, SIZE * len(params), True)
    stores = [store(out, (x,), add(x, n * SIZE), node(ops.CAST, (load(p, x),), dtype)) for n, p in enumerate(params)]
    program = TileProgram("casts", (*params, out), (), block(*stores))
    arrays = [special(p.dtype, 7) for p in params] + [np.zeros(SIZE * len(params), dtype.storage)]
    check(program, arrays, level=level)


@each_level
@pytest.mark.parametrize("half", (dtypes.float16, dtypes.bfloat16), ids=str)
def test_every_half_widens_and_rounds_back(level, half):
    source, wide, back = (Param(0, half, 65536), Param(1, dtypes.float32, 65536, True), Param(2, half, 65536, True))
    b, x = axis("b", 64, "grid"), axis("x", 1024, "tile")
    at = add(mul(b, 1024), x)
    value = node(ops.CAST, (load(source, at),), dtypes.float32)
    program = TileProgram("halves", (source, wide, back), (b,), block(
        store(wide, (x,), at, value), store(back, (x,), at, node(ops.CAST, (value,), half))))
    bits = np.arange(65536, dtype=np.uint16).view(half.storage)
    check(program, [bits, np.zeros(65536, np.float32), np.zeros(65536, half.storage)], level=level)


@each_level
def test_bitcast(level):
    table = [lambda x: node(ops.BITCAST, (node(ops.ADD, (x, x)),), dtypes.int32)]
    program, out = points(dtypes.int32, table, (dtypes.float32,))
    values = np.where(np.isnan(special(dtypes.float32, 8)), 1, special(dtypes.float32, 8)).astype(np.float32)
    check(program, [values, out], level=level)


def ulps(have, want):
    """How many representable numbers lie between; equal specials count 0."""
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    with np.errstate(all="ignore"):
        apart = np.abs(have - want) / np.spacing(np.abs(np.where(np.isfinite(want), want, 1)).astype(have.dtype))
    return np.where(same, 0, np.where(np.isfinite(apart), apart, np.inf))


RANGES = {ops.EXP2: (-1100, 1100), ops.LOG2: None, ops.SIN: None}


@each_level
@pytest.mark.parametrize("dtype", (dtypes.float32, dtypes.float64), ids=str)
@pytest.mark.parametrize("op", RANGES, ids=str)
def test_transcendentals(level, op, dtype):
    n = 1 << 14
    rng = np.random.default_rng(9)
    some = np.exp(rng.normal(0, 12 if op is ops.LOG2 else 3, n)) * rng.choice([-1, 1], n)
    some[:2000] = 1 + rng.normal(0, 1e-2, 2000)
    if op is ops.EXP2:
        some[2000:6000] = rng.uniform(*((-160, 130) if dtype is dtypes.float32 else RANGES[op]), 4000)
    if op is ops.SIN:
        some[2000:4000] *= 1e9
    x = np.concatenate((special(dtype, 10), some.astype(dtype.numpy)))[:n]
    source, out = Param(0, dtype, n), Param(1, dtype, n, True)
    a = axis("x", n, "tile")
    program = TileProgram("f", (source, out), (), store(out, (a,), a, node(op, (load(source, a),))))
    have = np.zeros(n, dtype.numpy)
    run(program, [x, have], level=level)
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        want = {ops.EXP2: np.exp2, ops.LOG2: np.log2, ops.SIN: np.sin}[op](wide).astype(dtype.numpy)
    assert ulps(have, want).max() <= {ops.EXP2: 2, ops.LOG2: 3, ops.SIN: 2}[op]
    zero = x == 0
    if op is ops.SIN:
        assert np.array_equal(np.signbit(have[zero]), np.signbit(x[zero]))


def test_special_inputs_are_special():
    assert LEVELS and np.isnan(as_numbers(special(dtypes.float32, 1), dtypes.float32)).any()
