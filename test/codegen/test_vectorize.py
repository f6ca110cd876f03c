"""CPU lowering of tile programs against the interpreter: random statements, masks, loops, contractions, attention."""
import random
import re

import numpy as np
import pytest
from cpu_kernels import TARGETS, check, each_level, run

from minivt import dtypes, ops
from minivt.codegen.tile import Param, Tile, TileProgram, block, load, loop, read, set_tile, store
from minivt.codegen.vectorize import lower_cpu
from minivt.graph import const, node
from minivt.symbolic import TRUE, add, as_index, axis, both, idiv, le, lt, mod, mul, sub, variable

F32 = dtypes.float32
SIZES = (1, 2, 3, 5, 8, 13, 16, 17, 33, 40, 67)


def data(rng, dtype, size):
    if dtype is dtypes.bool_:
        return rng.integers(0, 2, size).astype(bool)
    if dtype.is_int:
        return rng.integers(0, 100, size).astype(dtype.numpy)
    values = rng.normal(0, 1, size)
    return dtypes.float_to_bfloat16(values) if dtype is dtypes.bfloat16 else values.astype(dtype.numpy)


def cast(value, dtype):
    return value if value.dtype is dtype else node(ops.CAST, (value,), dtype)


class Draw:
    """Random pieces of a tile program; every array has room for any index that they make."""
    ROOM = 1 << 16

    def __init__(self, seed):
        self.random, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.params, self.arrays = [], []

    def axes(self, count, name):
        allowed = SIZES[:8] if count == 2 else SIZES[:6] if count > 2 else SIZES
        sizes = [self.random.choice(allowed) for _ in range(count)]
        return tuple(axis((name, i), s, "tile") for i, s in enumerate(sizes))

    def index(self, axes):
        """Row-major over a random order, with strides, reversals, divisions or a missing axis now and then."""
        total, stride = as_index(self.random.randrange(3)), self.random.choice((1, 1, 1, 2))
        for a in self.random.sample(axes, len(axes)):
            kind, size, part = self.random.randrange(9), a.arg[1], a
            if kind == 0:
                continue
            if kind == 1:
                part = sub(size - 1, a)
            elif kind == 2:
                part = mod(add(a, 3), 4)
            elif kind == 3:
                part = idiv(a, 3)
            total, stride = add(total, mul(part, stride)), stride * size
        return total

    def load(self, axes, dtype=None):
        dtype = dtype or self.random.choice(dtypes.ALL)
        param = Param(len(self.params), dtype, self.ROOM)
        self.params.append(param)
        self.arrays.append(data(self.rng, dtype, self.ROOM))
        index, valid = self.index(axes), TRUE
        for a in axes:
            if self.random.random() < 0.2:
                valid = both(valid, lt(add(a, self.random.randrange(3)), self.random.randrange(1, a.arg[1] + 2)))
        if valid is not TRUE:  # what is masked out may lie far outside
            index = node(ops.WHERE, (valid, index, as_index(1 << 50))) if self.random.random() < 0.3 else index
        return load(param, index, valid)

    def value(self, axes, depth=3):
        """A float32 expression whose rounding does not depend on the order of operations."""
        if depth == 0 or self.random.random() < 0.2:
            return cast(self.load(axes), F32)
        x, y = self.value(axes, depth - 1), self.value(axes, depth - 1)
        kind = self.random.randrange(6)
        if kind == 0:
            a = self.random.choice(axes) if axes else as_index(3)
            condition = lt(mod(a, 7), self.random.randrange(8))
            return node(ops.WHERE, (condition, x, y))
        if kind == 1:
            return node(ops.MAXIMUM, (x, node(ops.NEG, (y,))))
        if kind == 2 and axes:
            return node(ops.MUL, (x, cast(self.random.choice(axes), F32)))
        return node(self.random.choice((ops.ADD, ops.MUL)), (x, y))

    def output(self, axes, value):
        """A STORE of the value to a dense array in a random order of the axes, masked now and then."""
        dtype = value.dtype
        total, stride = as_index(0), 1
        for a in self.random.sample(axes, len(axes)):
            total, stride = add(total, mul(a, stride)), stride * a.arg[1]
        valid = TRUE
        if axes and self.random.random() < 0.4:
            valid = lt(self.random.choice(axes), self.random.randrange(1, 20))
        param = Param(len(self.params), dtype, stride, True)
        self.params.append(param)
        self.arrays.append(data(self.rng, dtype, stride))
        return store(param, axes, total, value, valid)

    def program(self, *body):
        return TileProgram("drawn", tuple(self.params), (), block(*body)), self.arrays


