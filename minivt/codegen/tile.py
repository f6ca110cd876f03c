"""The tile level of the kernel IR: what one block of a kernel does, in loops and whole-tile statements.

A kernel is a grid of independent blocks. Each block runs a body of statements; every statement computes a whole tile,
a value for each combination of its tile axes. A value is a scalar expression over elementwise primitives, LOAD, READ,
AXIS, VARIABLE and CONST, evaluated at each point; a tile is always read at the counters that it was written with, so
READ needs no index. Contractions, reductions, copies and maps are all the one statement SET; what a target does with
it follows from its structure. Not for choosing tiles (schedule) nor for threads and vector lanes (distribute,
vectorize).

A causal attention block, for instance:
    SET m[i] = -inf; SET l[i] = 0; SET o[i, d] = 0
    LOOP jb in 0 .. ceil((i0 + 64) / 128):
        SET s[i, j] = sum over e of LOAD q[i0 + i, e] * LOAD k[jb * 128 + j, e]
        SET x[i, j] = where(j0 + j <= i0 + i, s * scale, -inf)
        SET n[i] = max(m[i], max over j of x[i, j])
        ...
    STORE out[i0 + i, d] = o[i, d] / l[i]
"""
from __future__ import annotations

from dataclasses import dataclass

from minivt import dtypes, ops
from minivt.dtypes import DType
from minivt.graph import Node, node, walk
from minivt.ops import Op
from minivt.symbolic import AXIS, Size, TRUE, as_index


@dataclass(frozen=True)
class Param:
    """One array argument of a kernel: slot numbers are its position in the launch."""
    slot: int
    dtype: DType
    size: Size            # elements
    written: bool = False


@dataclass(frozen=True)
class Tile:
    """A named block-local array; its axes are AXIS nodes of kind 'tile' whose sizes are ints.

    space: None until staging decides: 'shared' (visible to the whole block: shared memory, or a core's cache),
    'fragment' (spread over the registers of the block).
    """
    name: str
    axes: tuple[Node, ...]
    dtype: DType
    space: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.arg[1] for a in self.axes)


@dataclass(frozen=True)
class Set:
    """How a SET combines: tile = value, or tile = tile (op) reduction of value over reduce_axes.

    reduce: None, ops.SUM or ops.MAX; accumulate: whether the tile's old value takes part (else it starts from the
    identity: 0, or the dtype's lowest value).
    """
    tile: Tile
    reduce: Op | None = None
    reduce_axes: tuple[Node, ...] = ()
    accumulate: bool = False


LOAD = Op("LOAD", "kernel", ("index", "valid"), arg="the Param",
          meaning="the element at a flat index of an argument; 0, and memory is not touched, where not valid",
          dtype=None)
READ = Op("READ", "kernel", (), arg="the Tile", meaning="the tile's value at the current counters of its axes",
          dtype=None)
REDUCE = Op("REDUCE", "kernel", ("value",), arg="(ops.SUM or ops.MAX, axes, origin in the graph)",
            meaning="the reduction of value over some counters; before tiling only", dtype=None)
SET = Op("SET", "statement", ("value",), arg="a Set", meaning="for all counters of the tile: tile (op)= value",
         dtype=None)
STORE = Op("STORE", "statement", ("index", "valid", "value"), arg="(Param, tile axes)",
           meaning="for all counters of the axes, where valid: param[index] = value", dtype=None)
LOOP = Op("LOOP", "statement", ("body", "start", "stop"), arg="the AXIS of kind 'loop'",
          meaning="body for each start <= counter < stop in order", dtype=None)
BLOCK = Op("BLOCK", "statement", ("statements",), meaning="the statements in order", dtype=None)


def load(param: Param, index: Size, valid: Node = TRUE) -> Node:
    return node(LOAD, (as_index(index), valid), param, param.dtype)


def read(tile: Tile) -> Node:
    return node(READ, (), tile, tile.dtype)


def set_tile(tile: Tile, value: Node, reduce: Op | None = None, reduce_axes: tuple = (), accumulate=False) -> Node:
    return node(SET, (value,), Set(tile, reduce, tuple(reduce_axes), accumulate), tile.dtype)


def store(param: Param, axes: tuple, index: Size, value: Node, valid: Node = TRUE) -> Node:
    return node(STORE, (as_index(index), valid, value), (param, tuple(axes)), param.dtype)


def loop(counter: Node, start: Size, stop: Size, *body: Node) -> Node:
    return node(LOOP, (block(*body), as_index(start), as_index(stop)), counter, dtypes.index)


def block(*statements: Node) -> Node:
    return node(BLOCK, statements, None, dtypes.index)


@dataclass(frozen=True)
class TileProgram:
    """A kernel at tile level. Blocks are numbered row-major over `grid` (AXIS nodes of kind 'grid')."""
    name: str
    params: tuple[Param, ...]
    grid: tuple[Node, ...]
    body: Node


@dataclass(frozen=True)
class Contraction:
    """SET acc[batch, m, n] (+)= sum over k of a[batch, m, k] * b[batch, k, n], found by structure."""
    m: tuple[Node, ...]
    n: tuple[Node, ...]
    k: tuple[Node, ...]
    batch: tuple[Node, ...]
    a: Node
    b: Node


def tile_axes(value: Node) -> frozenset[Node]:
    """The tile counters that an expression depends on."""
    found = set()
    for current in walk(value):
        if current.op is AXIS and current.arg[2] == "tile":
            found.add(current)
        elif current.op is READ:
            found.update(current.arg.axes)
    return frozenset(found)


def contraction(statement: Node) -> Contraction | None:
    """The statement as a contraction; None when either factor lacks an axis of its own or the sum is no product."""
    how: Set = statement.arg
    value = statement.src[0]
    if statement.op is not SET or how.reduce is not ops.SUM or value.op is not ops.MUL:
        return None
    a, b = value.src
    a_axes, b_axes = tile_axes(a), tile_axes(b)
    k = tuple(x for x in how.reduce_axes if x in a_axes and x in b_axes)
    m = tuple(x for x in how.tile.axes if x in a_axes and x not in b_axes)
    n = tuple(x for x in how.tile.axes if x in b_axes and x not in a_axes)
    batch = tuple(x for x in how.tile.axes if x in a_axes and x in b_axes)
    if len(k) != len(how.reduce_axes) or not (m and n and k):
        return None
    return Contraction(m, n, k, batch, a, b)
