"""Which axis of each statement runs along vector lanes, chosen for all statements of a program together.

A cost model counts vector operations: a load or store of neighbours costs one, of scattered elements one a lane; an
operand of a contraction that must be rearranged costs its elements, less where loops around do not repeat it. One axis
preferred everywhere often wins: in attention the query rows, because all row statistics then need no sum across lanes.
Not for loops or layouts (vectorize.py).
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minivt import ops
from minivt.codegen.packing import in_place_single
from minivt.codegen.tile import LOAD, READ, SET, Contraction, Tile, contraction, tile_axes
from minivt.codegen.windows import shared_window
from minivt.graph import Node, toposort, walk
from minivt.symbolic import axis_size, linear

_COST = {ops.EXP2: 16, ops.LOG2: 24, ops.SIN: 60, ops.SQRT: 6, ops.DIV: 4, ops.IDIV: 20, ops.MOD: 20}
LOOP_TRIPS = 8  # a guess of how often a loop whose bounds are unknown runs
SHARED = 0.3    # a value for all lanes: it is loaded once and often kept
CROSSED = 5     # a vector of a block that is transposed in registers
SCATTERED = 1.5  # an element of a scattered store


@dataclass(frozen=True)
class Task:
    """A SET or STORE, and how many times and in which loops it runs."""
    statement: Node
    kept: tuple[Node, ...]
    summed: tuple[Node, ...]
    loops: tuple[Node, ...]
    product: Contraction | None

    @property
    def axes(self) -> tuple[Node, ...]:
        return self.kept + self.summed


def make_task(statement: Node, loops: tuple[Node, ...]) -> Task:
    if statement.op is SET:
        how = statement.arg
        kept, summed = how.tile.axes, how.reduce_axes
    else:
        kept, summed = statement.arg[1], ()
    return Task(statement, tuple(kept), tuple(summed), loops, worthwhile(statement))


def worthwhile(statement: Node) -> Contraction | None:
    """The statement as a contraction large enough for a register tile."""
    if statement.op is not SET or not statement.arg.tile.dtype.is_float:
        return None
    found = contraction(statement)
    if found is None:
        return None
    sizes = [prod(axis_size(x) for x in axes) for axes in (found.m, found.n, found.k)]
    return found if min(sizes) >= 4 else None


def width(size: int, lanes: int) -> int:
    """Lanes used for an axis: all of them, or the next power of two for a short axis; 0 for a single point."""
    return 0 if size < 2 else min(lanes, 1 << (size - 1).bit_length())


def choose_lanes(tasks: list[Task], lanes: int) -> tuple[dict[Task, Node | None], dict[Tile, Node | None]]:
    """The lane axis of every task and of every tile, None where there is no axis of two points or more."""
    preferred = [a for a in dict.fromkeys(a for t in tasks for a in t.axes) if axis_size(a) > 1]
    best = None
    for axis in preferred or [None]:
        chosen = {t: axis if axis in t.axes and _may(t, axis) else None for t in tasks}
        tiles = _tile_lanes(tasks, chosen)
        for task in tasks:
            if chosen[task] is None:
                chosen[task] = _cheapest(task, tiles, lanes)
        tiles = _tile_lanes(tasks, chosen)
        for task in tasks:
            chosen[task] = _cheapest(task, tiles, lanes)
        total = sum(_cost(t, chosen[t], tiles, lanes) for t in tasks)
        if best is None or total < best[0]:
            best = total, chosen, tiles
    return best[1], best[2]


def _may(task: Task, axis: Node) -> bool:
    return axis_size(axis) > 1 and not (task.product and axis in task.summed) and \
        not (task.product and axis in task.product.batch)


def _cheapest(task: Task, tiles: dict[Tile, Node | None], lanes: int) -> Node | None:
    allowed = [a for a in task.axes if _may(task, a)]
    return min(allowed, key=lambda a: _cost(task, a, tiles, lanes), default=None)


def _tile_lanes(tasks: list[Task], chosen: dict[Task, Node | None]) -> dict[Tile, Node | None]:
    """A tile's neighbours lie along the lane axis of whoever writes it, else of a reader, else along its last axis."""
    lanes: dict[Tile, Node | None] = {}
    for task in tasks:
        if task.statement.op is SET:
            tile = task.statement.arg.tile
            if lanes.get(tile) is None:
                lanes[tile] = chosen[task] if chosen[task] in tile.axes else None
    for task in tasks:
        for current in toposort(task.statement.src[-1]):
            if current.op is READ and lanes.get(current.arg) is None and chosen[task] in current.arg.axes:
                lanes[current.arg] = chosen[task]
    return {tile: axis or (tile.axes[-1] if tile.axes else None) for tile, axis in lanes.items()}


