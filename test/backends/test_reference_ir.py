"""The interpreter of tile programs: it computes right ones and catches each kind of wrong one."""
import numpy as np
import pytest

from minivt import dtypes, ops
from minivt.backends.reference_ir import KernelError, poison, run
from minivt.codegen.tile import Param, Tile, TileProgram, block, load, loop, read, set_tile, store
from minivt.errors import BoundsError
from minivt.graph import const, node
from minivt.symbolic import add, as_index, as_size, axis, ceil_div, le, lt, minimum, mul, variable

F32, F16, BF16, I64 = dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int64


def cast(x, dtype=F32):
    return node(ops.CAST, (x,), dtype, dtype)


def op(row, *src):
    return node(row, src)


def number(value, dtype=F32):
    return const(value, dtype)


def bfloat16(values):
    return dtypes.float_to_bfloat16(np.asarray(values, np.float32))


# --- right programs ---------------------------------------------------------------------------------------------------

def matmul(M, N, K, TM, TN, TK, masked=True):
    """C = A @ B in bfloat16 with float32 sums; masks where a size is no multiple of its tile."""
    ib, jb, kb = axis("ib", ceil_div(M, TM)), axis("jb", ceil_div(N, TN)), axis("kb", ceil_div(K, TK), "loop")
    i, j, k = axis("i", TM, "tile"), axis("j", TN, "tile"), axis("k", TK, "tile")
    a, b, c = Param(0, BF16, as_size(mul(M, K))), Param(1, BF16, K * N), Param(2, BF16, as_size(mul(M, N)), True)
    row, column, depth = add(mul(ib, TM), i), add(mul(jb, TN), j), add(mul(kb, TK), k)
    in_a = op(ops.AND, lt(row, M), lt(depth, K)) if masked else lt(0, 1)
    in_b = op(ops.AND, lt(depth, K), lt(column, N)) if masked else lt(0, 1)
    in_c = op(ops.AND, lt(row, M), lt(column, N)) if masked else lt(0, 1)
    acc = Tile("acc", (i, j), F32)
    product = op(ops.MUL, cast(load(a, add(mul(row, K), depth), in_a)), cast(load(b, add(mul(depth, N), column), in_b)))
    return TileProgram("matmul", (a, b, c), (ib, jb), block(
        set_tile(acc, number(0.0)),
        loop(kb, 0, ceil_div(K, TK), set_tile(acc, product, ops.SUM, (k,), accumulate=True)),
        store(c, (i, j), add(mul(row, N), column), cast(read(acc), BF16), in_c)))


def run_matmul(program, M, N, K, variables, seed=0):
    rng = np.random.default_rng(1)
    a, b = bfloat16(rng.standard_normal((M, K))), bfloat16(rng.standard_normal((K, N)))
    c = poison((M, N), BF16)
    run(program, [a, b, c], variables, seed)
    got, want = dtypes.bfloat16_to_float(c), dtypes.bfloat16_to_float(a) @ dtypes.bfloat16_to_float(b)
    np.testing.assert_allclose(got, want, rtol=2 ** -7, atol=2 ** -7)


@pytest.mark.parametrize("M, N, K", [(128, 128, 64), (65, 33, 17), (1, 1, 1), (64, 70, 130)])
@pytest.mark.parametrize("seed", [0, 1])
def test_matmul(M, N, K, seed):
    run_matmul(matmul(M, N, K, 64, 64, 32), M, N, K, {}, seed)


def test_matmul_of_symbolic_size():
    m = variable("m", 1, 200)
    for rows in (1, 64, 130):
        run_matmul(matmul(m, 40, 24, 64, 32, 16), rows, 40, 24, {"m": rows})


