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
    """The value over u = a * x + b * y, x, u, and that sum; None where x and y do not count through one sum."""
    forms, parts = _index_forms(value), None
    for form in forms:
        cx, cy = (dict(linear(form)[0]).get(c, 0) for c in (x, y))
        if cx and cy and parts is None and cx > 0 and cy > 0:
            parts = cx // gcd(cx, cy), cy // gcd(cx, cy)
    if parts is None:
        return None
    a, b = parts
    size = a * (axis_size(x) - 1) + b * (axis_size(y) - 1) + 1
    if size >= axis_size(x) * axis_size(y):
        return None
    u = axis(("sum", x.arg[0], y.arg[0]), size, "tile")
    replaced: dict[Node, Node] = {}
    for form in forms:
        terms = dict(linear(form)[0])
        if any(c in walk(atom) for atom in terms if atom.op is not AXIS for c in (x, y)):
            return None
        cx, cy = terms.get(x, 0), terms.get(y, 0)
        if cx * b == cy * a and cx % a == 0:
            replaced[form] = add(form, mul(x, -cx), mul(y, -cy), mul(u, cx // a))
    relaxed = {n: _relaxed(n, x, y, u, a, b) for n in walk(value) if n.op is ops.LT and n.src[0].dtype is dtypes.index
               and not set(n.src) <= replaced.keys()}
    if None in relaxed.values() or not all(
            set(s for s in n.src if s.dtype is dtypes.index) <= replaced.keys()
            for n in walk(value) if n.dtype is not dtypes.index and n not in relaxed):
        return None
    value, = substitute([value], {**replaced, **relaxed}, build)
    return value, x, u, add(mul(x, a), mul(y, b))


def _index_forms(value: Node) -> list[Node]:
    """The index expressions of which the value is made, each as large as it can be."""
    return list(dict.fromkeys(s for n in walk(value) if n.dtype is not dtypes.index for s in n.src
                              if s.dtype is dtypes.index))


def _relaxed(condition: Node, x: Node, y: Node, u: Node, a: int, b: int) -> Node | None:
    """A limit of x alone as the limit that it sets for u: of all sums over such x it cuts off none, and no more are
    let through than lie between two of them."""
    left, right = condition.src
    terms = dict(linear(left)[0])
    if terms.get(x, 0) != 1 or terms.get(y, 0) or any(c in walk(right) for c in (x, y)):
        return None
    rest = add(left, mul(x, -1))
    return lt(add(u, mul(rest, a)), add(mul(add(right, -1), a), b * (axis_size(y) - 1) + 1))


def window_index(axes: tuple[Node, ...], lanes: int) -> tuple[Node, int]:
    """The index of a window in private memory, its last axis padded to whole vectors, and the number of elements."""
    index, size = add(0), 1
    for a in axes:
        extent = axis_size(a) if a is not axes[-1] else -(-axis_size(a) // lanes) * lanes
        index, size = add(mul(index, extent), a), size * extent
    return index, size + lanes  # a vector that begins inside may end outside
