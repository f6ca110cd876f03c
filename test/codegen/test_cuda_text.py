"""CUDA text: what it says, and that NVIDIA's compiler takes it where that is installed (no GPU is needed)."""
import re

import numpy as np
import pytest

import tile_examples as ex
from minivt import dtypes, ops
from minivt.codegen.render.cuda import code_of
from minivt.codegen.target import SM_90A, Target
from minivt.codegen.tile import Param, Tile, TileProgram, block, load, read, set_tile, store
from minivt.graph import const, node
from minivt.symbolic import add, axis, lt, mul, variable

PLAIN = Target("sm_80", "gpu", 16, 65536, 99 << 10, 1 << 17, 32, 108)


def compiled(text, architecture="sm_90a"):
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:
        pytest.skip("NVRTC is not installed")
    from minivt.backends.cuda import compile_cubin
    return compile_cubin(text, architecture)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("MINIVT_CACHE", "off")


def pointwise(dtype, make, inputs=2, out=None):
    """A kernel of one elementwise value over `inputs` arrays."""
    x = axis("x", 1024, "tile")
    at = add(mul(axis("b", 4), 1024), x)
    params = tuple(Param(n, dtype, 4096) for n in range(inputs))
    value = make(*(load(p, at) for p in params))
    result = Param(inputs, value.dtype, 4096, True)
    return TileProgram("pointwise", (*params, result), (axis("b", 4),), block(store(result, (x,), at, value)))


def test_matmul_is_a_ring_of_copies_and_wgmma():
    text = code_of(ex.matmul(8192, 8192, 8192), SM_90A)
    assert "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16" in text
    assert len(re.findall(r"bulk_copy_2d\(ring0", text)) == 5  # one panel of A, four of B
    assert "setmaxnreg" in text and "barrier_wait(ring0_empty" in text and "barrier_wait(ring0_full" in text
    compiled(text)


def test_attention_is_one_kernel_with_four_products_and_resident_queries():
    text = code_of(ex.attention(32, 8, 4096), SM_90A)
    assert text.count("__global__") == 1
    # eight steps along the head's 128 elements: before the interior loop, in it, and for the one masked tile
    assert len(re.findall(r"    multiply_64x128x16_bfloat16_columns_columns\(", text)) == 3 * 8
    assert len(re.findall(r"    multiply_64x128x16_bfloat16_registers_rows\(", text)) == 3 * 8
    assert text.count("barrier_wait(once0_full") == 1 and "pack_bfloat16" in text
    assert "maps + 2" in text and "maps + 3" not in text  # three descriptors serve both loops
    compiled(text)


def test_no_matrix_instruction_on_a_plain_target():
    text = code_of(ex.matmul(256, 256, 256), PLAIN)
    assert "wgmma" not in text and "mbarrier" not in text
    compiled(text, "sm_80")


def test_neighbours_become_vectors():
    text = code_of(ex.elementwise(4096), SM_90A)
    assert text.count("Vector<float, 4>*)(p0") == 1 and text.count("Vector<float, 4>*)(p1") == 1


def test_a_mask_inside_a_vector_is_not_vectorised():
    text = code_of(ex.elementwise(4095), SM_90A)
    assert "Vector" not in text


def test_names_that_the_language_has_are_changed():
    tile = Tile("float", (axis("x", 64, "tile"),), dtypes.float32)
    out = Param(0, dtypes.float32, 64, True)
    n = variable("int", 1, 64)
    x, = tile.axes
    program = TileProgram("names", (out,), (), block(
        set_tile(tile, const(1, dtypes.float32)), store(out, (x,), x, read(tile), lt(x, n))))
    text = code_of(program, SM_90A)
    assert "n_float[" in text and "int n_int)" in text
    compiled(text)


def test_a_reduction_of_bools_exchanges_in_every_lane():
    """`a || shuffle(a)` would leave lanes out of the exchange."""
    c = axis("c", 256, "tile")
    tile = Tile("any", (), dtypes.bool_)
    x, out = Param(0, dtypes.bool_, 256), Param(1, dtypes.bool_, 1, True)
    text = code_of(TileProgram("any_true", (x, out), (), block(
        set_tile(tile, load(x, c), ops.MAX, (c,)), store(out, (), 0, read(tile)))), SM_90A)
    assert "shfl" in text and "||" not in text
    compiled(text)


UNARY = [ops.NEG, ops.SQRT, ops.EXP2, ops.LOG2, ops.SIN, ops.TRUNC]
BINARY = [ops.ADD, ops.MUL, ops.DIV, ops.IDIV, ops.MOD, ops.MAXIMUM, ops.LT, ops.NE, ops.AND, ops.OR, ops.XOR, ops.SHL,
          ops.SHR]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_operation_compiles(dtype):
    """All primitives that take the dtype, with arrays and constants, in one kernel."""
    x = axis("x", 64, "tile")
    a, b = Param(0, dtype, 64), Param(1, dtype, 64)
    one = const(1, dtype)
    values = [load(a, x)]
    for op in UNARY + BINARY:
        for second in ((), ) if op in UNARY else ((load(b, x),), (one,)):
            try:
                values.append(node(op, (load(a, x), *second)))
            except dtypes.DTypeError:
                pass
    values += [node(ops.CAST, (load(a, x),), other) for other in dtypes.ALL]
    values += [node(ops.BITCAST, (load(a, x),), other) for other in dtypes.ALL if other.itemsize == dtype.itemsize
               and dtypes.bool_ not in (dtype, other)]
    values.append(node(ops.WHERE, (node(ops.LT, (load(a, x), one)), load(b, x), one)))
    outs = [Param(2 + n, v.dtype, 64, True) for n, v in enumerate(values)]
    program = TileProgram("everything", (a, b, *outs), (), block(
        *(store(out, (x,), x, v) for out, v in zip(outs, values))))
    compiled(code_of(program, SM_90A))


@pytest.mark.parametrize("value", [0.1, 1e30, -2.5, float("inf"), float("-inf"), float("nan")])
def test_constants(value):
    for dtype in (dtypes.float32, dtypes.float64, dtypes.bfloat16):
        text = code_of(pointwise(dtype, lambda a: node(ops.ADD, (a, const(value, dtype))), 1), SM_90A)
        if np.isfinite(value) and dtype is dtypes.float32:
            assert f"{np.float32(value)!s}".lstrip("-") in text
        compiled(text)


def test_wide_indices_are_64_bit():
    x = axis("x", 256, "tile")
    size = 1 << 33
    a, b = Param(0, dtypes.uint8, size), Param(1, dtypes.uint8, size, True)
    at = add(mul(axis("b", size // 256), 256), x)
    text = code_of(TileProgram("wide", (a, b), (axis("b", size // 256),), block(store(b, (x,), at, load(a, at)))),
                       SM_90A)
    assert "(long long)" in text
    compiled(text)