def test_causal_attention_in_one_pass():
    heads, length, width, rows, columns, scale = 2, 40, 8, 16, 8, 0.5
    h, ib = axis("h", heads), axis("ib", ceil_div(length, rows))
    i, j, e, d = (axis(name, size, "tile") for name, size in zip("ijed", (rows, columns, width, width)))
    jb = axis("jb", ceil_div(length, columns), "loop")
    q, k, v = (Param(slot, F32, heads * length * width) for slot in range(3))
    out = Param(3, F32, heads * length * width, True)
    query, key = add(mul(ib, rows), i), add(mul(jb, columns), j)

    def at(position, last):
        return add(mul(add(mul(h, length), position), width), last)

    m, l, o, s, x, n, n2 = (Tile(name, axes, F32) for name, axes in (
        ("m", (i,)), ("l", (i,)), ("o", (i, d)), ("s", (i, j)), ("x", (i, j)), ("n", (i,)), ("n2", (i,))))
    low, log2e = number(-np.inf), number(scale * np.log2(np.e))
    minus = lambda a, b: op(ops.ADD, a, op(ops.NEG, b))
    base = op(ops.WHERE, op(ops.LT, low, read(n2)), read(n2), number(0.0))
    ratio = op(ops.EXP2, minus(read(m), base))
    weight = op(ops.EXP2, minus(read(x), base))
    product = op(ops.MUL, load(q, at(query, e), lt(query, length)), load(k, at(key, e), lt(key, length)))
    stop = minimum(ceil_div(length, columns), ceil_div(mul(add(ib, 1), rows), columns))
    program = TileProgram("attention", (q, k, v, out), (h, ib), block(
        set_tile(m, low), set_tile(l, number(0.0)), set_tile(o, number(0.0)),
        loop(jb, 0, stop,
             set_tile(s, product, ops.SUM, (e,)),
             set_tile(x, op(ops.WHERE, op(ops.AND, le(key, query), lt(key, length)), op(ops.MUL, read(s), log2e), low)),
             set_tile(n, read(x), ops.MAX, (j,)),
             set_tile(n2, op(ops.MAXIMUM, read(m), read(n))),
             set_tile(l, op(ops.MUL, read(l), ratio)),
             set_tile(l, weight, ops.SUM, (j,), accumulate=True),
             set_tile(o, op(ops.MUL, read(o), ratio)),
             set_tile(o, op(ops.MUL, weight, load(v, at(key, d), lt(key, length))), ops.SUM, (j,), accumulate=True),
             set_tile(m, read(n2))),
        store(out, (i, d), at(query, d), op(ops.DIV, read(o), read(l)), lt(query, length))))
    rng = np.random.default_rng(2)
    Q, K, V = rng.standard_normal((3, heads, length, width)).astype(np.float32)
    got = poison(Q.shape, F32)
    run(program, [Q, K, V, got], {})
    scores = np.where(np.tri(length, dtype=bool), Q @ K.transpose(0, 2, 1) * scale, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(got, weights / weights.sum(-1, keepdims=True) @ V, rtol=2e-5, atol=2e-6)


X = axis("x", 8, "tile")


def elementwise(value, params, *, index=None, valid=None, blocks=4, dtype=F32, size=32, output=None):
    """out[8 * block + x] = value(flat position), one STORE a block."""
    grid = axis("b", blocks)
    position = add(mul(grid, 8), X)
    out = output or Param(len(params), dtype, size, True)
    body = store(out, (X,), position if index is None else index(position), value(position),
                 lt(0, 1) if valid is None else valid(position))
    return TileProgram("rows", (*params, *(() if output else (out,))), (grid,), body)


def test_half_types_round_once_per_operation():
    a = Param(0, F16, 32)
    program = elementwise(lambda at: op(ops.MUL, load(a, at), load(a, at)), [a], dtype=F16)
    x, y = np.linspace(0, 300, 32).astype(np.float16), poison(32, F16)
    run(program, [x, y], {})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, x * x)


