"""Operands of a contraction: read in place, or computed once into private memory in the order of the register tile.

The operand along the lanes is packed as panels [lane block][k][lanes of one body]; the other, of which a body reads
single elements, as [rows][k]. Not for the register tile itself (nest.py).
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minivt.codegen.lanes import Scratch
from minivt.codegen.tile import LOAD, tile_axes
from minivt.graph import Node, node, walk
from minivt.symbolic import AXIS, TRUE, add, axis, axis_size, idiv, linear, mod, mul

SKEW = 16  # elements after each panel or row, so that those of power-of-two sizes do not share sets of a cache


@dataclass(frozen=True)
class Pack:
    """Compute `value` at all of `axes` into `place[index]`; read back as LOAD place[index]."""
    value: Node
    axes: tuple[Node, ...]
    place: Scratch
    index: Node

    def read(self) -> Node:
        return node(LOAD, (self.index, TRUE), self.place, self.value.dtype)


def panel_index(axes: tuple[Node, ...], k: tuple[Node, ...], lane: Node, width: int) -> tuple[Node, int]:
    """The index of (other axes, lane // width, k, lane % width), and the number of elements."""
    panel = prod(axis_size(x) for x in k) * width + SKEW
    blocks = -(-axis_size(lane) // width)
    others = tuple(a for a in axes if a is not lane and a not in k)
    index = add(mul(flat(others), blocks * panel), mul(idiv(lane, width), panel), mul(flat(k), width), mod(lane, width))
    return index, prod(axis_size(a) for a in others) * blocks * panel


def flat(axes: tuple[Node, ...]) -> Node:
    """The row-major number of the counters."""
    total = add(0)
    for a in axes:
        total = add(mul(total, axis_size(a)), a)
    return total


def rows_index(axes: tuple[Node, ...], k: tuple[Node, ...]) -> tuple[Node, int]:
    """The index of (other axes, k), and the number of elements."""
    depth = -(-prod(axis_size(x) for x in k) // SKEW) * SKEW + SKEW
    others = tuple(a for a in axes if a not in k)
    return add(mul(flat(others), depth), flat(k)), prod(axis_size(a) for a in others) * depth


def in_place_along(value: Node, lane: Node) -> bool:
    """Whether vectors of the operand can be read where they are: a plain load of neighbours from private memory."""
    return value.op is LOAD and isinstance(value.arg, Scratch) and dict(linear(value.src[0])[0]).get(lane) == 1


def in_place_single(value: Node, k: tuple[Node, ...]) -> bool:
    """Whether single elements can be read where they are: a plain load without a mask that uses whole cache lines.

    Along k it moves by one, or rows of another counter lie densely one after another.
    """
    if value.op is not LOAD or value.src[1] is not TRUE:
        return False
    strides = {a: c for a, c in linear(value.src[0])[0] if a.op is AXIS}
    if not tile_axes(value) <= strides.keys():
        return False
    dense = {c * axis_size(a) for a, c in strides.items() if c == 1 and a not in k}
    return isinstance(value.arg, Scratch) or any(strides.get(a) in {1, *dense} for a in k)


def ordered(value: Node, axes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The counters of `axes` that the value depends on."""
    found = tile_axes(value)
    return tuple(a for a in axes if a in found)


def merge_summed(product: Node, k: tuple[Node, ...]) -> tuple[Node, tuple[Node, ...]]:
    """The product with its summed counters as one, where both operands lie densely along them.

    before:  sum over c < 64, i < 3, j < 3 of panel[(9 * c + 3 * i + j) * 32 + x] * w[9 * c + 3 * i + j]
    after:   sum over z < 576 of panel[z * 32 + x] * w[z]
    """
    if len(k) < 2 or not all(s.op is LOAD and s.src[1] is TRUE for s in product.src):
        return product, k
    sizes = [axis_size(a) for a in k]
    merged = axis(("k", *(a.arg[0] for a in k)), prod(sizes), "tile")
    factors = []
    for load in product.src:
        strides = dict(linear(load.src[0])[0])
        steps = [strides.pop(a, 0) for a in k]
        dense = all(left == right * size for left, right, size in zip(steps, steps[1:], sizes[1:]))
        if not dense or any(a in walk(atom) for atom in strides for a in k):
            return product, k
        index = add(load.src[0], *(mul(a, -step) for a, step in zip(k, steps)), mul(merged, steps[-1]))
        factors.append(node(LOAD, (index, TRUE), load.arg, load.dtype))
    return node(product.op, factors, None, product.dtype), (merged,)
