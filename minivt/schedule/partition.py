"""Where a graph is cut into kernels: everything is fused that may be, then cut where the cost model says so.

A node is computed inside the kernel that uses it. It gets a kernel of its own when it is a result or an effect, when
two kernels would repeat a reduction below it, or when the kernel around it would repeat work or run on too few
blocks (cost.py). Not for the order of kernels or their memory (schedule.py).
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Callable

from minivt import ops
from minivt.graph import Node, toposort, users

ALWAYS_CUT = frozenset((ops.COPY, ops.ASSIGN, ops.SCATTER, ops.SCAN, ops.CUSTOM, ops.CONTIGUOUS))
SOURCES = frozenset((ops.BUFFER, ops.CONST, ops.VARIABLE, ops.ARANGE))
KERNEL_NODES = 250    # a kernel holds at most a few hundred operations
KERNEL_PLACES = 32    # indices at which one kernel may ask for a value that holds reductions
REPEATED_NODES = 48   # operations that two kernels may both compute rather than pass through memory


@dataclass
class Partition:
    """roots: nodes that get memory, sources first; each is computed by one kernel from buffers and other roots."""
    roots: list[Node]
    order: list[Node]

    @cached_property
    def root_set(self) -> frozenset[Node]:
        return frozenset(self.roots)

    def is_inside(self, n: Node) -> bool:
        """Whether a node under some root is computed in that root's kernel."""
        return n not in self.root_set and n.op is not ops.BUFFER

    def cone(self, root: Node) -> list[Node]:
        """The nodes inside the root's kernel, sources first; buffers and other roots are leaves."""
        return toposort(root, enter=lambda n: (n is root or n not in self.root_set) and n.op is not ops.BUFFER)


def partition(sinks: list[Node], wanted_cuts: Callable[[Partition], set[Node]]) -> Partition:
    """Cut the graph below the sinks; `wanted_cuts` looks at a partition and names nodes that must leave a kernel.

    before:  h = gelu(x @ a); y = h @ b
    after:   kernel 1: h = gelu(x @ a);  kernel 2: y = h @ b
    """
    order = toposort(*sinks, enter=lambda n: n.op is not ops.BUFFER)
    readers = users(order)
    cuts = {s for s in sinks if s.op is not ops.BUFFER} | {n for n in order if n.op in ALWAYS_CUT}
    cuts |= {s for n in order if n.op in ALWAYS_CUT and n.op is not ops.CONTIGUOUS for s in _memory_inputs(n)}
    while True:
        found = _assign_homes(order, readers, cuts, boundary=cuts)
        found = _assign_homes(order, readers, cuts, boundary=found)
        result = Partition([n for n in order if n in found], order)
        more = wanted_cuts(result) - cuts
        if not more:
            return result
        cuts |= more


def _memory_inputs(effect: Node) -> tuple[Node, ...]:
    """The inputs of an effect that must lie in memory: a version that is written next, and what its kernel cannot
    compute itself. The kernel of an ASSIGN computes its value, those of SCATTER and SCAN maps over memory."""
    if effect.op is ops.ASSIGN:
        inputs = effect.src[:1]
    elif effect.op is ops.SCATTER:
        inputs = (effect.src[0], *(s for s in effect.src[1:] if not _is_map(s)))
    elif effect.op is ops.SCAN:
        inputs = tuple(s for s in effect.src if not _is_map(s))
    else:
        inputs = effect.src
    return tuple(s for s in inputs if s.op is not ops.BUFFER)


def _is_map(value: Node) -> bool:
    """Whether at most REPEATED_NODES elementwise and moving operations stand between the value and memory."""
    below = toposort(value, enter=lambda n: n.op not in SOURCES and n.op not in ALWAYS_CUT)
    return len(below) <= REPEATED_NODES and all(
        n.op in ops.ELEMENTWISE or n.op in ops.MOVEMENT or n.op in SOURCES or n.op in ALWAYS_CUT for n in below)


