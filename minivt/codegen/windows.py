"""Operands of a contraction that slide: a value that many combinations of counters share is computed once.

A convolution reads its input at sums of a counter of the result and one of the kernel, so neighbouring windows overlap.
Over the sum as a counter of its own the value is a patch of the input, which is copied to private memory once instead
of once for each place of the kernel. Found by structure. Not for packing in the order of registers (packing.py).
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from minivt import dtypes, ops
from minivt.codegen.tile import LOAD, READ, tile_axes
from minivt.graph import Node, substitute, walk
from minivt.symbolic import AXIS, add, axis, axis_size, build, linear, lt, mul


@dataclass(frozen=True)
class Window:
    """`value` over `axes`, some of which are sums of the counters that it was over: sums holds (axis, what it is)."""
    value: Node
    axes: tuple[Node, ...]
    sums: tuple[tuple[Node, Node], ...]

    def moves_by_one(self, counter: Node) -> bool:
        """Whether the next value of a counter is the next element of the window's last axis."""
        last = self.axes[-1]
        return dict(linear(dict(self.sums).get(last, last))[0]).get(counter) == 1


@lru_cache(maxsize=1 << 12)
def shared_window(value: Node, k: tuple[Node, ...]) -> Window | None:
    """The value over sums of a kept and a summed counter, where it depends on the two through the sum alone.

    before:  x[t + k] over t < 56, k < 3
    after:   x[u] over u < 58, read at u = t + k
    """
    counters, sums = tile_axes(value), []
    kept = counters - set(k)
    if any(n.op is READ and not kept.isdisjoint(n.arg.axes) for n in walk(value)):
        return None
    for y in (a for a in k if a in counters):
        found = next((f for x in sorted(kept, key=axis_size) if (f := _joined(value, x, y)) is not None), None)
        if found is not None:
            value, x, u, total = found
            kept, counters = kept - {x}, (counters - {x, y}) | {u}
            sums.append((u, total))
    if not sums:
        return None
    strides = dict(linear(next(n for n in walk(value) if n.op is LOAD).src[0])[0])
    order = sorted(counters, key=lambda a: (-abs(strides.get(a, 0)), str(a.arg[0])))
    return Window(value, tuple(order), tuple(sums))


def _joined(value: Node, x: Node, y: Node) -> tuple[Node, Node, Node, Node] | None:
    """The value over u = a * x + b * y + start, x, u, and that sum; None where x and y do not count through one sum."""
    forms, parts = _index_forms(value), None
    for form in forms.values():
        cx, cy = (dict(linear(form)[0]).get(c, 0) for c in (x, y))
        if cx and cy and parts is None:
            parts = abs(cx) // gcd(cx, cy), cy // gcd(cx, cy) * (1 if cx > 0 else -1)
    if parts is None:
        return None
    a, b = parts
    last = axis_size(y) - 1
    start = max(0, -b * last)  # where b is negative the sum counts from its lowest value
    size = a * (axis_size(x) - 1) + abs(b) * last + 1
    if size >= axis_size(x) * axis_size(y):
        return None
    u = axis(("sum", x.arg[0], y.arg[0]), size, "tile")
    replaced: dict[Node, Node] = {}
    for place, form in forms.items():
        terms = dict(linear(form)[0])
        if any(c in walk(atom) for atom in terms if atom.op is not AXIS for c in (x, y)):
            return None
        cx, cy = terms.get(x, 0), terms.get(y, 0)
        if cx * b == cy * a and cx % a == 0:
            moved = add(form, mul(x, -cx), mul(y, -cy), mul(add(u, -start), cx // a))
            replaced[place] = lt(0, moved) if place.op is ops.LT else moved
        elif place.op is ops.LT and (cx, cy) == (-1, 0):
            replaced[place] = _relaxed(add(form, x), u, a, abs(b) * last)
        else:
            return None
    value, = substitute([value], replaced, build)
    return value, x, u, add(mul(x, a), mul(y, b), start)


def _index_forms(value: Node) -> dict[Node, Node]:
    """The index expressions of which the value is made, each as large as it can be, and those of comparisons: right
    minus left, which is above 0."""
    found = {}
    for n in walk(value):
        if n.op is ops.LT and n.src[0].dtype is dtypes.index:
            found[n] = add(n.src[1], mul(n.src[0], -1))
        elif n.dtype is not dtypes.index:
            found |= {s: s for s in n.src if s.dtype is dtypes.index}
    return found


def _relaxed(limit: Node, u: Node, a: int, most: int) -> Node:
    """x < limit as the condition that it sets for u = a * x + at most `most`: of all sums over such x it cuts off none,
    and no more are let through than lie between two of them."""
    return lt(u, add(mul(add(limit, -1), a), most + 1))


def window_index(axes: tuple[Node, ...], lanes: int) -> tuple[Node, int]:
    """The index of a window in private memory, its last axis padded to whole vectors, and the number of elements."""
    index, size = add(0), 1
    for a in axes:
        extent = axis_size(a) if a is not axes[-1] else -(-axis_size(a) // lanes) * lanes
        index, size = add(mul(index, extent), a), size * extent
    return index, size + lanes  # a vector that begins inside may end outside
