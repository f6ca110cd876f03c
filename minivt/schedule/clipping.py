"""Clip loops to where their masks can hold, and split off the part where they always hold.

A masked-out step adds the reduction's identity, so skipping it changes nothing but time: causal attention does half
the work, a window of 512 touches 512 keys. Not for finding the masks of a pass (tiling.py).
"""
from __future__ import annotations

from dataclasses import dataclass

from minivt import dtypes, ops
from minivt.codegen.tile import LOAD
from minivt.graph import Node, const, node, substitute, walk
from minivt.schedule.indexing import to_index
from minivt.schedule.kernel import identity
from minivt.symbolic import (AXIS, FALSE, TRUE, add, as_index, axis_size, bounds, build, conjuncts, idiv, linear,
                             maximum, minimum, mul, sub)


@dataclass(frozen=True)
class Interval:
    """start <= counter < stop; `holds` are the conditions that are true on all of it."""
    start: Node
    stop: Node
    holds: tuple[Node, ...]


def is_masked_out(value: Node, condition: Node, op: ops.Op) -> bool:
    """Whether the value is the identity of `op` wherever the condition (a conjunction) is false."""
    for part in conjuncts(condition):
        outside, = substitute([value], {part: FALSE}, _absorb)
        if outside is not identity(op, value.dtype):
            return False
    return True


def _absorb(parent: Node, src: tuple[Node, ...]) -> Node:
    """Rebuild with what 0 and -inf absorb: 0 * x is 0, -inf + x is -inf, exp2(-inf) is 0."""
    op = parent.op
    constants = [s for s in src if s.op is ops.CONST]
    if op is LOAD and src[1] is FALSE:
        return const(0, parent.dtype)
    if op is ops.AND and FALSE in src:
        return FALSE
    if op is ops.WHERE and src[0] in (TRUE, FALSE):
        return src[1] if src[0] is TRUE else src[2]
    if op in (ops.MUL, ops.DIV) and src[0].dtype.is_float:
        for c in constants:
            if c.arg == 0 and (op is ops.MUL or c is src[0]):
                return const(0, parent.dtype)
        if op is ops.MUL and len(constants) == 2:
            return const(constants[0].arg * constants[1].arg, parent.dtype)
        if op is ops.MUL and len(constants) == 1 and constants[0].arg == float("-inf"):
            return node(op, src)
    if op is ops.ADD and any(c.arg == float("-inf") for c in constants):
        return const(float("-inf"), parent.dtype)
    if op is ops.EXP2 and constants and constants[0].arg == float("-inf"):
        return const(0, parent.dtype)
    if op is ops.CAST and constants and parent.dtype.is_float and src[0].dtype.is_float:
        return const(constants[0].arg, parent.dtype)
    return build(parent, src)


def clip(counter: Node, conditions: list[Node]) -> list[Interval] | None:
    """The intervals of a block counter that the conditions leave; None where no condition speaks of it.

    before:  for k in 0..T:      m = max(m, where(k <= q, s[q, k], -inf))
    after:   for k in 0..q:      m = max(m, s[q, k])          # holds: k <= q
             for k in q..q + 1:  m = max(m, where(k <= q, s[q, k], -inf))
    """
    start, stop = as_index(0), as_index(axis_size(counter))
    inner_start, inner_stop = start, stop
    solved = []
    for condition in conditions:
        solution = _solve(counter, condition)
        if solution is None:
            continue
        solved.append(condition)
        low, high, inner_low, inner_high = solution
        start, stop = maximum(start, low), minimum(stop, high)
        inner_start, inner_stop = maximum(inner_start, inner_low), minimum(inner_stop, inner_high)
    if not solved:
        return None
    holds = tuple(solved)
    inner_start = minimum(maximum(inner_start, start), stop)
    inner_stop = maximum(minimum(inner_stop, stop), inner_start)
    intervals = [Interval(start, inner_start, ()), Interval(inner_start, inner_stop, holds),
                 Interval(inner_stop, stop, ())]
    return [i for i in intervals if bounds(sub(i.stop, i.start))[1] > 0]


def _solve(counter: Node, condition: Node):
    """Where a < b can hold for the block counter: (low, high) somewhere in the tile, (low, high) everywhere in it."""
    if condition.op is not ops.LT or not condition.src[0].dtype.is_int or condition.src[0].dtype is dtypes.uint64:
        return None
    low, high = map(to_index, condition.src)
    terms, constant = linear(sub(high, low))  # > 0
    coefficient = dict(terms).get(counter, 0)
    rest = [(a, c) for a, c in terms if a is not counter]
    if not coefficient or any(counter in walk(a) for a, _ in rest) or not all(_extremal(a) for a, _ in rest):
        return None
    most, least = (add(constant, *(mul(_extreme(a, (c > 0) == up), c) for a, c in rest)) for up in (True, False))
    everything = bounds(as_index(axis_size(counter)))[1]
    if coefficient < 0:  # -c * counter + rest > 0: counter < rest / c
        step = -coefficient
        return as_index(0), idiv(add(most, step - 1), step), as_index(0), idiv(add(least, step - 1), step)
    # c * counter + rest > 0: counter > -rest / c
    return (add(idiv(sub(0, most), coefficient), 1), as_index(everything),
            add(idiv(sub(0, least), coefficient), 1), as_index(everything))


def _extremal(atom: Node) -> bool:
    """Whether the atom's extremes over the tile are known: a counter, or something that no tile counter moves."""
    return atom.op is AXIS or not any(n.op is AXIS and n.arg[2] == "tile" for n in walk(atom))


def _extreme(atom: Node, largest: bool) -> Node:
    if atom.op is AXIS and atom.arg[2] == "tile":
        return as_index(axis_size(atom) - 1 if largest else 0)
    return atom
