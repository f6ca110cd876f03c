"""The cost model of fusion: whether a kernel, tried as a whole, repeats work or leaves the device idle.

A verdict names the reason; partition.py then cuts and tries again. Rules, in order:
- 'recompute': a reduction inside the kernel would be computed more than once, or its tile would not fit;
- 'parallelism': all reductions of the kernel share so few counters that most of the device would wait.
"""
from __future__ import annotations

from math import prod

from minivt.codegen.target import Target
from minivt.graph import Node, toposort
from minivt.schedule.kernel import Kernel, free_axes, reductions
from minivt.schedule.online import find_passes, pull_factors, share_axes
from minivt.schedule.tile_sizes import grid_axes, largest

SERIAL_WORK = 1 << 18   # operations that one block may do while others could have helped
OWN_COLUMNS = 256       # columns that one block can accumulate beside its rows


def verdict(kernel: Kernel, reduced: int, target: Target) -> str | None:
    """Why the kernel must be cut; None where it is good. reduced: reductions in the graph it came from."""
    roots = tuple(pull_factors(tuple(share_axes(kernel.roots))))
    passes = find_passes(roots)
    if not passes:
        return None
    outer = [item.reduction for p in passes for item in p.items]
    grid = grid_axes(kernel, passes)
    every = reductions(*roots)
    if len(every) > reduced or any(_uses(r, passes, roots, outer) > 1 for r in every):
        return "recompute"
    counted = {a for p in passes for a in p.axes}
    if any(a.arg[2] == "reduce" and a not in counted for r in every for a in free_axes(r)):
        return "recompute"  # a reduction two loops deep
    for r in outer:
        if prod(largest(a) for a in free_axes(r) if a in kernel.axes and a not in grid) > OWN_COLUMNS:
            return "recompute" if len(reductions(r)) > 1 else "parallelism"
    blocks = prod(map(largest, grid))
    if blocks < min(64, target.units) and any(
            own > blocks and own * each > SERIAL_WORK for own, each in _work(kernel, roots)):
        return "recompute" if len(every) > len(outer) else "parallelism"
    return None


def _work(kernel: Kernel, roots):
    """For each reduction and the sinks: how many results could be computed side by side, and operations for each."""
    yield prod(map(largest, kernel.axes)), 1
    for r in reductions(*roots):
        yield prod(map(largest, free_axes(r))), prod(map(largest, r.arg[1]))


def _uses(inner: Node, passes, roots, outer: list[Node]) -> int:
    """In how many passes, or after them, a reduction that belongs inside a pass would run."""
    if inner in outer:
        return 1
    inside = sum(any(inner in _without(item.summand, outer) for item in p.items) for p in passes)
    return inside + any(inner in _without(r, outer) for r in roots)


def _without(value: Node, outer: list[Node]) -> set[Node]:
    return set(toposort(value, enter=lambda n: n not in outer))
