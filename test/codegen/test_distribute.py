"""Thread programs against NumPy, run by the interpreter of backends/reference_threads.py: no GPU is needed."""
from dataclasses import replace

import numpy as np
import pytest

import tile_examples as ex
from minivt import dtypes, ops
from minivt.backends.reference_ir import KernelError
from minivt.backends.reference_threads import run
from minivt.codegen import thread as t
from minivt.codegen.distribute import distribute
from minivt.codegen.target import SM_80, SM_90A
from minivt.codegen.tile import BLOCK, LOOP
from minivt.dtypes import bfloat16_to_float, float_to_bfloat16
from minivt.graph import rebuild, walk
from minivt.symbolic import variable

BF16, F16, F32 = dtypes.bfloat16, dtypes.float16, dtypes.float32


def numbers(seed, dtype, *shape):
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return float_to_bfloat16(x) if dtype is BF16 else x.astype(dtype.storage)


def wide(x, dtype):
    return bfloat16_to_float(x).astype(np.float64) if dtype is BF16 else x.astype(np.float64)


def execute(program, inputs, shape, dtype, variables=None, target=SM_90A):
    out = np.full(shape, 0x7FFF, np.uint16) if dtype is BF16 else np.full(shape, np.nan, dtype.storage)
    run(distribute(program, target), [*inputs, out], variables or {})
    return wide(out, dtype)


