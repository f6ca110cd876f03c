"""Tile programs for a CPU: one function over a range of blocks, its statements as loops over vectors.

Tiles live in a task's private memory, which stays in cache; registers hold what one loop body works on. Every
statement gets a lane axis (lane_choice.py), a nest of loops (nest.py) and, if it is a contraction, operands packed for
its register tile (packing.py). Not for instruction text (render/llvm.py), not for compiling it (backends/cpu).
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from minivt import dtypes, ops
from minivt.codegen.fusion import group_statements, read_by
from minivt.codegen.lane_choice import Task, cheapest_copy, choose_lanes, cross_axis, is_light, make_task, width
from minivt.codegen.lanes import Lanes, Scratch, lane_counter
from minivt.codegen.nest import Assignment, Nest, Shape
from minivt.codegen.packing import Pack, in_place_along, in_place_single, merge_summed, ordered, panel_index, \
    rows_index
from minivt.codegen.pairs import PAIR_PRODUCT, pair_up
from minivt.codegen.render.llvm import Builder, Value
from minivt.codegen.render.llvm_module import module_text
from minivt.codegen.target import Target
from minivt.codegen.tile import BLOCK, LOAD, LOOP, READ, SET, Param, Tile, TileProgram
from minivt.codegen.windows import shared_window, window_index
from minivt.graph import Node, node, substitute, toposort, walk
from minivt.symbolic import TRUE, add, as_index, axis, axis_size, bounds, build, linear, mul

ALIGNMENT = 64
NATIVE_HALF = frozenset({"f16c", "avx512f", "neon"})  # features of a processor that converts float16
SUMS = 8        # independent sums that hide the latency of an addition; a quarter of that where more work goes on
ROWS = 4        # sums of neighbouring rows in one body
SHORT_SUM = 8   # steps of the innermost sums of a contraction that stand in one body
MAP_COPIES = 2  # vectors of one body of a map


@dataclass(frozen=True)
class CpuKernel:
    """LLVM IR of `void @name(ptr bufs, ptr vars, i64 begin, i64 end, ptr scratch)` and `i64 @name_tasks(ptr vars)`.

    bufs: the params' pointers in slot order; vars: int64 values of `variables` in order; scratch: `scratch_bytes`
    private bytes aligned to 64. Tasks are blocks, numbered row-major over the grid.
    """
    name: str
    ir_text: str
    scratch_bytes: int
    n_params: int
    variables: tuple[str, ...]


def code_of(program: TileProgram, target: Target) -> str:
    """The LLVM text of a tile program."""
    return lower_cpu(program, target).ir_text


def lower_cpu(program: TileProgram, target: Target) -> CpuKernel:
    """The kernel of a tile program for a CPU target.

    before:  grid (xb: 8); STORE out[xb * 1024 + x] = LOAD a[xb * 1024 + x] + 1, x < 1024
    after:   for task in begin..end: for x in 0..1024 by 32: two vector loads, additions and stores
    """
    roots = [program.body, *(as_index(axis_size(a)) for a in program.grid)]
    variables = [n for n in toposort(*roots) if n.op is ops.VARIABLE]
    lowering = _Lowering(program, target, variables)
    lowering.run()
    count = _count_tasks(program, variables)
    text = module_text(program.name, lowering.b, count, [p.slot for p in program.params], len(variables))
    return CpuKernel(program.name, text, max(ALIGNMENT, lowering.scratch_bytes), len(program.params),
                     tuple(v.arg[0] for v in variables))


def _fixed(variables: list[Node]) -> dict[Node, Value]:
    return {v: Value(f"%var{i}", dtypes.index) for i, v in enumerate(variables)}


def _count_tasks(program: TileProgram, variables: list[Node]) -> tuple[Builder, Value]:
    """The product of the grid's sizes as code."""
    builder = Builder(native_half=True)
    lanes = Lanes(builder, {}, _fixed(variables))
    total = builder.const(1, dtypes.index)
    for counter in program.grid:
        total = builder.mul(total, lanes.value(as_index(axis_size(counter))))
    return builder, total