def test_values_that_are_not_valid_are_zero_and_touch_no_memory():
    a = Param(0, F32, 5)
    program = elementwise(lambda at: load(a, at, lt(at, 5)), [a])
    got = poison(32, F32)
    run(program, [np.arange(1, 6, dtype=np.float32), got], {})
    np.testing.assert_array_equal(got, [1, 2, 3, 4, 5] + [0] * 27)


def test_max_of_integers_and_an_empty_loop_keep_the_identity():
    i, k, kb = axis("i", 4, "tile"), axis("k", 8, "tile"), axis("kb", 2, "loop")
    a, out, t = Param(0, dtypes.int16, 64), Param(1, dtypes.int16, 4, True), Tile("t", (i,), dtypes.int16)
    n = variable("n", 0, 2)
    program = TileProgram("top", (a, out), (), block(
        set_tile(t, const(-7, dtypes.int16), ops.MAX, ()),
        loop(kb, 0, n, set_tile(t, load(a, add(mul(i, 16), mul(kb, 8), k)), ops.MAX, (k,), accumulate=True)),
        store(out, (i,), i, read(t))))
    x = np.random.default_rng(3).integers(-100, 100, (4, 16)).astype(np.int16)
    for count in (0, 1, 2):
        got = poison(4, dtypes.int16)
        run(program, [x, got], {"n": count})
        np.testing.assert_array_equal(got, np.maximum(x[:, :8 * count].max(1, initial=-7), -7))


def test_sums_start_from_zero_and_wrap():
    i, k = axis("i", 2, "tile"), axis("k", 5, "tile")
    a, out, t = Param(0, dtypes.int8, 10), Param(1, dtypes.int8, 2, True), Tile("t", (i,), dtypes.int8)
    program = TileProgram("total", (a, out), (), block(
        set_tile(t, load(a, add(mul(i, 5), k)), ops.SUM, (k,)), store(out, (i,), i, read(t))))
    got = poison(2, dtypes.int8)
    run(program, [np.array([100, 100, 1, 0, 0, 1, 2, 3, 4, 5], np.int8), got], {})
    assert got.tolist() == [-55, 15]


def test_a_tile_is_read_by_axis_not_by_position():
    i, j = axis("i", 2, "tile"), axis("j", 3, "tile")
    a, out, t = Param(0, F32, 6), Param(1, F32, 6, True), Tile("t", (i, j), F32)
    program = TileProgram("turn", (a, out), (), block(
        set_tile(t, load(a, add(mul(i, 3), j))), store(out, (j, i), add(mul(j, 2), i), read(t))))
    x, got = np.arange(6, dtype=np.float32).reshape(2, 3), poison((3, 2), F32)
    run(program, [x, got], {})
    np.testing.assert_array_equal(got, x.T)


def test_grid_and_loop_bounds_may_be_loaded():
    b, k, row = axis("b", 3), axis("k", 9, "loop"), axis("r", 1, "tile")
    lengths, out, t = Param(0, I64, 3), Param(1, I64, 3, True), Tile("t", (row,), I64)
    program = TileProgram("ragged", (lengths, out), (b,), block(
        set_tile(t, as_index(0)),
        loop(k, 0, load(lengths, b), set_tile(t, add(read(t), k))),
        store(out, (row,), add(b, row), read(t))))
    got = poison(3, I64)
    run(program, [np.array([0, 4, 9]), got], {})
    assert got.tolist() == [0, 6, 36]


def test_an_update_in_place_may_read_the_elements_that_it_writes():
    a, out = Param(0, F32, 32), Param(1, F32, 32, True)
    program = elementwise(lambda at: op(ops.ADD, load(a, at), number(1.0)), [a, out], output=out)
    x = np.arange(32, dtype=np.float32)
    run(program, [x, x], {})
    np.testing.assert_array_equal(x, np.arange(1, 33))


# --- wrong programs ---------------------------------------------------------------------------------------------------

