"""Expressions at one point of a loop nest, or at a vector of neighbouring points, as Values.

LANE is the counter of the points of one vector; what does not depend on it stays scalar. Loads follow their stride
along LANE: one neighbour after another is a vector load, one for all is a scalar load, anything else is a gather.
Values live in the outermost loop that they allow. Not for choosing loops or the lane axis (nest.py, vectorize.py).
"""
from __future__ import annotations

from dataclasses import dataclass

from minivt import dtypes, ops
from minivt.codegen import primitives
from minivt.codegen.render.llvm import Builder, Value
from minivt.codegen.tile import LOAD, Param
from minivt.dtypes import DType
from minivt.graph import Node, substitute, toposort, walk
from minivt.symbolic import AXIS, FALSE, TRUE, add, as_index, axis, bounds, build, linear


AHEAD = 2048  # bytes


@dataclass(frozen=True)
class Scratch:
    """An array in the private memory of a task; offset and size are bytes and elements."""
    name: str
    dtype: DType
    offset: int
    size: int


def lane_counter(lanes: int) -> Node:
    return axis("lane", lanes, "lane")


class Lanes:
    """Evaluates nodes in the innermost open scope of a Builder.

    addresses: the Value of each Param's and Scratch's first element; fixed: the Values of counters and VARIABLEs.
    """

    def __init__(self, builder: Builder, addresses: dict, fixed: dict[Node, Value]):
        self.builder, self.addresses, self.fixed = builder, addresses, fixed
        self.lane: Node | None = None
        self.lanes = 0
        self.floor = 0           # the depth of the statement: no load moves further out
        self.written: set = set()  # what the statement itself writes: such loads do not move at all
        self.known: list[dict] = [{}]  # by depth: Values by node, transposed blocks by what they load
        self.streams: frozenset[Node] | None = None  # counters whose loads are streams that are worth fetching ahead
        self.crossed: tuple[int, int] | None = None  # see _crossed: the current copy and how many there are
        self._counters: dict[Node, frozenset[Node]] = {}

    # --- scopes ---

    def begin(self, lane: Node | None, lanes: int, written: set) -> None:
        """Start a statement."""
        self.builder.open_block()
        self.known.append({})
        self.lane, self.lanes, self.floor, self.written = lane, lanes, self.builder.depth, written

    def end(self) -> None:
        self.builder.close_block()
        self.known.pop()

    def open_loop(self, counter: Node, start: Value, stop: Value, carried=(), guard: bool = False) -> list[Value]:
        count, *carried = self.builder.open_loop(start, stop, carried, guard)
        self.known.append({counter: count})
        return carried

    def close_loop(self, carried=()) -> list[Value]:
        self.known.pop()
        return self.builder.close_loop(carried)

    # --- dependence ---

    def counters(self, value: Node) -> frozenset[Node]:
        """The counters that a value depends on."""
        found = self._counters.get(value)
        if found is None:
            found = self._counters[value] = frozenset(n for n in walk(value) if n.op is AXIS)
        return found

    def stride(self, index: Node) -> int | None:
        """How far the index moves from lane to lane; None where that varies."""
        coefficient = 0
        for atom, c in linear(index)[0]:
            if atom is self.lane:
                coefficient += c
            elif self.lane in self.counters(atom):
                if not self._divides_evenly(atom):
                    return None
                coefficient += c if atom.op is ops.MOD else 0
        return coefficient

    def _divides_evenly(self, atom: Node) -> bool:
        """Whether an atom is a quotient or remainder whose divisor no vector straddles: (16 i + lane) // 32, say."""
        if atom.op not in (ops.IDIV, ops.MOD) or atom.src[1].op is not ops.CONST or atom.src[1].arg % self.lanes:
            return False
        terms, constant = linear(atom.src[0])
        others = [c for a, c in terms if a is not self.lane]
        return dict(terms).get(self.lane) == 1 and constant % self.lanes == 0 and \
            not any(c % self.lanes for c in others) and \
            not any(self.lane in self.counters(a) for a, _ in terms if a is not self.lane)

    def _first(self, index: Node) -> Node:
        """The index of lane 0, whether the lane is a term or inside a quotient."""
        return substitute([index], {self.lane: as_index(0)}, build)[0] if self.lane in self.counters(index) else index

    # --- values ---

    def value(self, root: Node) -> Value:
        found = self._find(root)
        if found is not None:
            return found
        for current in toposort(root, enter=lambda n: self._find(n) is None):
            if self._find(current) is None:
                made = self._make(current)
                self.known[min(made.depth, len(self.known) - 1)][current] = made
        return self._find(root)

    def keep(self, load: Node, value: Value) -> None:
        """Let a later load of what was just stored be the value itself."""
        self.known[-1][load] = value

    def _find(self, current: Node) -> Value | None:
        for known in reversed(self.known):
            if current in known:
                return known[current]
        return self.fixed.get(current)

    def _make(self, current: Node) -> Value:
        b, op = self.builder, current.op
        if op is ops.CONST:
            return b.const(current.arg, current.dtype)
        if current is self.lane:
            return b.iota(self.lanes)
        if op is LOAD:
            return self._load(current)
        args = [self._find(s) for s in current.src]
        if op in (ops.IDIV, ops.MOD) and current.dtype is dtypes.index:
            (low, _), (least, _) = map(bounds, current.src)
            if low >= 0 and least > 0:
                x, y = map(b.unsigned, args)
                return b.bits(b.quotient(x, y, op is ops.MOD), dtypes.index)
        return primitives.apply(b, op, current.dtype, args)

    # --- memory ---

    def _load(self, current: Node) -> Value:
        b, where, (index, valid) = self.builder, current.arg, current.src
        dtype, base = current.dtype, self.addresses[where]
        floor = b.depth if where in self.written else self.floor
        mask = None if valid is TRUE else self.value(valid)
        stride = self.stride(index)
        if stride == 0:
            return self._uniform(base, index, dtype, mask, floor)
        if stride == 1:
            start = self._start(base, index, dtype)
            self._prefetch(current, start)
            return b.load(start, dtype, self.lanes, floor, mask)
        if stride is not None and self.crossed:
            return self._crossed(current, base)
        return b.load(b.address(base, self.value(index), dtype), dtype, self.lanes, floor, mask)

    def _prefetch(self, current: Node, start: Value) -> None:
        """Fetch a long stream ahead, once a cache line of a body."""
        if self.streams is None or isinstance(current.arg, Scratch) or start.depth < self.builder.depth:
            return
        index, size = current.src[0], current.dtype.itemsize
        if not any(c in self.counters(index) for c in self.streams):
            return
        constant = linear(index)[1]
        key = ("prefetched", current.arg, add(index, -constant), constant * size // 64)
        if key not in self.known[-1]:
            self.known[-1][key] = start
            self.builder.prefetch(start, AHEAD)

    def _crossed(self, current: Node, base: Value) -> Value:
        """One column of a block whose rows, one a lane, are vectors along another counter: transposed in registers.

        That counter has `copies` copies in the loop body and this is copy `turn` of them; the load moves by one from
        copy to copy, and its mask does not depend on them.
        """
        turn, copies = self.crossed
        (index, valid), dtype = current.src, current.dtype
        key = ("crossed", current.arg, add(index, -turn), valid)
        for known in reversed(self.known):
            if key in known:
                return known[key][turn]
        rows = [self._row(base, key[2], valid, lane, copies, dtype) for lane in range(self.lanes)]
        columns = self.known[-1][key] = self.builder.transpose(rows)
        return columns[turn]

    def _row(self, base: Value, index: Node, valid: Node, lane: int, copies: int, dtype: DType) -> Value:
        b = self.builder
        index, valid = substitute((index, valid), {self.lane: as_index(lane)}, build)
        if valid is FALSE:
            return b.splat(b.const(0, dtype), self.lanes)
        address = self._element(base, index, dtype)
        if valid is not TRUE:
            address = b.select(self.value(valid), address, b.zeros())
        mask = b.mask(i < copies for i in range(self.lanes)) if copies < self.lanes else None
        return b.load(address, dtype, self.lanes, self.floor, mask)

    def _uniform(self, base: Value, index: Node, dtype: DType, mask: Value | None, floor: int) -> Value:
        """One element for all lanes; where the mask is false a zero is read instead."""
        b = self.builder
        address = self._element(base, self._first(index), dtype)
        if mask is None:
            return b.load(address, dtype, 0, floor)
        some = b.any(mask) if mask.lanes else mask
        loaded = b.load(b.select(some, address, b.zeros()), dtype, 0, floor)
        return b.select(mask, loaded, b.const(0, dtype)) if mask.lanes else loaded

    def _start(self, base: Value, index: Node, dtype: DType) -> Value:
        """The address of lane 0 of a vector of neighbours."""
        return self._element(base, self._first(index), dtype)

    def _element(self, base: Value, index: Node, dtype: DType) -> Value:
        """base[index], the constant part added last so that neighbouring elements share the rest."""
        b = self.builder
        constant = linear(index)[1]
        if constant:
            base = b.address(base, self.value(add(index, -constant)), dtype)
            return b.address(base, b.const(constant, dtypes.index), dtype)
        return b.address(base, self.value(index), dtype)

    def store(self, where: Param | Scratch, index: Node, value: Value, valid: Node = TRUE) -> None:
        b, base = self.builder, self.addresses[where]
        mask = None if valid is TRUE else self.value(valid)
        stride = self.stride(index) if self.lanes else 0
        if stride == 0:
            value = b.first(value) if value.lanes else value
            b.store(self._element(base, self._first(index), where.dtype), value, mask)
            return
        value = b.splat(value, self.lanes)
        if stride == 1:
            b.store(self._start(base, index, where.dtype), value, mask)
        else:
            b.store(b.address(base, self.value(index), where.dtype), value, mask)