def error(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize("shape, tiles, layout, dtype, tolerance", [
    ((200, 264, 136), (128, 256, 64), "kn", BF16, 4e-3),
    ((200, 264, 136), (128, 256, 64), "nk", BF16, 4e-3),
    ((128, 192, 64), (128, 192, 32), "kn", F16, 1e-3),        # two instructions a row
    ((256, 64, 64), (256, 64, 64), "nk", BF16, 4e-3),         # two instructions a column
    ((100, 104, 64), (48, 40, 32), "kn", BF16, 4e-3),         # rows and columns padded to instructions
    ((7, 72, 64), (7, 72, 64), "nk", BF16, 4e-3),
    ((40, 33, 20), (32, 32, 16), "kn", BF16, 4e-3),           # no matrix instruction
    ((40, 33, 20), (32, 32, 16), "nk", F32, 1e-6),
])
def test_matmul(shape, tiles, layout, dtype, tolerance):
    M, N, K = shape
    a, b = numbers(1, dtype, M, K), numbers(2, dtype, *((K, N) if layout == "kn" else (N, K)))
    got = execute(ex.matmul(M, N, K, tiles, layout, dtype), [a, b], (M, N), dtype)
    assert error(got, wide(a, dtype) @ (wide(b, dtype) if layout == "kn" else wide(b, dtype).T)) < tolerance


@pytest.mark.parametrize("shape, tiles, layout, dtype, tolerance", [
    ((72, 136, 72), (64, 128, 32), "kn", BF16, 4e-3),         # pairs along k come from two rows
    ((72, 72, 72), (64, 64, 64), "nk", BF16, 4e-3),
    ((100, 104, 64), (48, 40, 32), "kn", BF16, 4e-3),         # three rows of instructions in one warp
    ((64, 64, 64), (64, 64, 64), "nk", F16, 1e-3),
    ((40, 36, 48), (32, 32, 16), "kn", F32, 1e-6),
    ((33, 40, 20), (32, 40, 20), "nk", F32, 1e-6),            # a spread reaches beyond the panel's rows
    ((20, 20, 300), (20, 20, 300), "nk", F32, 1e-6),          # a product in chunks
])
def test_matmul_through_panels(shape, tiles, layout, dtype, tolerance):
    M, N, K = shape
    a, b = numbers(1, dtype, M, K), numbers(2, dtype, *((K, N) if layout == "kn" else (N, K)))
    program = ex.matmul(M, N, K, tiles, layout, dtype)
    lowered = distribute(program, SM_80)
    assert {x.name for x in lowered.arrays if x.space == "shared"} == {"panel_a", "panel_b"}
    assert any(n.op is t.MULTIPLY_REGISTERS for n in walk(lowered.body)) == (dtype is not F32)
    got = execute(program, [a, b], (M, N), dtype, target=SM_80)
    assert error(got, wide(a, dtype) @ (wide(b, dtype) if layout == "kn" else wide(b, dtype).T)) < tolerance


def test_epilogue_sees_rows_and_columns():
    a, b = numbers(1, BF16, 128, 64), numbers(2, BF16, 64, 256)
    program = ex.matmul(128, 256, 64, epilogue=lambda x, row, column: ex.op(
        ops.ADD, x, ex.op(ops.ADD, ex.cast(row, F32), ex.cast(column, F32))))
    want = wide(a, BF16) @ wide(b, BF16) + np.arange(128)[:, None] + np.arange(256)
    assert error(execute(program, [a, b], (128, 256), BF16), want) < 4e-3


def test_symbolic_rows():
    n = variable("n", 1, 300)
    a, b = numbers(1, BF16, 300, 64), numbers(2, BF16, 64, 256)
    got = execute(ex.matmul(n, 256, 64), [a, b], (300, 256), BF16, {"n": 150})
    assert error(got[:150], wide(a, BF16)[:150] @ wide(b, BF16)) < 4e-3
    assert np.isnan(got[150:]).all()


def softmax_attention(q, k, v, dtype, causal=True, window=None, score=lambda s, q, k: s):
    S, D = q.shape[1:]
    group = q.shape[0] // k.shape[0]
    rows, keys = np.arange(S)[:, None], np.arange(S)
    out = []
    for head in range(q.shape[0]):
        s = score(wide(q[head], dtype) @ wide(k[head // group], dtype).T * D ** -0.5, rows, keys)
        visible = (keys <= rows if causal else keys == keys) & (keys > rows - window if window else True)
        s = np.where(visible, s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        out.append(p / p.sum(-1, keepdims=True) @ wide(v[head // group], dtype))
    return np.array(out)


def cap(s, q, k):
    """20 tanh(s / 20), s times log2(e)."""
    e = ex.op(ops.EXP2, ex.op(ops.MUL, s, ex.f32(0.1)))
    tanh = ex.op(ops.ADD, ex.f32(1), ex.op(ops.NEG, ex.op(ops.DIV, ex.f32(2), ex.op(ops.ADD, e, ex.f32(1)))))
    return ex.op(ops.MUL, tanh, ex.f32(20 * 1.4426950408889634))


@pytest.mark.parametrize("heads, size, how, plain", [
    ((2, 1, 200, 64), (128, 64), {}, {}),
    ((1, 1, 256, 128), (128, 128), dict(causal=False), dict(causal=False)),
    ((1, 1, 256, 64), (64, 64), dict(window=70), dict(window=70)),
    ((1, 1, 130, 64), (64, 128), dict(score=cap), dict(score=lambda s, q, k: 20 * np.tanh(s / 20))),
])
def test_attention_on_matrix_instructions(heads, size, how, plain):
    H, HKV, S, D = heads
    q, k, v = (numbers(n, BF16, h, S, D) for n, h in enumerate((H, HKV, HKV)))
    program = ex.attention(H, HKV, S, D, size, **how)
    assert distribute(program, SM_90A).rings
    assert error(execute(program, [q, k, v], (H, S, D), BF16), softmax_attention(q, k, v, BF16, **plain)) < 5e-3


def test_attention_on_register_products():
    q, k, v = (numbers(n, BF16, h, 40, 32) for n, h in enumerate((2, 1, 1)))
    program = ex.attention(2, 1, 40, 32, (32, 32))
    lowered = distribute(program, SM_80)
    products = [n.arg for n in walk(lowered.body) if n.op is t.MULTIPLY_REGISTERS]
    assert {x.a.name for x in products} > {"a_words"}, "the weights stay in registers"
    got = execute(program, [q, k, v], (2, 40, 32), BF16, target=SM_80)
    assert error(got, softmax_attention(q, k, v, BF16)) < 5e-3


def test_attention_without_matrix_instructions():
    q, k, v = (numbers(n, F32, 2, 40, 16) for n in range(3))
    program = ex.attention(2, 2, 40, 16, (16, 16), dtype=F32)
    lowered = distribute(program, SM_90A)
    assert not lowered.rings and any(x.space == "shared" for x in lowered.arrays)
    assert error(execute(program, [q, k, v], (2, 40, 16), F32), softmax_attention(q, k, v, F32)) < 1e-6


@pytest.mark.parametrize("rows, columns, tile, dtype", [(6, 1000, 4, BF16), (5, 77, 8, F32), (3, 4096, 1, BF16),
                                                        (300, 3, 256, F32)])
def test_softmax(rows, columns, tile, dtype):
    x = numbers(3, dtype, rows, columns)
    e = np.exp(wide(x, dtype) - wide(x, dtype).max(1, keepdims=True))
    got = execute(ex.softmax(rows, columns, tile, dtype), [x], (rows, columns), F32)
    assert error(got, e / e.sum(1, keepdims=True)) < 1e-6


@pytest.mark.parametrize("rows, columns", [(40, 1000), (9, 2049)])
def test_gemv(rows, columns):
    w, x = numbers(4, BF16, rows, columns), numbers(5, BF16, columns)
    got = execute(ex.gemv(rows, columns), [w, x], (rows,), F32)
    assert error(got, wide(w, BF16) @ wide(x, BF16)) < 1e-6


@pytest.mark.parametrize("count", [1000, 1024, 4099])
def test_elementwise(count):
    x = numbers(6, F32, count)
    assert np.array_equal(execute(ex.elementwise(count), [x], (count,), F32), np.maximum(x * 2 + 1, 0))


# --- the interpreter finds what it is there to find ------------------------------------------------------------------

def without(program, op):
    """The thread program with every statement of this kind left out."""
    def strip(n):
        if n.op is BLOCK:
            return rebuild(n, tuple(strip(s) for s in n.src if s.op is not op))
        if n.op is LOOP:
            return rebuild(n, (strip(n.src[0]), *n.src[1:]))
        return rebuild(n, tuple(map(strip, n.src))) if n.op in (t.ROLES, t.WHEN, t.UNROLL) else n
    return replace(program, body=strip(program.body))


@pytest.fixture
def long_matmul():
    """Eight steps of a four-slot ring."""
    return distribute(ex.matmul(128, 64, 512, (128, 64, 64)), SM_90A), [
        numbers(1, BF16, 128, 512), numbers(2, BF16, 512, 64), np.zeros((128, 64), np.uint16)]


def test_a_forgotten_release_never_ends(long_matmul):
    program, arrays = long_matmul
    with pytest.raises(KernelError, match="waits for another"):
        run(without(program, t.WHEN), arrays, {})


def test_a_forgotten_wait_reads_poison(long_matmul):
    program, arrays = long_matmul
    run(without(program, t.AWAIT), arrays, {})
    assert np.isnan(bfloat16_to_float(arrays[2])).any()


def test_a_forgotten_settle_is_seen(long_matmul):
    program, arrays = long_matmul
    run(without(program, t.SETTLE), arrays, {})
    want = wide(arrays[0], BF16) @ wide(arrays[1], BF16)
    assert not error(wide(arrays[2], BF16), want) < 0.1


def test_a_forgotten_barrier_is_seen():
    x, out = numbers(3, F32, 1, 1024), np.zeros((1, 1024), np.float32)
    program = distribute(ex.softmax(1, 1024, 1, F32), SM_90A)
    run(without(program, t.BARRIER), [x, out], {})
    assert not abs(out.sum() - 1) < 1e-3
