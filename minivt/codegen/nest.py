"""One statement, or several over the same points, as a nest of loops over vectors and unrolled copies.

An axis is cut into segments of whole unrolled steps and a rest, so every loop body is straight code. In a reduction the
counters that it keeps are outside, the counters that it sums are inside, and all sums of one body stay in registers:
a matrix product's register tile is such a body with several rows and vectors. Not for deciding lanes, unrolling or
layouts (vectorize.py).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator

from minivt import dtypes, ops
from minivt.codegen import primitives
from minivt.codegen.lanes import Lanes, Scratch
from minivt.codegen.pairs import PAIR_PRODUCT
from minivt.codegen.render.llvm import HALF, Value
from minivt.codegen.tile import LOAD, Param
from minivt.graph import Node, const, node, substitute
from minivt.ops import Op
from minivt.symbolic import TRUE, add, axis, axis_size, both, build, lt, mul


@dataclass(frozen=True)
class Assignment:
    """target[index] (op)= value, where valid, for each point; index, valid and value are over the nest's counters.

    reduce: ops.SUM, ops.MAX or None; accumulate: whether the target's old value takes part; stored: whether anything
    outside the nest reads the target.
    """
    target: Param | Scratch
    index: Node
    value: Node
    valid: Node = TRUE
    reduce: Op | None = None
    accumulate: bool = False
    stored: bool = True


@dataclass(frozen=True)
class Shape:
    """How to run a nest: kept counters from outside in, summed counters, the lane axis (None: scalar) and its width.

    copies: of each axis in a body (vectors of the lane axis); partials: partial sums of a sum; cross: the counter along
    which loads that are scattered over lanes are neighbours (see Lanes.crossed).
    """
    kept: tuple[Node, ...]
    summed: tuple[Node, ...] = ()
    lane: Node | None = None
    lanes: int = 0
    copies: tuple[tuple[Node, int], ...] = ()
    partials: int = 1
    cross: Node | None = None


@dataclass(frozen=True)
class Segment:
    """blocks bodies of `copies` steps each; `last`: elements in the very last vector when it is not full."""
    start: int
    blocks: int
    copies: int
    last: int | None = None


class Choice:
    """The position and mask chosen for each counter at one copy of a body; crossed: as in Lanes."""

    def __init__(self, positions: dict[Node, Node], mask: Node, crossed: tuple[int, int] | None = None):
        self.positions, self.mask, self.crossed = positions, mask, crossed


def segments(size: int, copies: int, lanes: int) -> Iterator[Segment]:
    """Cut an axis: whole bodies, then one body of the rest.

    before:  75 elements, 2 copies of 16 lanes
    after:   2 bodies of 2 vectors; 1 body of 1 vector whose last has 11 elements
    """
    width = max(1, lanes)
    blocks = size // (copies * width)
    if blocks:
        yield Segment(0, blocks, copies)
    rest = size - blocks * copies * width
    if rest:
        vectors = -(-rest // width)
        last = rest - (vectors - 1) * width
        yield Segment(blocks * copies * width, 1, vectors, last if last < width else None)


class Nest:
    """Emits the assignments, which all have the counters of `shape`, through `lanes`."""

    def __init__(self, lanes: Lanes, lane_axis: Node | None, shape: Shape, assignments: list[Assignment],
                 streams: frozenset[Node] = frozenset()):
        self.lanes, self.b, self.shape, self.assignments = lanes, lanes.builder, shape, assignments
        self.lane_axis = lane_axis
        self.streams = streams
        self.copies = dict(shape.copies)
        self.loops = 0

    def emit(self) -> None:
        shape = self.shape
        self.lanes.begin(self.lane_axis, shape.lanes, {a.target for a in self.assignments})
        self._kept(0, [Choice({}, TRUE)])
        self.lanes.end()
        self.lanes.streams = None

    # --- counters ---

    def _steps(self, counter: Node) -> Iterator[tuple[Segment, int]]:
        lanes = self.shape.lanes if counter is self.shape.lane else 0
        for segment in segments(axis_size(counter), self.copies.get(counter, 1), lanes):
            yield segment, max(1, lanes)

    def _choices(self, outer: list[Choice], counter: Node, segment: Segment, width: int,
                 block: Node | int) -> list[Choice]:
        """Each choice so far with each copy of one more counter."""
        is_lane = counter is self.shape.lane
        made = []
        for choice in outer:
            for copy in range(segment.copies):
                position = add(mul(block, segment.copies * width), segment.start + copy * width,
                               self.lane_axis if is_lane else 0)
                mask = choice.mask
                if is_lane and segment.last is not None and copy == segment.copies - 1:
                    mask = lt(self.lane_axis, segment.last)
                crossed = (copy, segment.copies) if counter is self.shape.cross else choice.crossed
                made.append(Choice({**choice.positions, counter: position}, mask, crossed))
        return made

    def _block_counter(self, blocks: int) -> Node:
        self.loops += 1
        return axis(("body", self.loops), blocks, "loop")

    def _kept(self, position: int, choices: list[Choice]) -> None:
        if position == len(self.shape.kept):
            self._point(choices)
            return
        counter = self.shape.kept[position]
        for segment, width in self._steps(counter):
            if segment.blocks == 1:
                self._kept(position + 1, self._choices(choices, counter, segment, width, 0))
                continue
            block = self._block_counter(segment.blocks)
            self.lanes.open_loop(block, *self._range(segment))
            self._kept(position + 1, self._choices(choices, counter, segment, width, block))
            self.lanes.close_loop()

    def _range(self, segment: Segment) -> tuple[Value, Value]:
        return self.b.const(0, dtypes.index), self.b.const(segment.blocks, dtypes.index)

    # --- points ---

    def _point(self, choices: list[Choice]) -> None:
        sums = [a for a in self.assignments if a.reduce is not None]
        if not sums:
            for choice in choices:
                for assignment in self.assignments:
                    self._assign(assignment, choice)
            return
        targets = [(a, choice) for a in sums for choice in choices]
        state = [self._initial(a, choice, partial) for a, choice in targets for partial in range(self.shape.partials)]
        if self._across:
            self.lanes.streams = self.streams
        state = self._summed(0, choices, [Choice({}, TRUE)], state)
        for number, (a, choice) in enumerate(targets):
            first = number * self.shape.partials
            self._finish(a, choice, state[first:first + self.shape.partials])

    def _assign(self, assignment: Assignment, choice: Choice) -> None:
        index, valid, value = self._at(choice, assignment.index, assignment.valid, assignment.value)
        self.lanes.crossed = choice.crossed
        made = self.lanes.value(value)
        self.lanes.crossed = None
        if isinstance(assignment.target, Param) or self.lanes.stride(index) not in (0, 1):
            valid = both(valid, choice.mask)
        if assignment.stored:
            self.lanes.store(assignment.target, index, made, valid)
        if isinstance(assignment.target, Scratch):
            self.lanes.keep(node(LOAD, (index, TRUE), assignment.target, made.dtype), made)

    def _at(self, choice: Choice, *roots: Node) -> list[Node]:
        """Expressions with this copy's positions; loads stay inside memory in lanes beyond the axis."""
        lane = self.lane_axis

        def make(parent: Node, src: tuple) -> Node:
            if parent.op is LOAD and choice.mask is not TRUE and lane in self.lanes.counters(src[0]):
                if isinstance(parent.arg, Param) or self.lanes.stride(src[0]) != 1:
                    src = (src[0], both(src[1], choice.mask))
                return node(LOAD, src, parent.arg, parent.dtype)
            if parent.op is ops.CAST and src[0].op is ops.CONST and src[0].dtype.is_int and parent.dtype.is_int:
                return const(src[0].arg % (1 << 8 * parent.dtype.itemsize - 1), parent.dtype) if src[0].arg >= 0 else \
                    node(ops.CAST, src, parent.dtype)
            return build(parent, src)
        return substitute(roots, choice.positions, make)

    # --- sums ---

    def _held(self, a: Assignment):
        """The dtype that a sum is kept in: float32 for the 16-bit floats."""
        return dtypes.float32 if a.target.dtype in HALF else a.target.dtype

    def _identity(self, a: Assignment) -> Value:
        dtype = self._held(a)
        return self.b.const(0 if a.reduce is ops.SUM else primitives.lowest(dtype), dtype)

    @property
    def _across(self) -> bool:
        """Whether lanes are summed with one another."""
        return self.shape.lane in self.shape.summed

    def _initial(self, a: Assignment, choice: Choice, partial: int) -> Value:
        if a.accumulate and partial == 0 and not self._across:
            return self.b.splat(self.b.cast(self._old(a, choice), self._held(a)), self.shape.lanes)
        return self.b.splat(self._identity(a), self.shape.lanes)

    def _old(self, a: Assignment, choice: Choice) -> Value:
        index, = self._at(choice, a.index)
        return self.lanes.value(node(LOAD, (index, TRUE), a.target, a.target.dtype))

    def _summed(self, position: int, kept: list[Choice], inner: list[Choice], state: list[Value]) -> list[Value]:
        if position == len(self.shape.summed):
            return self._step(kept, inner, state)
        counter = self.shape.summed[position]
        for segment, width in self._steps(counter):
            if segment.blocks == 1:
                state = self._summed(position + 1, kept, self._choices(inner, counter, segment, width, 0), state)
                continue
            block = self._block_counter(segment.blocks)
            state = self.lanes.open_loop(block, *self._range(segment), state)
            state = self._summed(position + 1, kept, self._choices(inner, counter, segment, width, block), state)
            state = self.lanes.close_loop(state)
        return state

    def _step(self, kept: list[Choice], inner: list[Choice], state: list[Value]) -> list[Value]:
        """Add every copy of one body to the sums; the copies of the summed counters take turns among the partials."""
        state = list(state)
        for turn, more in enumerate(inner):
            number = 0
            for a in self.assignments:
                for choice in kept:
                    mask = more.mask if choice.mask is TRUE else choice.mask
                    joined = Choice({**choice.positions, **more.positions}, mask)
                    if a.reduce is None:
                        self._assign(a, joined)
                        continue
                    slot = number * self.shape.partials + turn % self.shape.partials
                    state[slot] = self._combine(a, state[slot], joined, more.mask)
                    number += 1
        return state

    def _combine(self, a: Assignment, total: Value, choice: Choice, mask: Node) -> Value:
        b, (value,) = self.b, self._at(choice, a.value)
        dtype = self._held(a)
        if value.op is PAIR_PRODUCT:
            return b.add_pairs(total, *(self.lanes.value(s) for s in value.src))
        if a.reduce is ops.SUM and value.op is ops.MUL and dtype is value.dtype and dtype.is_float and mask is TRUE:
            x, y = (self.lanes.value(s) for s in value.src)
            return b.multiply_add(x, y, total)
        made = b.cast(self.lanes.value(value), dtype)
        if mask is not TRUE:
            made = b.select(self.lanes.value(mask), b.splat(made, self.shape.lanes), self._identity(a))
        return self._merge(a, total, made)

    def _merge(self, a: Assignment, x: Value, y: Value) -> Value:
        return self.b.add(x, y) if a.reduce is ops.SUM else self.b.maximum(x, y)

    def _finish(self, a: Assignment, choice: Choice, partials: list[Value]) -> None:
        while len(partials) > 1:
            partials = [self._merge(a, *partials[i:i + 2]) if i + 1 < len(partials) else partials[i]
                        for i in range(0, len(partials), 2)]
        total, = partials
        if self._across:
            while total.lanes > 1:
                low, high = self.b.halves(total)
                total = self._merge(a, low, high)
            total = self.b.first(total)
            if a.accumulate:
                total = self._merge(a, self.b.cast(self._old(a, choice), total.dtype), total)
        index, = self._at(choice, a.index)
        valid = TRUE if self.lanes.lanes == 0 or self.lanes.stride(index) in (0, 1) else choice.mask
        self.lanes.store(a.target, index, self.b.cast(total, a.target.dtype), valid)