def _cost(task: Task, axis: Node | None, tiles: dict[Tile, Node | None], lanes: int) -> float:
    trips = LOOP_TRIPS ** len(task.loops)
    if axis is None:
        return trips * prod(axis_size(a) for a in task.axes)
    if task.product:
        return trips * _product_cost(task, axis, tiles, lanes)
    used = width(axis_size(axis), lanes)
    steps = prod(axis_size(a) for a in task.axes if a is not axis) * -(-axis_size(axis) // used)
    value = task.statement.src[-1]
    cost = steps * _step_cost(value, axis, tiles, used)
    if axis in task.summed:
        return trips * (cost + 8 * prod(axis_size(a) for a in task.kept))
    writes = steps if not task.summed else steps / prod(axis_size(a) for a in task.summed)
    if task.statement.op is SET:
        stride = 1 if tiles.get(task.statement.arg.tile) is axis else None
    else:
        stride = _stride(task.statement.src[0], axis)
    return trips * (cost + writes * (1 if stride == 1 else SCATTERED * used))


def _step_cost(value: Node, axis: Node, tiles: dict[Tile, Node | None], used: int) -> float:
    """The operations of one vector of points; what does not move with the lanes is nearly free."""
    cost = 0.0
    for current in toposort(value, enter=lambda n: n.op is not LOAD):
        if current.op is LOAD:
            stride = _stride(current.src[0], axis)
            strided = min(CROSSED, used) if stride and 1 in dict(linear(current.src[0])[0]).values() else used
            cost += {0: SHARED, 1: 1}.get(stride, strided)
        elif current.op is READ:
            cost += SHARED if axis not in current.arg.axes else 1 if tiles.get(current.arg) is axis else \
                min(CROSSED, used)
        elif current.op in ops.ELEMENTWISE and not current.dtype.is_int:
            cost += _COST.get(current.op, 1)
    return cost


def _stride(index: Node, axis: Node) -> int | None:
    """How far the index moves from one value of the axis to the next; of x // n and x % n, as for most values."""
    total = 0
    for atom, c in linear(index)[0]:
        if atom is axis:
            total += c
        elif axis in tile_axes(atom):
            inner = _stride(atom.src[0], axis) if atom.op in (ops.MOD, ops.IDIV) else None
            if inner != 1 or atom.src[1].op is not ops.CONST or atom.src[1].arg < 8:
                return None
            total += c if atom.op is ops.MOD else 0
    return total


def _product_cost(task: Task, axis: Node, tiles: dict[Tile, Node | None], lanes: int) -> float:
    """Multiply-adds, and the operands that are copied first (see packing.py)."""
    product = task.product
    used = width(axis_size(axis), lanes)
    cost = prod(axis_size(a) for a in task.axes if a is not axis) * -(-axis_size(axis) // used)
    inner, shared = (product.b, product.a) if axis in product.n else (product.a, product.b)
    window = shared_window(inner, product.k)
    if window is not None:
        cost += min(_packing_cost(window.value, a, tiles, lanes, task) for a in window.axes)
        cost += 0 if window.moves_by_one(axis) else prod(axis_size(a) for a in tile_axes(inner))
    else:
        cost += _packing_cost(inner, axis, tiles, lanes, task)
    window = shared_window(shared, product.k)
    if window is not None:
        shared = window.value
    if window is not None or not (shared.op is READ or in_place_single(shared, product.k)):
        cost += min(_packing_cost(shared, a, tiles, lanes, task) for a in tile_axes(shared))
    if tiles.get(task.statement.arg.tile, axis) is not axis:
        cost += prod(axis_size(a) for a in task.kept)
    return cost


def _packing_cost(value: Node, axis: Node, tiles: dict[Tile, Node | None], lanes: int, task: Task) -> float:
    axes = tile_axes(value)
    used = max(1, width(axis_size(axis), lanes))
    steps = prod(axis_size(a) for a in axes) / used
    repeats = 1 if any(n in task.loops or n.op is READ for n in toposort(value)) else LOOP_TRIPS ** len(task.loops)
    if value.op is READ and tiles.get(value.arg) is axis:
        return 0
    return steps * (1 + _step_cost(value, axis, tiles, used)) / repeats


def cheapest_copy(value: Node, index: Node, axes: tuple[Node, ...], lanes: int) -> Node | None:
    """The lane axis of storing value at index for all of `axes`."""
    def cost(axis: Node) -> float:
        used = width(axis_size(axis), lanes)
        steps = -(-axis_size(axis) // used) / axis_size(axis)
        return steps * (_step_cost(value, axis, {}, used) + (1 if _stride(index, axis) == 1 else SCATTERED * used))
    return min((a for a in axes if axis_size(a) > 1), key=cost, default=None)


def cross_axis(values: list[Node], lane: Node, axes: tuple[Node, ...]) -> Node | None:
    """The counter along which all loads that are scattered over the lanes move by one, if there is one."""
    found = None
    for current in toposort(*values):
        if current.op is not LOAD:
            continue
        index, valid = current.src
        if _stride(index, lane) in (0, 1):
            continue
        terms = linear(index)[0]
        along = next((a for a, c in terms if c == 1 and a in axes and a is not lane), None)
        others = frozenset().union(*(tile_axes(a) for a, _ in terms if a not in axes))
        if along is None or found not in (None, along) or along in others or lane in others \
                or along in tile_axes(valid):
            return None
        found = along
    return found


def is_light(value: Node) -> bool:
    """Whether no operation of the value is costly, so that a body may hold many copies of it."""
    return not any(n.op in _COST and n.dtype.is_float for n in walk(value))
