"""Tile sizes: how much of each counter one block takes, from the kernel's structure and the Target's data.

Not a search: a contraction gets the largest accumulator that fits, a row that fits the fast memory stays there, and
blocks shrink until every unit of the device has one. Not for the statements themselves (tiling.py).
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minivt import ops
from minivt.codegen.stage import narrow
from minivt.codegen.target import Target
from minivt.codegen.tile import LOAD, REDUCE
from minivt.graph import Node, toposort
from minivt.schedule.kernel import Kernel, free_axes, loads, reductions
from minivt.schedule.online import Pass
from minivt.symbolic import as_index, axis_size, bounds, linear

COSTLY = frozenset((ops.EXP2, ops.LOG2, ops.SIN, ops.SQRT, ops.DIV))
ROW_ELEMENTS = {"cpu": 16384, "gpu": 8192}       # a row up to this size stays in one tile
MAP_ELEMENTS = {"cpu": 8192, "gpu": 2048}        # elements of one block of a map
PASS_TILE = {"cpu": 64, "gpu": 128}              # steps of a pass that holds a contraction
PANEL_PASS_TILE = 64                             # the same on GPUs where operands or scores pass through registers
REDUCE_TILE = {"cpu": 512, "gpu": 64}            # summed products of one step of a contraction


@dataclass
class Plan:
    """tile: elements of each counter in one block; inner: sink counters that stay inside a block.

    shared: for each pass, the values that several of its statements use and that deserve a tile of their own.
    """
    tile: dict[Node, int]
    inner: tuple[Node, ...]
    owned: frozenset[Node]
    shared: dict[tuple[Node, ...], tuple[Node, ...]]

    def resident(self, counter: Node) -> bool:
        """Whether an accumulator spans the counter, so that a block must hold all of it."""
        return counter in self.owned


@dataclass(frozen=True)
class Roles:
    """The counters of a sum of products a[batch, m, k] * b[batch, k, n]."""
    m: frozenset[Node]
    n: frozenset[Node]
    k: tuple[Node, ...]


def largest(counter: Node) -> int:
    return max(1, bounds(as_index(axis_size(counter)))[1])


def contraction_roles(reduction: Node) -> Roles | None:
    """m, n and k of a reduction that is a matrix product; None where a factor has no counter of its own."""
    op, axes, _ = reduction.arg
    value = reduction.src[0]
    if op is not ops.SUM or value.op is not ops.MUL or not value.dtype.is_float:
        return None
    a, b = map(free_axes, value.src)
    if not all(x in a and x in b for x in axes):
        return None
    roles = Roles(a - b, b - a, axes)
    return roles if roles.m and roles.n else None


def grid_axes(kernel: Kernel, passes: list[Pass]) -> tuple[Node, ...]:
    """The sink counters that may be spread over blocks: those of every reduction, so that no block repeats one."""
    whole = [item.reduction for p in passes for item in p.items]
    whole += [r for p in passes for item in p.items for r in reductions(item.summand)]
    return tuple(a for a in kernel.axes if a.arg[2] == "grid" and all(a in free_axes(r) for r in whole))


def plan_tiles(kernel: Kernel, passes: list[Pass], target: Target) -> Plan:
    outer = [item.reduction for p in passes for item in p.items]
    sink_axes = tuple(dict.fromkeys(a for s in kernel.sinks for a in s.axes))
    grid = grid_axes(kernel, passes)
    inner = tuple(a for a in sink_axes if a not in grid)
    owned = frozenset(a for r in outer for a in free_axes(r) if a in inner)
    roots = [r for s in kernel.sinks for r in (s.index, s.valid, s.value)]
    products = {r: roles for r in reductions(*roots) if (roles := contraction_roles(r))}
    tile: dict[Node, int] = {}
    if products:
        _contraction_tiles(tile, grid, passes, products, target)
    elif passes:
        _row_tiles(tile, grid, kernel, passes, target)
    else:
        _fill(tile, grid, MAP_ELEMENTS[target.kind])
    for r in reductions(*roots):
        for a in r.arg[1]:
            tile.setdefault(a, _reduce_tile(r, a, r in outer, target))
    for a in inner:
        tile.setdefault(a, largest(a) if a in owned else min(largest(a), ROW_ELEMENTS[target.kind]))
    return Plan(tile, inner, owned, {p.axes: _shared(kernel, p, tile) for p in passes})


def _contraction_tiles(tile, grid, passes, products, target: Target) -> None:
    """Accumulator tiles for the counters in the grid; steps for the passes around inner products."""
    outer = {item.reduction for p in passes for item in p.items}
    m = [a for a in grid if any(a in roles.m for roles in products.values())]
    n = [a for a in grid if a not in m and any(a in roles.n for roles in products.values())]
    nested = [r for r in products if r not in outer]
    bulk = all(_reads_shared(r, target) for r in products)
    rows, columns = _accumulator(target, nested, m, n, grid, bulk)
    _fill(tile, m, rows)
    _fill(tile, n, columns)
    for a in grid:
        tile.setdefault(a, 1)
    if nested:
        for p in passes:
            for a in p.axes:
                tile[a] = min(largest(a), PASS_TILE[target.kind] if bulk or target.kind == "cpu" else PANEL_PASS_TILE)


def _reads_shared(reduction: Node, target: Target) -> bool:
    """Whether an instruction takes both operands from shared memory, so that accumulators may fill the registers."""
    a, b = (narrow(x).dtype for x in reduction.src[0].src)
    return any((i.a, i.b) == (a, b) and "shared" in i.b_space for i in target.matrix)


def _accumulator(target: Target, nested, m, n, grid, bulk: bool) -> tuple[int, int]:
    """Rows and columns of a block, halved until every unit has a block or the tile is one register tile."""
    if target.kind == "cpu":
        rows, columns = (64, 64) if nested else (256, 256)
        least_rows, least_columns = target.matrix[0].m, target.matrix[0].n
    else:
        rows, columns = (128, 128 if nested else 256) if bulk else (64, 128) if nested else (128, 128)
        least_rows, least_columns = 64, 64
    batch = prod(largest(a) for a in grid if a not in m and a not in n)
    total_m, total_n = prod(map(largest, m)), prod(map(largest, n))

    def blocks():
        return batch * -(-total_m // rows) * -(-total_n // columns)
    while blocks() < target.units and (rows > least_rows or columns > least_columns):
        if columns > least_columns and min(columns, total_n) >= min(rows, total_m):
            columns //= 2
        elif rows > least_rows:
            rows //= 2
        else:
            columns //= 2
    return rows, columns


def _row_tiles(tile, grid, kernel: Kernel, passes: list[Pass], target: Target) -> None:
    """Reductions that are no products: few long rows a block, or a stretch of neighbouring columns."""
    if not grid:
        return
    row = max(prod(largest(a) for a in p.axes) for p in passes)
    read = [n for s in kernel.sinks for n in loads(s.value)]
    main = max(read, key=lambda n: prod(map(largest, free_axes(n.src[0]))), default=None)
    columns = [a for a in grid if main is not None and dict(linear(main.src[0])[0]).get(a) == 1]
    along = columns[0] if columns else grid[-1]
    total = prod(map(largest, grid))
    wanted = 256 if columns else 16 if len(passes) == 1 else max(1, min(2048 // row, 64))
    while wanted > 1 and total // wanted < 4 * target.units:
        wanted //= 2
    tile[along] = _even(largest(along), wanted)
    for a in grid:
        tile.setdefault(a, 1)


def _reduce_tile(reduction: Node, counter: Node, is_outer: bool, target: Target) -> int:
    size = largest(counter)
    if contraction_roles(reduction):
        step = REDUCE_TILE[target.kind]
        return size if not is_outer and size <= 256 else _even(size, step)
    return size if size <= ROW_ELEMENTS[target.kind] else ROW_ELEMENTS[target.kind] // 4


def _fill(tile: dict[Node, int], counters, budget: int) -> None:
    """Give the counters tiles from the last to the first, whole ones while the budget lasts."""
    for counter in reversed(list(counters)):
        size = largest(counter)
        tile[counter] = _even(size, max(1, budget))
        budget //= tile[counter]


def _even(size: int, budget: int) -> int:
    """A tile of at most `budget`: one that divides the size if it is not much smaller, else equal parts."""
    if size <= budget:
        return size
    for part in range(budget, budget // 2, -1):
        if size % part == 0 and (part % 16 == 0 or budget < 16):
            return part
    part = -(-size // -(-size // budget))
    return min(budget, -(-part // 16) * 16)


def _shared(kernel: Kernel, current: Pass, tile: dict[Node, int]) -> tuple[Node, ...]:
    """Costly values that move with the pass's counters and that more than one of its statements uses."""
    users = [item.summand for item in current.items]
    if all(tile[a] >= largest(a) for a in current.axes):
        users += [s.value for s in kernel.sinks]
    seen: dict[Node, int] = {}
    for value in users:
        for part in _outside_reductions(value):
            seen[part] = seen.get(part, 0) + 1
    twice = {p for p, count in seen.items() if count > 1 and free_axes(p) & set(current.axes) and
             _is_costly(p, set(current.axes))}
    tops = set(users) & twice
    for value in users:
        for part in _outside_reductions(value):
            if part not in twice:
                tops.update(s for s in part.src if s in twice)
    return tuple(p for p in toposort(*users) if p in tops)


def _outside_reductions(value: Node) -> list[Node]:
    return [n for n in toposort(value, enter=lambda n: n.op is not REDUCE) if n.op is not REDUCE]


def _is_costly(value: Node, axes: set[Node]) -> bool:
    inside = toposort(value, enter=lambda n: n.op not in (REDUCE, LOAD))
    if value.op is LOAD or not value.dtype.is_float:
        return False
    return any(n.op in COSTLY or (n.op is REDUCE and free_axes(n) & axes) for n in inside)
