"""Routes of operands: which loads a copy engine can do, with which boxes; which contractions take an instruction."""
import pytest

import tile_examples as ex
from minivt import dtypes, ops
from minivt.codegen.stage import Operand, bulk_operand, narrow, products
from minivt.codegen.target import SM_90A
from minivt.codegen.tile import Param, load
from minivt.graph import const, node
from minivt.symbolic import TRUE, add, axis, both, idiv, le, lt, mul, variable

BF16 = dtypes.bfloat16
ib, h = axis("ib", 8), axis("h", 6)
i, e = axis("i", 128, "tile"), axis("e", 64, "tile")


def staged(index, valid=TRUE, dtype=BF16):
    return bulk_operand(load(Param(0, dtype, 1 << 20), index, valid), i, e, 128)


def test_rows_of_a_matrix():
    operand = staged(add(mul(add(mul(ib, 128), i), 64), e))
    assert (operand.box.sizes, operand.box.strides, operand.box.box) == ((64, 1024), (64,), (64, 128))
    assert operand.origin == (axis("zero", 1) and ex.as_index(0), mul(ib, 128))
    assert operand.contracted == "columns" and (operand.tile.rows, operand.tile.columns) == (128, 64)


def test_contracted_rows():
    """The free axis contiguous: i along memory."""
    operand = staged(add(mul(e, 1024), mul(ib, 128), i))
    assert operand.contracted == "rows" and operand.box.box == (64, 64) and operand.tile.panels == 2
    assert operand.origin == (mul(ib, 128), ex.as_index(0))


def test_a_masked_row_is_a_dimension():
    row = add(mul(ib, 128), i)
    operand = staged(add(mul(add(mul(h, 1000), row), 64), e), lt(row, 1000))
    assert operand.box.sizes == (64, 1000, 6) and operand.box.strides == (64, 64000)
    assert operand.box.box == (64, 128, 1) and operand.origin == (ex.as_index(0), mul(ib, 128), h)


def test_grouped_heads_are_a_coordinate():
    row = add(mul(ib, 128), i)
    operand = staged(add(mul(add(mul(idiv(h, 3), 1000), row), 64), e), lt(row, 1000))
    assert operand.box.sizes == (64, 1000, 2) and operand.origin[2] is idiv(h, 3)


def test_both_ends_masked():
    """A window that starts before the array: coordinates below zero read zero too."""
    row = add(mul(ib, 128), i, -8)
    operand = staged(add(mul(row, 64), e, 0), both(le(0, row), lt(row, 1000)))
    assert operand.box.sizes == (64, 1000) and operand.origin[1] is add(mul(ib, 128), -8)
    assert operand.box.offset == 0


def test_a_symbolic_limit():
    n = variable("n", 1, 1000)
    row = add(mul(ib, 128), i)
    assert staged(add(mul(row, 64), e), lt(row, n)).box.sizes == (64, n)


@pytest.mark.parametrize("index, valid", [
    (add(mul(i, 65), e), TRUE),                                  # rows not 16 bytes apart
    (add(mul(i, 64), mul(e, 2)), TRUE),                          # no contiguous axis
    (add(mul(i, 64), e, 3), TRUE),                               # starts off 16 bytes
    (add(mul(i, 64), e), lt(i, add(e, 1))),                      # a mask over both axes
    (add(mul(i, 64), e), lt(i, mul(ib, 7))),                     # a limit that moves
    (add(mul(load(Param(1, dtypes.int64, 8), ib), 64), mul(i, 64), e), TRUE),  # gathered rows
])
def test_what_a_copy_engine_cannot_do(index, valid):
    assert staged(index, valid) is None


def test_matmul_takes_the_widest_instruction():
    product, = products(ex.matmul(512, 512, 512).body, SM_90A).values()
    assert (product.instruction.name, product.instruction.n) == ("wgmma", 256)
    assert isinstance(product.a, Operand) and isinstance(product.b, Operand)


def test_masks_to_zero_are_narrowed_with_the_operand():
    array, inside, zero = Param(0, BF16, 64), lt(e, 40), const(0, dtypes.float32)
    loaded = node(ops.WHERE, (inside, node(ops.CAST, (load(array, e),), dtypes.float32), zero))
    assert narrow(loaded) is load(array, e, inside)
    x = node(ops.NEG, (load(array, e),))
    assert narrow(node(ops.CAST, (x,), dtypes.float32)) is x
    masked = node(ops.WHERE, (inside, node(ops.CAST, (x,), dtypes.float32), zero))
    assert narrow(masked) is node(ops.WHERE, (inside, x, const(0, BF16)))
    other = node(ops.WHERE, (inside, node(ops.CAST, (x,), dtypes.float32), const(1, dtypes.float32)))
    assert narrow(other) is other


def test_attention_computes_its_second_first_operand():
    found = list(products(ex.attention(2, 1, 512).body, SM_90A).values())
    assert len(found) == 4  # two loops of two products
    assert all(isinstance(p.a, Operand) for p in found[::2])
    assert all(p.a.op is ops.CAST for p in found[1::2])


@pytest.mark.parametrize("program", [
    ex.matmul(512, 512, 512, dtype=dtypes.float32),               # no instruction for the dtype
    ex.matmul(512, 33, 512, (64, 32, 32)),                        # rows of B not 16 bytes apart
    ex.matmul(512, 512, 500, (64, 256, 20)),                      # steps that no instruction divides
])
def test_no_instruction(program):
    assert products(program.body, SM_90A) == {}
