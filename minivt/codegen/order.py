"""The order in which blocks start: which block number computes which tile of the grid.

Blocks with more work start first, so that the last ones to finish are short; tiles that share operands start together,
so that the operands are read from cache. Not for what a block does.
"""
from __future__ import annotations

from minivt.codegen.stage import Operand, Product, statements
from minivt.codegen.thread import block_number
from minivt.codegen.tile import LOOP, TileProgram
from minivt.graph import Node, walk
from minivt.symbolic import Size, add, as_size, idiv, minimum, mod, mul, sub

NEIGHBOURS = 16  # rows of tiles that run together: with 8 columns they fill a large GPU and reuse both operands


def block_order(program: TileProgram, products: list[Product]) -> tuple[tuple[tuple[Node, Node], ...], Size]:
    """((grid axis, its value by block number), ...) and the number of blocks."""
    uneven = [x for x in program.grid if any(x in walk(s.src[2]) for s in statements(program.body) if s.op is LOOP)]
    even = [x for x in program.grid if x not in uneven]
    total: Size = 1
    for x in program.grid:
        total = as_size(mul(total, x.arg[1]))
    values: dict[Node, Node] = {}
    number = block_number(total)
    pair = _operand_axes(even, products)
    if pair:
        tiles = as_size(mul(pair[0].arg[1], pair[1].arg[1]))
        values.update(_grouped(mod(number, tiles), *pair))
        number = idiv(number, tiles)
    for x in reversed([*uneven, *(x for x in even if x not in pair)]):
        size = x.arg[1] or 1  # an empty grid never runs
        values[x] = mod(number, size)
        number = idiv(number, size)
        if x in uneven:
            values[x] = sub(sub(x.arg[1], 1), values[x])
    return tuple((x, values[x]) for x in program.grid), total


def _operand_axes(even: list[Node], products: list[Product]) -> tuple[Node, ...]:
    """The one axis that moves only first operands and the one that moves only second operands, if they exist."""
    if not products or not all(isinstance(p.a, Operand) for p in products):
        return ()
    in_a, in_b = ({x for p in products for x in walk(*o(p).origin)} for o in (lambda p: p.a, lambda p: p.b))
    rows = [x for x in even if x in in_a and x not in in_b]
    columns = [x for x in even if x in in_b and x not in in_a]
    return (rows[0], columns[0]) if len(rows) == len(columns) == 1 else ()


def _grouped(number: Node, rows: Node, columns: Node) -> dict[Node, Node]:
    """Number the tiles column by column within bands of NEIGHBOURS rows.

    before (4 x 4, bands of 2):  0 1 2 3 / 4 5 6 7 / ...
    after:                       0 2 4 6 / 1 3 5 7 / 8 10 12 14 / 9 11 13 15
    """
    per_band = mul(columns.arg[1], NEIGHBOURS)
    band, inside = idiv(number, as_size(per_band)), mod(number, as_size(per_band))
    first = mul(band, NEIGHBOURS)
    height = as_size(minimum(sub(rows.arg[1], first), NEIGHBOURS))
    return {rows: add(first, mod(inside, height)), columns: idiv(inside, height)}