def fails(program, *arrays, error=KernelError, match, seeds=range(4), **variables):
    for seed in seeds:
        with pytest.raises(error, match=f"^{program.name}: .*{match}"):
            run(program, [a.copy() for a in arrays], variables, seed)


def test_load_outside():
    a = Param(0, F32, 32)
    fails(elementwise(lambda at: load(a, add(at, 1)), [a]), np.zeros(32, np.float32), np.zeros(32, np.float32),
          error=BoundsError, match="LOAD of param 0 at 32 in block 3")
    fails(elementwise(lambda at: load(a, add(at, -1)), [a]), np.zeros(32, np.float32), np.zeros(32, np.float32),
          error=BoundsError, match="LOAD of param 0 at -1 in block 0")


def test_store_outside():
    fails(elementwise(lambda at: number(1.0), [], size=31), np.zeros(31, np.float32), error=BoundsError,
          match="STORE of param 0 at 31 in block 3")


def test_a_missing_mask_of_a_matmul():
    a, b = np.zeros((65, 32), np.uint16), np.zeros((32, 64), np.uint16)
    fails(matmul(65, 64, 32, 64, 64, 32, masked=False), a, b, np.zeros((65, 64), np.uint16), error=BoundsError,
          match="LOAD of param 0")


def test_two_blocks_store_to_one_element():
    fails(elementwise(lambda at: number(1.0), [], index=lambda at: minimum(at, 24), valid=lambda at: lt(at, 26)),
          np.zeros(32, np.float32), match="STORE writes twice element 24")
    b = axis("b", 4)
    out = Param(0, F32, 32, True)
    overlap = TileProgram("overlap", (out,), (b,), store(out, (X,), add(mul(b, 7), X), number(1.0)))
    fails(overlap, np.zeros(32, np.float32), match="two blocks store element (7|14|21) of param 0")


@pytest.mark.parametrize("shift", [-8, 8])
def test_a_block_loads_what_another_stores(shift):
    a, out = Param(0, F32, 32), Param(1, F32, 32, True)
    inside = lambda at: op(ops.AND, le(0, add(at, shift)), lt(add(at, shift), 32))
    program = elementwise(lambda at: load(a, add(at, shift), inside(at)), [a, out], output=out)
    x = np.zeros(32, np.float32)
    for seed in range(4):
        with pytest.raises(KernelError, match="loads"):
            run(program, [x, x], {}, seed)
    run(program, [x, x.copy()], {})  # two arrays are no race


def test_every_reader_of_a_stored_element_counts():
    a, out = Param(0, F32, 32), Param(1, F32, 32, True)
    x = np.zeros(32, np.float32)
    program = elementwise(lambda at: load(a, as_index(0)), [a, out], output=out, valid=lambda at: lt(0, at))
    run(program, [x, x], {})  # element 0 is only read
    program = elementwise(lambda at: load(a, mul(at, 0), lt(7, at)), [a, out], output=out)
    for seed in range(8):  # blocks 1 to 3 read what block 0 stores
        with pytest.raises(KernelError, match="loads"):
            run(program, [x, x], {}, seed)
    readers = TileProgram("readers", (a, out), (axis("b", 4),), block(
        set_tile(Tile("t", (X,), F32), load(a, as_index(3))),
        store(out, (axis("r", 1, "tile"),), add(axis("b", 4), axis("r", 1, "tile")), number(0.0))))
    for seed in range(8):  # block 3 stores what all read, itself too
        with pytest.raises(KernelError, match="loads"):
            run(readers, [x, x], {}, seed)


def test_points_of_one_store_disturb_one_another():
    a, out = Param(0, F32, 8), Param(1, F32, 8, True)
    program = elementwise(lambda at: load(a, node(ops.XOR, (at, as_index(1)))), [a, out], blocks=1, output=out)
    x = np.zeros(8, np.float32)
    with pytest.raises(KernelError, match="one point loads what another point"):
        run(program, [x, x], {})
    swap = Tile("swap", (X,), F32)
    staged = TileProgram("staged", (a, out), (), block(
        set_tile(swap, load(a, node(ops.XOR, (X, as_index(1))))), store(out, (X,), X, read(swap))))
    x = np.arange(8, dtype=np.float32)
    run(staged, [x, x], {})
    assert x.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]


