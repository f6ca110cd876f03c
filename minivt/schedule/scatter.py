"""SCATTER as a tile program: the updates in order, each block owning a stretch of the axes that are not scattered.

The result lies in the memory of the base: like an ASSIGN it writes the next version of it, in place where nothing else
reads the base and over a copy where something does (schedule.py). Updates that meet are added in their order, so a
sum is the same at every run. Not for GATHER, which is an index expression (indexing.py).
"""
from __future__ import annotations

from minivt import dtypes, ops
from minivt.codegen.target import Target
from minivt.codegen.tile import Param, TileProgram, block, load, loop, store
from minivt.graph import Node, node, toposort
from minivt.schedule.indexing import Lowering, to_index, unflatten
from minivt.schedule.kernel import capacity
from minivt.symbolic import Size, add, as_index, axis, both, bounds, ceil_div, le, lt, mul

STRETCH = {"cpu": 1024, "gpu": 256}  # neighbouring elements that one block owns


def widen_sums(current: Node) -> Node:
    """The SCATTER with float16 and bfloat16 added in float32 and rounded once.

    before:  SCATTER(base, index, updates; add) in bfloat16
    after:   CAST(SCATTER(CAST base, index, CAST updates; add), bfloat16)
    """
    base, index, updates = current.src
    if current.arg[1] != "add" or base.dtype not in (dtypes.float16, dtypes.bfloat16):
        return current
    wide = [node(ops.CAST, (x,), dtypes.float32) for x in (base, updates)]
    return node(ops.CAST, (node(ops.SCATTER, (wide[0], index, wide[1]), current.arg),), base.dtype)


def scatter_program(root: Node, target: Target) -> TileProgram:
    """The program of a SCATTER over placeholders; the written base comes after what is read.

    before:  out[a, index[i], b] += updates[a, i, b]
    after:   grid (a, bb): LOOP i: STORE out[a, index[i], b] = out[a, index[i], b] + updates[a, i, b], b in block bb
    """
    base, index, updates = root.src
    (at, how), shape = root.arg, root.shape
    outer, inner, count = shape[:at], shape[at + 1:], capacity(index.shape)
    inputs = sorted((n for n in toposort(index, updates) if n.op is ops.BUFFER), key=lambda n: n.arg.slot)
    params = {n: Param(slot, n.dtype, capacity(n.shape)) for slot, n in enumerate(inputs)}
    out = Param(len(inputs), root.dtype, capacity(shape), written=True)
    grid, (a, b, inside), axes = _owned(capacity(outer), capacity(inner), target)
    i = axis("update", count, "loop")
    lowering, point = Lowering(params, root), unflatten(i, index.shape)
    row = to_index(lowering.lower(index, point))
    valid = both(both(le(0, row), lt(row, shape[at])), inside)
    place = add(mul(add(mul(a, shape[at]), row), capacity(inner)), b)
    value = lowering.lower(updates, (*unflatten(a, outer), *point, *unflatten(b, inner)), inside)
    if how == "add":
        value = node(ops.ADD, (load(out, place, valid), value))
    body = loop(i, 0, count, store(out, axes, place, value, valid))
    return TileProgram("kernel", (*params.values(), out), grid, block(body))


def _owned(outer: Size, inner: Size, target: Target):
    """The grid, the position on the outer and on the inner axis with its mask, and the tile axes of a block."""
    most = bounds(as_index(inner))[1]
    stretch = min(most, STRETCH[target.kind])
    blocks = bounds(as_index(outer))[1]
    while stretch > 16 and blocks * -(-most // stretch) < target.units:
        stretch = -(-stretch // 2)
    grid, axes, a, b = [], (), as_index(0), as_index(0)
    if outer != 1:
        a = axis("outer", outer, "grid")
        grid.append(a)
    parts = ceil_div(inner, stretch)
    if parts != 1:
        part = axis("part", parts, "grid")
        grid.append(part)
        b = mul(part, stretch)
    if stretch != 1:
        counter = axis("inner", stretch, "tile")
        axes, b = (counter,), add(b, counter)
    return tuple(grid), (a, b, lt(b, inner)), axes