@each_level
@pytest.mark.parametrize("seed", range(12))
def test_random_maps(level, seed):
    draw = Draw(seed)
    axes = draw.axes(draw.random.randrange(4), "x")
    first = draw.value(axes)
    tile = Tile("t", tuple(draw.random.sample(axes, len(axes))), F32)
    second = node(ops.ADD, (read(tile), draw.value(axes)))
    third = cast(node(ops.MUL, (read(tile), const(3.0, F32))), draw.random.choice(dtypes.ALL))
    check(*draw.program(set_tile(tile, first), draw.output(axes, second), draw.output(axes, third)), level=level)


@each_level
@pytest.mark.parametrize("seed", range(12))
def test_random_reductions(level, seed):
    draw = Draw(seed)
    kept, summed = draw.axes(draw.random.randrange(3), "x"), draw.axes(draw.random.randrange(1, 3), "r")
    op = draw.random.choice((ops.SUM, ops.MAX))
    value = draw.value(kept + summed, 2)
    total = Tile("total", kept, F32)
    running = set_tile(total, value, op, summed, accumulate=True)
    spread = node(ops.ADD, (read(total), draw.value(kept + summed, 1)))
    program, arrays = draw.program(
        set_tile(total, const(0.5, F32)), loop(axis("n", 2, "loop"), 0, 2, running),
        draw.output(kept, read(total)), draw.output(kept + summed, spread))
    check(program, arrays, level=level, rtol=1e-4, atol=1e-2)


@each_level
@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d is not dtypes.float64], ids=str)
def test_reductions_of_every_dtype(level, dtype):
    """Sums wrap, the largest starts from the dtype's lowest value, 16-bit floats sum in float32."""
    r, c = axis("r", 5, "tile"), axis("c", 70, "tile")
    source, most = Param(0, dtype, 350), Param(1, dtype, 5, True)
    x = load(source, add(mul(r, 70), c))
    largest = Tile("largest", (r,), dtype)
    statements = [set_tile(largest, x, ops.MAX, (c,)), store(most, (r,), r, read(largest))]
    params, arrays = [source, most], [data(np.random.default_rng(1), dtype, 350), np.zeros(5, dtype.storage)]
    if dtype is not dtypes.bool_:
        total, sums = Tile("total", (c,), dtype), Param(2, dtype, 70, True)
        statements += [set_tile(total, x, ops.SUM, (r,)), store(sums, (c,), c, read(total))]
        params, arrays = params + [sums], arrays + [np.zeros(70, dtype.storage)]
    check(TileProgram("reduce", tuple(params), (), block(*statements)), arrays, level=level, rtol=1e-2, atol=1e-2)


def operand(param, rows, columns, transposed, limit):
    """An operand of a contraction as float32: row-major or transposed, zero beyond `limit`."""
    (r, r_size), (c, c_size) = rows, columns
    at = add(mul(c, r_size), r) if transposed else add(mul(r, c_size), c)
    return cast(load(param, at, both(lt(r, limit[0]), lt(c, limit[1]))), F32)