def test_a_tile_that_nothing_has_set():
    t, b, kb = Tile("t", (X,), F32), axis("b", 2), axis("kb", 4, "loop")
    out = Param(0, F32, 16, True)
    write = store(out, (X,), add(mul(b, 8), X), read(t))
    empty = np.zeros(16, np.float32)
    fails(TileProgram("unset", (out,), (b,), write), empty, match="tile t is read before")
    fails(TileProgram("skipped", (out,), (b,), block(loop(kb, 0, b, set_tile(t, number(0.0))), write)), empty,
          match="tile t is read before any SET of block 0", seeds=[0])
    k = axis("k", 2, "tile")
    fails(TileProgram("carried", (out,), (b,), block(set_tile(t, number(1.0), ops.SUM, (k,), accumulate=True), write)),
          empty, match="tile t is read before")


def test_rules_of_statements():
    t, b, k = Tile("t", (X,), F32), axis("b", 2), axis("k", 2, "tile")
    a, out = Param(0, F32, 16), Param(1, F32, 16, True)
    arrays = np.zeros(16, np.float32), np.zeros(16, np.float32)
    position = add(mul(b, 8), X)
    for name, match, statement in [
            ("typed", "takes a value of that dtype", set_tile(t, as_index(1))),
            ("unreduced", "reduces only with an op", set_tile(t, number(0.0), None, (k,))),
            ("ended", "has no value here", block(loop(axis("q", 2, "loop"), 0, 2, set_tile(t, number(0.0))),
                                                 store(out, (X,), add(position, axis("q", 2, "loop")), read(t)))),
            ("stray", "has no value here", set_tile(t, load(a, k))),
            ("narrow", "every axis of the tile", block(set_tile(t, number(0.0)), store(out, (), b, read(t)))),
            ("readonly", "must be written", store(a, (X,), position, number(0.0))),
            ("mistyped", "of one dtype", store(out, (X,), position, as_index(0))),
            ("graph", "is no value of a tile program", set_tile(t, node(ops.CONTIGUOUS, (number(0.0),)))),
            ("nothing", "is no statement", number(0.0))]:
        fails(TileProgram(name, (a, out), (b,), statement), *arrays, match=match)


def test_arguments_are_checked():
    program = elementwise(lambda at: number(1.0), [])
    for arrays, match in [([], "0 arrays"), ([np.zeros(31, np.float32)], "asks 32"), ([np.zeros(32)], "float64"),
                          ([np.zeros((32, 2), np.float32)[:, 0]], "contiguous")]:
        with pytest.raises(KernelError, match=match):
            run(program, arrays, {})


def test_blocks_run_in_an_order_that_the_seed_draws():
    b, row = axis("b", 6), axis("r", 1, "tile")
    n, out = variable("n", 0, 6), Param(0, F32, 6, True)
    program = TileProgram("order", (out,), (b,), store(out, (row,), add(b, row), number(1.0), lt(add(b, row), n)))

    orders = set()
    for seed in range(5):
        t = Tile("t", (row,), F32)
        trap = TileProgram("trap", (out,), (b,), block(store(out, (row,), add(b, row), number(1.0)),
                                                       store(out, (row,), add(b, 5, row), read(t))))
        x = np.zeros(6, np.float32)
        with pytest.raises(KernelError):
            run(trap, [x], {}, seed)
        orders.add(int(x.argmax()))  # the first block stored, then failed on its unset tile
    assert len(orders) > 1
    x = np.zeros(6, np.float32)
    run(program, [x], {"n": 4})
    assert x.tolist() == [1, 1, 1, 1, 0, 0]
