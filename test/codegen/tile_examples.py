"""Tile programs built by hand, as scheduling would emit them, for tests of what comes below it."""
from minivt import dtypes, ops
from minivt.codegen.tile import Param, Tile, TileProgram, block, load, loop, read, set_tile, store
from minivt.graph import const, node
from minivt.symbolic import (TRUE, add, as_index, axis, axis_size, both, ceil_div, idiv, le, lt, maximum, minimum, mul,
                             sub)

F32, BF16 = dtypes.float32, dtypes.bfloat16
INF = float("inf")


def cast(value, dtype):
    return node(ops.CAST, (value,), dtype)


def op(which, *src):
    return node(which, src)


def f32(value):
    return const(value, F32)


def below(index, limit):
    """The mask of a position; true when the bounds prove it."""
    return lt(index, limit)


def matmul(M, N, K, tiles=(128, 256, 64), b_layout="kn", dtype=BF16, epilogue=None, name="matmul"):
    """C[M, N] = A[M, K] B, with B as [K, N] or [N, K]."""
    TM, TN, TK = tiles
    a, b = Param(0, dtype, mul(M, K)), Param(1, dtype, mul(K, N))
    c = Param(2, dtype, mul(M, N), True)
    ib, jb = axis("ib", ceil_div(M, TM)), axis("jb", ceil_div(N, TN))
    kb = axis("kb", ceil_div(K, TK), "loop")
    i, j, k = axis("i", TM, "tile"), axis("j", TN, "tile"), axis("k", TK, "tile")
    row, column, inner = add(mul(ib, TM), i), add(mul(jb, TN), j), add(mul(kb, TK), k)
    acc = Tile("acc", (i, j), F32)
    av = load(a, add(mul(row, K), inner), both(below(row, M), below(inner, K)))
    index = add(mul(inner, N), column) if b_layout == "kn" else add(mul(column, K), inner)
    bv = load(b, index, both(below(inner, K), below(column, N)))
    wide = (lambda v: v) if dtype is F32 else (lambda v: cast(v, F32))
    out = read(acc) if epilogue is None else epilogue(read(acc), row, column)
    return TileProgram(name, (a, b, c), (ib, jb), block(
        set_tile(acc, f32(0)),
        loop(kb, 0, axis_size(kb), set_tile(acc, op(ops.MUL, wide(av), wide(bv)), ops.SUM, (k,), True)),
        store(c, (i, j), add(mul(row, N), column), out if dtype is F32 else cast(out, dtype),
              both(below(row, M), below(column, N)))))


