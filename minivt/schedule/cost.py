"""The cost model of fusion: whether a kernel, tried as a whole, repeats work or leaves the device idle.

A verdict names what is wrong; schedule.py then chooses what to store and tries again. Rules, in order:
- a reduction of the graph would be computed by more than one expression, or in more than one pass;
- a reduction sits two loops deep, or accumulates more columns than a block can hold;
- all reductions of the kernel share so few counters that most of the device would wait.
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minivt.codegen.target import Target
from minivt.graph import Node, toposort
from minivt.schedule.kernel import Kernel, free_axes, reductions
from minivt.schedule.online import Pass, find_passes, pull_factors, share_axes
from minivt.schedule.tile_sizes import grid_axes, largest

SERIAL_WORK = 1 << 18   # operations that one block may do while others could have helped
OWN_COLUMNS = 256       # columns that one block can accumulate beside its rows


@dataclass(frozen=True)
class Verdict:
    """Why a kernel must be cut. repeated: origins of reductions computed more than once; nested: whether reductions
    inside others are to be stored, else what the last reduction reads."""
    repeated: frozenset[int] = frozenset()
    nested: bool = False


def verdict(kernel: Kernel, target: Target) -> Verdict | None:
    """Why the kernel must be cut; None where it is good."""
    roots = tuple(pull_factors(tuple(share_axes(kernel.roots))))
    passes = find_passes(roots)
    if not passes:
        return None
    outer = [item.reduction for p in passes for item in p.items]
    every = reductions(*roots)
    repeated = _repeated(every, passes, roots, outer)
    if repeated:
        return Verdict(repeated)
    counted = {a for p in passes for a in p.axes}
    if any(a.arg[2] == "reduce" and a not in counted for r in every for a in free_axes(r)):
        return Verdict(nested=True)  # a reduction two loops deep
    grid = grid_axes(kernel, passes)
    for r in outer:
        if prod(largest(a) for a in free_axes(r) if a in kernel.axes and a not in grid) > OWN_COLUMNS:
            return Verdict(nested=len(reductions(r)) > 1)
    blocks = prod(map(largest, grid))
    if blocks < min(64, target.units) and any(own > blocks and own * each > SERIAL_WORK
                                              for own, each in _work(kernel, roots)):
        return Verdict(nested=len(every) > len(outer))
    return None


def _repeated(every: list[Node], passes: list[Pass], roots, outer: list[Node]) -> frozenset[int]:
    """Origins that more than one expression or pass computes; of those inside one another only the outermost."""
    expressions: dict[int, set[Node]] = {}
    for r in every:
        expressions.setdefault(r.arg[2], set()).add(r)
    found = {origin for origin, same in expressions.items() if len(same) > 1}
    found |= {r.arg[2] for r in every if _uses(r, passes, roots, outer) > 1}
    inside = {r.arg[2] for r in every for above in every if above.arg[2] in found and above is not r
              and above.arg[2] != r.arg[2] and r in toposort(above)}
    return frozenset(found - inside)


def _work(kernel: Kernel, roots):
    """For each reduction and the sinks: how many results could be computed side by side, and operations for each."""
    yield prod(map(largest, kernel.axes)), 1
    for r in reductions(*roots):
        yield prod(map(largest, free_axes(r))), prod(map(largest, r.arg[1]))


def _uses(inner: Node, passes: list[Pass], roots, outer: list[Node]) -> int:
    """In how many passes, or after them, a reduction that belongs inside a pass would run."""
    if inner in outer:
        return 1
    inside = sum(any(inner in _without(item.summand, outer) for item in p.items) for p in passes)
    return inside + any(inner in _without(r, outer) for r in roots)


def _without(value: Node, outer: list[Node]) -> set[Node]:
    return set(toposort(value, enter=lambda n: n not in outer))