@each_level
@pytest.mark.parametrize("sizes", ((64, 64, 64), (37, 45, 29), (5, 70, 9), (70, 4, 40), (16, 33, 100)))
@pytest.mark.parametrize("transposed", ((0, 0), (1, 0), (0, 1), (1, 1)))
def test_contractions(level, sizes, transposed):
    m, n, k = sizes
    for dtype in (F32, dtypes.bfloat16) if sizes[0] == 37 else (F32,):
        tm, tn, tk = min(m, 32), min(n, 32), min(k, 16)
        a, b, c = Param(0, dtype, m * k), Param(1, dtype, k * n), Param(2, dtype, m * n, True)
        ib, jb, kb = axis("ib", -(-m // tm), "grid"), axis("jb", -(-n // tn), "grid"), axis("kb", -(-k // tk), "loop")
        it, jt, kt = axis("i", tm, "tile"), axis("j", tn, "tile"), axis("k", tk, "tile")
        i, j, l = add(mul(ib, tm), it), add(mul(jb, tn), jt), add(mul(kb, tk), kt)
        acc = Tile("acc", (it, jt), F32)
        value = node(ops.MUL, (operand(a, (i, m), (l, k), transposed[0], (m, k)),
                               operand(b, (l, k), (j, n), transposed[1], (k, n))))
        program = TileProgram("mm", (a, b, c), (ib, jb), block(
            set_tile(acc, const(0, F32)), loop(kb, 0, -(-k // tk), set_tile(acc, value, ops.SUM, (kt,), True)),
            store(c, (it, jt), add(mul(i, n), j), cast(read(acc), dtype), both(lt(i, m), lt(j, n)))))
        rng = np.random.default_rng(0)
        arrays = [data(rng, dtype, m * k), data(rng, dtype, k * n), data(rng, dtype, m * n)]
        check(program, arrays, level=level, rtol=1e-5 if dtype is F32 else 1e-2, atol=1e-4 if dtype is F32 else 1e-2)


def attention(heads, length, size, ti, tj, dtype, group, window=None):
    """Causal attention in blocks with grouped keys, as tiling makes it; `length` is a VARIABLE or an int."""
    room = 128
    q, k, v, out = (Param(n, dtype, heads * room * size, n == 3) for n in range(4))
    h, ib = axis("h", heads, "grid"), axis("ib", 128 // ti, "grid")
    i, j, e, d = (axis(*a, "tile") for a in (("i", ti), ("j", tj), ("e", size), ("d", size)))
    jb = axis("jb", 128 // tj, "loop")
    row, key, kv = add(mul(ib, ti), i), add(mul(jb, tj), j), idiv(h, group)
    at = lambda head, position, column: add(mul(head, room * size), mul(position, size), column)
    m, l, o = Tile("m", (i,), F32), Tile("l", (i,), F32), Tile("o", (i, d), F32)
    s, p = Tile("s", (i, j), F32), Tile("p", (i, j), F32)
    step, new, ratio = Tile("step", (i,), F32), Tile("new", (i,), F32), Tile("ratio", (i,), F32)
    lowest, zero = const(float("-inf"), F32), const(0.0, F32)
    inside = both(le(key, row), lt(key, length))
    if window:
        inside = both(inside, lt(row, add(key, window)))
    x = node(ops.WHERE, (inside, node(ops.MUL, (read(s), const(0.3, F32))), lowest))
    base = node(ops.WHERE, (node(ops.NE, (read(new), lowest)), read(new), zero))
    minus = node(ops.NEG, (base,))
    moved = node(ops.WHERE, (node(ops.NE, (read(m), lowest)),
                             node(ops.EXP2, (node(ops.ADD, (read(m), minus)),)), zero))
    body = [
        set_tile(s, node(ops.MUL, (cast(load(q, at(h, row, e), lt(row, length)), F32),
                                   cast(load(k, at(kv, key, e), lt(key, length)), F32))), ops.SUM, (e,)),
        set_tile(step, x, ops.MAX, (j,)),
        set_tile(new, node(ops.MAXIMUM, (read(m), read(step)))),
        set_tile(ratio, moved),
        set_tile(p, node(ops.EXP2, (node(ops.ADD, (x, minus)),))),
        set_tile(l, node(ops.MUL, (read(l), read(ratio)))),
        set_tile(l, read(p), ops.SUM, (j,), True),
        set_tile(o, node(ops.MUL, (read(o), read(ratio)))),
        set_tile(o, node(ops.MUL, (cast(cast(read(p), dtype), F32),
                                   cast(load(v, at(kv, key, d), lt(key, length)), F32))), ops.SUM, (j,), True),
        set_tile(m, read(new)),
    ]
    interior = idiv(mul(ib, ti), tj)  # two loops over one counter, as where one of them needs no mask
    return TileProgram("attention", (q, k, v, out), (h, ib), block(
        set_tile(m, lowest), set_tile(l, zero), set_tile(o, zero),
        loop(jb, 0, interior, *body), loop(jb, interior, idiv(add(mul(ib, ti), ti + tj - 1), tj), *body),
        store(out, (i, d), at(h, row, d), cast(node(ops.DIV, (read(o), read(l))), dtype), lt(row, length))))


@each_level
@pytest.mark.parametrize("dtype", (F32, dtypes.bfloat16), ids=str)
@pytest.mark.parametrize("shape", ((16, 16, 16), (32, 16, 20), (64, 32, 24), (8, 64, 8)))
def test_attention(level, dtype, shape):
    ti, tj, size = shape
    t = variable("t", 1, 128)
    program = attention(4, t, size, ti, tj, dtype, group=2, window=40)
    rng = np.random.default_rng(0)
    arrays = [data(rng, dtype, 4 * 128 * size) for _ in range(4)]
    tolerance = 1e-5 if dtype is F32 else 2e-2
    for length in (1, 77, 128):
        check(program, arrays, {"t": length}, level=level, rtol=tolerance, atol=tolerance)


def packed_weights(rows, columns):
    """SET y[r] = sum over c of w[r, c] * x[c] with w as 4-bit blocks of 32: two float16 and 16 bytes each."""
    blocks = columns // 32
    w, scales, x = Param(0, dtypes.uint8, rows * blocks * 16), Param(1, dtypes.float16, rows * blocks * 2), \
        Param(2, F32, columns)
    y = Param(3, F32, rows, True)
    rb, r, c = axis("rb", rows // 4, "grid"), axis("r", 4, "tile"), axis("c", columns, "tile")
    row = add(mul(rb, 4), r)
    number = add(mul(row, blocks), idiv(c, 32))
    byte = load(w, add(mul(number, 16), mod(c, 16)))
    low = node(ops.AND, (byte, const(15, dtypes.uint8)))
    high = node(ops.SHR, (byte, const(4, dtypes.uint8)))
    four = cast(node(ops.WHERE, (lt(mod(c, 32), 16), low, high)), F32)
    scale, least = (cast(load(scales, add(mul(number, 2), n)), F32) for n in range(2))
    total = Tile("y", (r,), F32)
    weight = node(ops.ADD, (node(ops.MUL, (four, scale)), least))
    return TileProgram("gemv", (w, scales, x, y), (rb,), block(
        set_tile(total, node(ops.MUL, (weight, load(x, c))), ops.SUM, (c,)), store(y, (r,), row, read(total))))


@each_level
def test_packed_weights(level):
    rng = np.random.default_rng(0)
    program = packed_weights(8, 256)
    arrays = [rng.integers(0, 256, 8 * 128).astype(np.uint8), data(rng, dtypes.float16, 128), data(rng, F32, 256),
              np.zeros(8, np.float32)]
    check(program, arrays, level=level, rtol=1e-4, atol=1e-3)


def test_packed_weights_are_read_as_vectors():
    """A body covers whole blocks, so that their divisions vanish and neighbouring bytes are one load."""
    text = lower_cpu(packed_weights(8, 256), TARGETS["avx512"]).ir_text
    assert "load <16 x i8>" in text and "gather" not in text


def test_no_tasks_touch_no_memory():
    size = variable("n", 0, 100)
    source, out = Param(0, F32, size), Param(1, F32, size, True)
    x = axis("x", size, "grid")
    program = TileProgram("none", (source, out), (x,), store(out, (), x, load(source, x)))
    nothing = np.zeros(0, np.float32)
    assert run(program, [nothing, nothing], {"n": 0}) == 0
    values = np.arange(7, dtype=np.float32)
    result = np.zeros(7, np.float32)
    assert run(program, [values, result], {"n": 7}) == 7 and np.array_equal(result, values)


def test_neon_text_compiles():
    """Code for another processor passes LLVM's verifier; the machine code is not run."""
    from llvmlite import binding
    text = lower_cpu(attention(2, 64, 16, 16, 16, dtypes.float16, 1), TARGETS["neon"]).ir_text
    module = binding.parse_assembly(text, binding.create_context())
    module.verify()


def test_statements_over_the_same_points_share_a_nest():
    """A row's maximum, its exponentials and their sum: two passes, not three."""
    from minivt.codegen.fusion import group_statements
    from minivt.codegen.lane_choice import choose_lanes, make_task
    r, c = axis("r", 4, "tile"), axis("c", 64, "tile")
    x = load(Param(0, F32, 256), add(mul(r, 64), c))
    m, p, total = Tile("m", (r,), F32), Tile("p", (r, c), F32), Tile("l", (r,), F32)
    statements = [set_tile(m, x, ops.MAX, (c,)), set_tile(p, node(ops.EXP2, (node(ops.ADD, (x, read(m))),))),
                  set_tile(total, read(p), ops.SUM, (c,)), set_tile(m, node(ops.NEG, (read(m),)))]
    tasks = [make_task(s, ()) for s in statements]
    chosen, _ = choose_lanes(tasks, 16)
    groups = [[statements.index(t.statement) for t in g] for g in group_statements(tasks, chosen)]
    assert groups == [[0], [1, 2], [3]]


def test_an_operand_that_a_loop_does_not_change_is_packed_before_it():
    text = lower_cpu(attention(4, 128, 64, 64, 64, F32, 2), TARGETS["avx512"]).ir_text
    number = re.search(r"%t(\d+) = icmp slt i64 %n\d+, %v", text)[1]  # the first loop whose end is computed
    assert text.index("shufflevector <16 x float>") < text.index(f"body{number}:")