def attention(H, HKV, S, D=128, tiles=(128, 128), causal=True, dtype=BF16, score=lambda s, q, k: s, window=None,
              name="attention"):
    """out[h, t, d] = softmax(mask(score(q k / sqrt(D)))) v in base 2, one block for TM queries of a head."""
    TM, TJ = tiles
    q, k, v = (Param(n, dtype, mul(mul(h, S), D)) for n, h in ((0, H), (1, HKV), (2, HKV)))
    out = Param(3, dtype, mul(mul(H, S), D), True)
    h, ib = axis("h", H), axis("ib", ceil_div(S, TM))
    i, j, e, d = axis("i", TM, "tile"), axis("j", TJ, "tile"), axis("e", D, "tile"), axis("d", D, "tile")
    wide = (lambda x: x) if dtype is F32 else (lambda x: cast(x, F32))
    narrow = (lambda x: x) if dtype is F32 else (lambda x: cast(x, dtype))
    kv_head = idiv(h, H // HKV)
    row = add(mul(ib, TM), i)
    m, l, o = Tile("m", (i,), F32), Tile("l", (i,), F32), Tile("o", (i, d), F32)
    qv = load(q, add(mul(add(mul(h, S), row), D), e), below(row, S))

    def body(jb, masked):
        key = add(mul(jb, TJ), j)
        s, x, p = (Tile(n, (i, j), F32) for n in ("s", "x", "p"))
        n, a = Tile("n", (i,), F32), Tile("a", (i,), F32)
        inside = below(key, S)
        at_key = add(mul(add(mul(kv_head, S), key), D), 0)
        kv, vv = load(k, add(at_key, e), inside), load(v, add(at_key, d), inside)
        scaled = score(op(ops.MUL, read(s), f32(D ** -0.5 * 1.4426950408889634)), row, key)
        visible = both(inside, both(le(key, row) if causal else TRUE, lt(sub(row, window), key) if window else TRUE))
        if masked:
            scaled = node(ops.WHERE, (visible, scaled, f32(-INF)))
        lowest = op(ops.NE, read(n), f32(-INF))
        base = node(ops.WHERE, (lowest, read(n), f32(0)))
        return (
            set_tile(s, op(ops.MUL, wide(qv), wide(kv)), ops.SUM, (e,)),
            set_tile(x, scaled),
            set_tile(n, read(x), ops.MAX, (j,)),
            set_tile(n, op(ops.MAXIMUM, read(n), read(m))),
            set_tile(a, op(ops.EXP2, op(ops.ADD, read(m), op(ops.NEG, base)))),
            set_tile(p, op(ops.EXP2, op(ops.ADD, read(x), op(ops.NEG, base)))),
            set_tile(l, op(ops.MUL, read(l), read(a))),
            set_tile(l, read(p), ops.SUM, (j,), True),
            set_tile(o, op(ops.MUL, read(o), read(a))),
            set_tile(o, op(ops.MUL, wide(narrow(read(p))), wide(vv)), ops.SUM, (j,), True),
            set_tile(m, read(n)))

    stop = ceil_div(minimum(S, mul(add(ib, 1), TM)), TJ) if causal else ceil_div(S, TJ)
    interior = minimum(idiv(mul(ib, TM), TJ), S // TJ) if causal else as_index(S // TJ)
    start = maximum(idiv(sub(mul(ib, TM), window), TJ), 0) if window else as_index(0)
    if window:
        interior = start
    first, second = axis("ja", ceil_div(S, TJ), "loop"), axis("jb", ceil_div(S, TJ), "loop")
    return TileProgram(name, (q, k, v, out), (h, ib), block(
        set_tile(m, f32(-INF)), set_tile(l, f32(0)), set_tile(o, f32(0)),
        loop(first, start, interior, *body(first, False)),
        loop(second, interior, stop, *body(second, True)),
        store(out, (i, d), add(mul(add(mul(h, S), row), D), d), narrow(op(ops.DIV, read(o), read(l))), below(row, S))))


def elementwise(count, tile=1024, name="elementwise"):
    """y = max(x * 2 + 1, 0), count elements of float32."""
    x, y = Param(0, F32, count), Param(1, F32, count, True)
    b, t = axis("b", ceil_div(count, tile)), axis("t", tile, "tile")
    at = add(mul(b, tile), t)
    value = op(ops.MAXIMUM, op(ops.ADD, op(ops.MUL, load(x, at, below(at, count)), f32(2)), f32(1)), f32(0))
    return TileProgram(name, (x, y), (b,), block(store(y, (t,), at, value, below(at, count))))


def softmax(rows, columns, row_tile=4, dtype=BF16, name="softmax"):
    """out[r, c] = softmax over c, float32; a block holds row_tile whole rows."""
    x, y = Param(0, dtype, rows * columns), Param(1, F32, rows * columns, True)
    rb, r = axis("rb", ceil_div(rows, row_tile)), axis("r", row_tile, "tile")
    c = axis("c", columns, "tile")
    row = add(mul(rb, row_tile), r)
    index, inside = add(mul(row, columns), c), below(row, rows)
    value = cast(load(x, index, inside), F32) if dtype is not F32 else load(x, index, inside)
    m, e, l = Tile("m", (r,), F32), Tile("e", (r, c), F32), Tile("l", (r,), F32)
    shifted = op(ops.MUL, op(ops.ADD, value, op(ops.NEG, read(m))), f32(1.4426950408889634))
    return TileProgram(name, (x, y), (rb,), block(
        set_tile(m, value, ops.MAX, (c,)),
        set_tile(e, op(ops.EXP2, shifted)),
        set_tile(l, read(e), ops.SUM, (c,)),
        store(y, (r, c), index, op(ops.DIV, read(e), read(l)), inside)))


def gemv(rows, columns, row_tile=8, column_tile=1024, dtype=BF16, name="gemv"):
    """y[r] = sum of w[r, c] x[c], float32 sums."""
    w, x, y = Param(0, dtype, rows * columns), Param(1, dtype, columns), Param(2, F32, rows, True)
    rb, r = axis("rb", ceil_div(rows, row_tile)), axis("r", row_tile, "tile")
    cb, c = axis("cb", ceil_div(columns, column_tile), "loop"), axis("c", column_tile, "tile")
    row, column = add(mul(rb, row_tile), r), add(mul(cb, column_tile), c)
    acc = Tile("acc", (r,), F32)
    wide = (lambda v: v) if dtype is F32 else (lambda v: cast(v, F32))
    inside = below(column, columns)
    product = op(ops.MUL, wide(load(w, add(mul(row, columns), column), both(below(row, rows), inside))),
                 wide(load(x, column, inside)))
    return TileProgram(name, (w, x, y), (rb,), block(
        set_tile(acc, f32(0)),
        loop(cb, 0, axis_size(cb), set_tile(acc, product, ops.SUM, (c,), True)),
        store(y, (r,), row, read(acc), below(row, rows))))