class _Lowering:
    """Emits the loop over tasks and every statement in it."""

    def __init__(self, program: TileProgram, target: Target, variables: list[Node]):
        self.program, self.target = program, target
        self.vector = target.vector_bytes // 4  # lanes, whatever the dtype: wider ones take several registers
        self.b = Builder(bool(NATIVE_HALF & set(target.features)))
        self.scratch_bytes = 0
        self.addresses: dict = {p: Value(f"%p{p.slot}", None) for p in program.params}
        self.lanes = Lanes(self.b, self.addresses, _fixed(variables))
        self.tasks: dict[Node, list[Task]] = {}
        self._collect(program.body, ())
        tasks = [t for same in self.tasks.values() for t in same]
        self.lane_of, tile_lanes = choose_lanes(tasks, self.vector)
        self.places = {tile: self._place(tile, lane) for tile, lane in tile_lanes.items()}
        self.paired: dict[Task, Task] = {}  # contractions over pairs of bfloat16, where the target has them
        self.packs: dict[tuple, Pack] = {}  # every packed operand by value and order
        self.windows: dict[tuple, tuple[Pack | None, Node]] = {}  # by value and summed counters: the copy, the read
        self.ready: set[Pack] = set()       # those that hold what their value is at this point of the program

    def _collect(self, statement: Node, loops: tuple[Node, ...]) -> None:
        if statement.op is BLOCK:
            for inner in statement.src:
                self._collect(inner, loops)
        elif statement.op is LOOP:
            self._collect(statement.src[0], loops + (statement.arg,))
        else:
            self.tasks.setdefault(statement, []).append(make_task(statement, loops))

    # --- private memory ---

    def _allocate(self, name: str, dtype, size: int) -> Scratch:
        place = Scratch(name, dtype, self.scratch_bytes, size)
        self.scratch_bytes += -(-size * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self.addresses[place] = self.b.address(Value("%scratch", None), self.b.const(place.offset, dtypes.index),
                                               dtypes.uint8)
        return place

    def _place(self, tile: Tile, lane: Node | None) -> tuple[Scratch, Node]:
        """Where a tile lies and the index of its element: its lane axis last, padded to whole vectors."""
        order = [a for a in tile.axes if a is not lane] + ([lane] if lane else [])
        index, size = add(0), 1
        for a in order:
            extent = axis_size(a)
            if a is lane:
                extent = -(-extent // self.vector) * self.vector
            index, size = add(mul(index, extent), a), size * extent
        return self._allocate(tile.name, tile.dtype, max(size, self.vector)), index

    def _located(self, *roots: Node) -> list[Node]:
        """READs as LOADs from private memory."""
        reads = {n for n in walk(*roots) if n.op is READ}
        places = {n: self.places[n.arg] for n in reads}
        return substitute(roots, {n: node(LOAD, (index, TRUE), where, n.dtype) for n, (where, index) in places.items()})

    # --- the loop over tasks ---

    def run(self) -> None:
        b, lanes = self.b, self.lanes
        number = axis("task", 1 << 62, "loop")
        lanes.open_loop(number, Value("%begin", dtypes.index), Value("%end", dtypes.index), guard=True)
        rest = lanes.value(number)
        for counter in reversed(self.program.grid):
            size = b.unsigned(lanes.value(as_index(axis_size(counter))))
            lanes.known[-1][counter] = b.bits(b.quotient(b.unsigned(rest), size, remainder=True), dtypes.index)
            rest = b.bits(b.quotient(b.unsigned(rest), size, remainder=False), dtypes.index)
        self._statement(self.program.body)
        lanes.close_loop()

    def _statement(self, statement: Node) -> None:
        """A statement, or a block: its straight stretches in groups, its loops one by one."""
        stretch: list[Task] = []
        for inner in (*_flat(statement), None):
            if inner is not None and inner.op is not LOOP:
                stretch.append(self.tasks[inner][0])
                continue
            for group in group_statements(stretch, self.lane_of):
                self._group(group)
            stretch = []
            if inner is not None:
                self._loop(inner)

    def _loop(self, statement: Node) -> None:
        body, start, stop = statement.src
        for inner in walk(body):
            if inner in self.tasks:
                self._hoist(self.tasks[inner][0], statement)
        ready = set(self.ready)
        self.lanes.begin(None, 0, self._written)
        first, last = self.lanes.value(start), self.lanes.value(stop)
        certain = bounds(start)[1] < bounds(stop)[0]
        self.lanes.open_loop(statement.arg, first, last, guard=not certain)
        self._statement(body)
        self.lanes.close_loop()
        self.lanes.end()
        self.ready = ready

    @property
    def _written(self) -> set:
        return {p for p in self.program.params if p.written}

    # --- statements ---

    def _group(self, group: list[Task]) -> None:
        """Statements that share a nest."""
        if group[0].product:
            value, shape = self._product(group[0])
            self._emit(shape, [self._assignment(group[0], value)])
            return
        values = self._located(*(t.statement.src[-1] for t in group))
        assignments = [self._assignment(t, value, self._unread(t, group)) for t, value in zip(group, values)]
        shape = self._shape(group, values)
        if shape.cross and not all(map(is_light, values)):
            assignments = [self._before_transpose(a, shape) for a in assignments]
        self._emit(shape, assignments)

    def _before_transpose(self, a: Assignment, shape: Shape) -> Assignment:
        """Compute costly values in the order of what they load, so that a square block only moves them.

        before:  STORE out[i, j] = exp2(acc[j, i])
        after:   SET t[j, i] = exp2(acc[j, i]); STORE out[i, j] = t[j, i]
        """
        tile = Tile("turned", shape.kept, a.target.dtype)
        place, index = self._place(tile, shape.cross)
        self._emit(self._map_shape([a.value], shape.kept, shape.cross), [Assignment(place, index, a.value)])
        return Assignment(a.target, a.index, node(LOAD, (index, TRUE), place, a.target.dtype), a.valid)

    def _assignment(self, task: Task, value: Node, unread: bool = False) -> Assignment:
        statement = task.statement
        if statement.op is SET:
            how = statement.arg
            place, index = self.places[how.tile]
            return Assignment(place, index, value, TRUE, how.reduce, how.accumulate, not unread)
        index, valid = self._located(*statement.src[:2])
        return Assignment(statement.arg[0], index, value, valid)

    def _unread(self, task: Task, group: list[Task]) -> bool:
        """Whether a tile is used only where it is made, so that it need not be stored."""
        how, after = task.statement.arg, group[group.index(task) + 1:]
        others = (t for same in self.tasks.values() for t in same if t not in after)
        return task.statement.op is SET and how.reduce is None and not any(how.tile in read_by(t) for t in others)

    def _emit(self, shape: Shape, assignments: list[Assignment]) -> None:
        lane, streams = lane_counter(shape.lanes) if shape.lane else None, frozenset(self.program.grid)
        Nest(self.lanes, lane, shape, assignments, streams).emit()

    def _shape(self, group: list[Task], values: list[Node]) -> Shape:
        """Loops of statements that are no large contractions: a body holds enough sums to hide their latency."""
        task = max(group, key=lambda t: len(t.summed))
        lane = self.lane_of[task]
        if lane is None:
            return Shape(task.kept, task.summed)
        lanes = width(axis_size(lane), self.vector)
        vectors = -(-axis_size(lane) // lanes)
        period = max(-(-_period(v, lane) // lanes) for v in values)
        kept, summed = _last(task.kept, lane), _last(task.summed, lane)
        if not summed:
            return self._map_shape(values, kept, lane)
        light = all(is_light(v) for v in values)
        sums, copies = SUMS if light else SUMS // 4, {}
        others = [a for a in kept if a is not lane]
        if light and others:  # neighbouring rows share what they load
            copies[others[-1]] = min(ROWS, axis_size(others[-1]))
            sums = max(1, sums // copies[others[-1]])
        if lane in summed:
            copies[lane] = min(max(sums, period), vectors)
            partials = min(sums, copies[lane])
        else:
            copies[lane] = min(max(sums, ROWS if light else 1, period), vectors)
            partials = copies[summed[-1]] = min(max(1, sums // copies[lane]), axis_size(summed[-1]))
        return Shape(kept, summed, lane, lanes, tuple(copies.items()), partials)

    def _map_shape(self, values: list[Node], axes: tuple[Node, ...], lane: Node | None) -> Shape:
        """Loops that compute values at all points: a few vectors at a time, or a square block to transpose."""
        if lane is None:
            return Shape(axes)
        lanes = width(axis_size(lane), self.vector)
        vectors = -(-axis_size(lane) // lanes)
        cross = cross_axis(values, lane, axes)
        if cross is not None:
            return Shape(_last(_last(axes, lane), cross), (), lane, lanes, ((cross, lanes),), cross=cross)
        period = max(-(-_period(v, lane) // lanes) for v in values)
        return Shape(_last(axes, lane), (), lane, lanes, ((lane, min(max(MAP_COPIES, period), vectors)),))

    # --- contractions ---

    def _product(self, task: Task) -> tuple[Node, Shape]:
        """The product over operands in place or packed, and its register tile."""
        task = self._paired(task)
        lane, product = self.lane_of[task], task.product
        lanes = width(axis_size(lane), self.vector)
        along, single = self._operands(task)
        for pack in self._packs(task):
            if pack not in self.ready:
                self._pack(pack)
        first, second = (p.read() if isinstance(p, Pack) else p for p in (along, single))
        inner, shared = (product.n, product.m) if lane in product.n else (product.m, product.n)
        rows = max(shared, key=axis_size)
        kept = (*product.batch, *(a for a in inner if a is not lane), lane, *(a for a in shared if a is not rows), rows)
        copies = {lane: self._panel_vectors(task), rows: min(self.target.matrix[0].m, axis_size(rows))}
        multiply = PAIR_PRODUCT if first.dtype is second.dtype is dtypes.uint32 else ops.MUL
        value = node(multiply, (first, second), None, dtypes.float32)
        value, summed = merge_summed(value, product.k)
        steps = 1
        for a in reversed(summed if len(summed) > 1 else ()):  # short sums inside a longer one are straight code
            steps *= axis_size(a)
            if steps > SHORT_SUM:
                break
            copies[a] = axis_size(a)
        return value, Shape(kept, summed, lane, lanes, tuple(copies.items()))

    def _paired(self, task: Task) -> Task:
        """The contraction over pairs of bfloat16 where the target multiplies them."""
        if task in self.paired:
            return self.paired[task]
        lane, found = self.lane_of[task], None
        if any(m.name == "dpbf16" for m in self.target.matrix) and width(axis_size(lane), self.vector) == self.vector:
            found = pair_up(replace(task.product, **dict(zip("ab", self._located(task.product.a, task.product.b)))))
        made = task
        if found is not None:
            made = Task(task.statement, task.kept, found.k, task.loops, found)
            self.lane_of[made] = lane
            for load in (n for n in walk(found.a, found.b) if n.op is LOAD and isinstance(n.arg, Param)):
                self.addresses.setdefault(load.arg, Value(f"%p{load.arg.slot}", None))
        self.paired[task] = self.paired[made] = made
        return made

    def _panel_vectors(self, task: Task) -> int:
        """Vectors of a register tile along the lanes."""
        lane, dtype = self.lane_of[task], task.statement.arg.tile.dtype
        lanes = width(axis_size(lane), self.vector)
        most = max(1, self.target.matrix[0].n // self.vector * 4 // max(4, dtype.itemsize))
        return min(most, -(-axis_size(lane) // lanes))

    def _operands(self, task: Task) -> tuple[Pack | Node, Pack | Node]:
        """The operand along the lanes and the one whose single elements are read, each to be packed or in place."""
        lane, product = self.lane_of[task], task.product
        a, b = (self._slid(value, product.k) for value in self._located(product.a, product.b))
        along, single = (b, a) if lane in product.n else (a, b)
        panel = self._panel_vectors(task) * width(axis_size(lane), self.vector)
        if not in_place_along(along, lane):
            axes = ordered(along, task.axes)
            along = self._packed(along, axes, "panel", *panel_index(axes, product.k, lane, panel))
        if not in_place_single(single, product.k):
            axes = ordered(single, task.axes)
            single = self._packed(single, axes, "rows", *rows_index(axes, product.k))
        return along, single

    def _slid(self, value: Node, k: tuple[Node, ...]) -> Node:
        """The value read from a copy that overlapping windows share, where they overlap."""
        if (value, k) not in self.windows:
            self.windows[value, k] = None, value
            found = shared_window(value, k)
            if found is not None:
                index, size = window_index(found.axes, self.vector)
                pack = Pack(found.value, found.axes, self._allocate("window", value.dtype, size), index)
                self.windows[value, k] = pack, substitute([pack.read()], dict(found.sums), build)[0]
        return self.windows[value, k][1]

    def _packs(self, task: Task) -> list[Pack]:
        """What is computed before a contraction, in order: windows, then operands in the order of registers."""
        made = self._operands(task)
        first = (self.windows[value, task.product.k][0] for value in self._located(task.product.a, task.product.b))
        return [pack for pack in (*first, *made) if isinstance(pack, Pack)]

    def _packed(self, value: Node, axes: tuple[Node, ...], kind: str, index: Node, size: int) -> Pack:
        key = value, index
        if key not in self.packs:
            place = self._allocate(f"{kind}{len(self.packs)}", value.dtype, size)
            self.packs[key] = Pack(value, axes, place, index)
        return self.packs[key]

    def _pack(self, pack: Pack) -> None:
        lane = cheapest_copy(pack.value, pack.index, pack.axes, self.vector)
        self._emit(self._map_shape([pack.value], pack.axes, lane), [Assignment(pack.place, pack.index, pack.value)])
        if self._constant(pack.value, ()):
            self.ready.add(pack)

    def _constant(self, value: Node, loops: tuple[Node, ...]) -> bool:
        """Whether the value stays the same while those loops run: it depends on arguments that nobody writes."""
        return not any(n in loops or n.op is LOAD and (isinstance(n.arg, Scratch) or n.arg.written)
                       for n in walk(value))

    def _hoist(self, task: Task, loop: Node) -> None:
        """Pack before a loop what does not change in it."""
        if not task.product:
            return
        task = self._paired(task)
        inside = (loop.arg, *(n.arg for n in walk(loop.src[0]) if n.op is LOOP))
        for pack in self._packs(task):
            if pack not in self.ready and self._constant(pack.value, inside):
                self._pack(pack)


def _flat(statement: Node) -> list[Node]:
    """The statements of nested blocks in order."""
    if statement.op is not BLOCK:
        return [statement]
    return [inner for part in statement.src for inner in _flat(part)]


def _last(axes: tuple[Node, ...], lane: Node | None) -> tuple[Node, ...]:
    return (*(a for a in axes if a is not lane), *((lane,) if lane in axes else ()))


def _period(value: Node, lane: Node) -> int:
    """Elements after which divisions of the lane counter repeat, so that a body of as many has none; at most 64."""
    period = 1
    for current in walk(value):
        if current.op in (ops.MOD, ops.IDIV) and current.src[1].op is ops.CONST:
            step = dict(linear(current.src[0])[0]).get(lane)
            divisor = current.src[1].arg
            if step and divisor % step == 0 and divisor // step <= 64:
                period = max(period, divisor // step)
    return period