def _assign_homes(order, readers, cuts: set[Node], boundary: set[Node]) -> set[Node]:
    """The roots: cuts, and nodes over reductions that several kernels want."""
    cost = _repeated_cost(order, boundary)
    roots = set(cuts)
    places = _Places(order)
    homes: dict[Node, set[Node]] = {}
    count: dict[Node, int] = {}
    for current in reversed(order):
        if current in roots or current.op in SOURCES:
            if current in roots:
                homes[current] = {current}
            continue
        wanted = set()
        for reader in readers[current]:
            wanted |= homes.get(reader, set())
        several = len(wanted) > 1 and current.op not in ops.MOVEMENT and cost[current] > REPEATED_NODES
        full = current.op not in ops.MOVEMENT and any(count.get(h, 0) > KERNEL_NODES for h in wanted)
        if several or full or places.too_many(current, readers[current], roots):
            roots.add(current)
            homes[current] = {current}
            continue
        homes[current] = wanted
        for h in wanted:
            count[h] = count.get(h, 0) + 1
    return roots


class _Places:
    """At how many indices one kernel asks for each value: every path through movement or reductions is one.

    Residual layers ask twice for the layer below, at an element and along a row; uncut they would ask 2^layers times.
    """

    def __init__(self, order: list[Node]):
        self.reducing: set[Node] = set()
        for current in order:
            if current.op in ops.REDUCE or not self.reducing.isdisjoint(current.src):
                self.reducing.add(current)
        self.numbers: dict[tuple, int] = {}         # (node, the place of its reader) -> the place below it
        self.home: dict[int, Node] = {}             # place -> the root of its kernel
        self.asked: dict[Node, frozenset[int]] = {}

    def too_many(self, current: Node, readers: list[Node], roots: set[Node]) -> bool:
        """Whether a kernel would compute reductions at more than KERNEL_PLACES indices; to be asked readers first."""
        if current not in self.reducing:
            return False
        asked = set()
        for reader in readers:
            for above in (reader,) if reader in roots else self.asked.get(reader, ()):
                moves = reader.op not in ops.ELEMENTWISE
                if moves or above is reader:
                    place = self.numbers.setdefault((reader if moves else None, above), len(self.numbers))
                    self.home[place] = reader if above is reader else self.home[above]
                    above = place
                asked.add(above)
        self.asked[current] = frozenset(asked)
        most = max(Counter(self.home[place] for place in asked).values(), default=0)
        return most > KERNEL_PLACES and current.op not in ops.MOVEMENT


def _repeated_cost(order: list[Node], boundary: set[Node]) -> dict[Node, int]:
    """Operations repeated by a second kernel that computes the node again; a reduction counts as very many."""
    cost: dict[Node, int] = {}
    for current in order:
        below = sum(0 if s in boundary or s.op in SOURCES else cost[s] for s in dict.fromkeys(current.src))
        own = 0 if current.op in ops.MOVEMENT else 1 << 20 if current.op in ops.REDUCE else 1
        cost[current] = min(1 << 40, below + own)
    return cost


def climb(current: Node, readers: dict[Node, list[Node]], roots: set[Node]) -> Node:
    """The last value over `current` with as many elements: what is worth storing in its place.

    before:  g = sum ...;  h = g * sigmoid(g);  y = sum over f of expand(h) * w   (cut wanted at g)
    after:   the cut is at h
    """
    while current not in roots:
        above = readers.get(current, [])
        elementwise = [r for r in above if r.op in ops.ELEMENTWISE or r.op is ops.RESHAPE or r.op is ops.PERMUTE]
        if len(above) != len(elementwise) or not above:
            break
        top = _meeting_point(current, readers)
        if top is None:
            break
        current = top
    while current.op in ops.MOVEMENT:
        current = current.src[0]
    return current


def _meeting_point(current: Node, readers: dict[Node, list[Node]]) -> Node | None:
    """The nearest node above through which every elementwise use of `current` goes; None where uses part."""
    front, seen = set(readers[current]), set()
    for _ in range(16):
        if len(front) == 1:
            return next(iter(front))
        following = set()
        for n in front:
            seen.add(n)
            above = readers.get(n, [])
            if not above or any(r.op not in ops.ELEMENTWISE and r.op not in (ops.RESHAPE, ops.PERMUTE) for r in above):
                following.add(n)
            else:
                following |= set(above)
        if following == front:
            return None
        front = {n for n in following if not any(n is not m and n in m.src for m in following)} or following
    return None
