"""Kernel to TileProgram: which counters are grid, loop or tile, and the statements of one block.

The same structure for every target; only sizes differ, chosen from Target data in tile_sizes.py. The grid runs over
the counters that every reduction of the kernel shares (a block must own whole reductions); what is left of a sink's
counters stays inside the block. Not for fusion (partition.py) nor for what a target does with a statement (codegen).
"""
from __future__ import annotations

from minivt import ops
from minivt.codegen.target import Target
from minivt.codegen.tile import LOAD, Tile, TileProgram, block, loop, read, set_tile, store
from minivt.graph import Node, const, node, substitute, toposort
from minivt.schedule.clipping import Interval, clip, is_masked_out
from minivt.schedule.kernel import Kernel, Sink, free_axes, identity, reductions, with_roots
from minivt.schedule.online import Item, Pass, find_passes, pull_factors, share_axes
from minivt.schedule.tile_sizes import Plan, plan_tiles
from minivt.symbolic import TRUE, add, as_index, axis, axis_size, both, build, ceil_div, conjuncts, lt, mul


def tile_kernel(kernel: Kernel, target: Target, name: str = "kernel") -> TileProgram:
    """The program of one kernel for a target.

    before:  out[t, n] = sum over k of x[t, k] * w[k, n]
    after:   grid (tb, nb): SET acc[t, n] = 0; LOOP kb: SET acc += sum over k of x * w; STORE out = acc
    """
    roots = tuple(pull_factors(tuple(share_axes(kernel.roots))))
    passes = find_passes(roots)
    kernel = _align_sinks(with_roots(kernel, roots), passes)
    plan = plan_tiles(kernel, passes, target)
    return _Builder(kernel, passes, plan, name).program()


def _align_sinks(kernel: Kernel, passes: list[Pass]) -> Kernel:
    """Let a sink count with a pass's counter where they cover the same row, so that both can share values.

    before:  l = sum over r of exp2(x[r] - m);  out[k] = exp2(x[k] - m) / l
    after:   l = sum over r of exp2(x[r] - m);  out[r] = exp2(x[r] - m) / l
    """
    owned = [free_axes(item.reduction) for p in passes for item in p.items]
    renamed: dict[Node, Node] = {}
    for counter in kernel.axes:
        if all(counter in axes for axes in owned) or any(counter in axes for axes in owned):
            continue
        for current in passes:
            if len(current.axes) == 1 and axis_size(current.axes[0]) == axis_size(counter) \
                    and current.axes[0] not in renamed.values():
                renamed[counter] = current.axes[0]
                break
    if not renamed:
        return kernel
    sinks = tuple(Sink(s.param, tuple(renamed.get(a, a) for a in s.axes),
                       *substitute((s.index, s.valid, s.value), renamed, build)) for s in kernel.sinks)
    return Kernel(kernel.params, sinks)


class _Builder:
    def __init__(self, kernel: Kernel, passes: list[Pass], plan: Plan, name: str):
        self.kernel, self.passes, self.plan, self.name = kernel, passes, plan, name
        self.tiles = 0
        self.outer: dict[Node, Node | None] = {}  # counter -> its block counter, None where one tile covers it
        self.split: dict[Node, Node] = {}       # counter -> expression over block, loop and tile counters
        self.tile_axis: dict[Node, Node] = {}   # counter -> its tile counter
        self.limits: dict[Node, Node] = {}      # counter -> condition that it is inside its size, where tiles overhang
        self.values: dict[Node, Node] = {}      # finished reduction or shared value -> READ expression
        self.grid: list[Node] = []

    # --- counters ---

    def _split(self, counter: Node, kind: str) -> Node | None:
        """Split a counter by its planned tile; returns the block counter of `kind`, None where one tile covers all."""
        if counter in self.split:
            return self.outer[counter]
        size, tile = axis_size(counter), self.plan.tile[counter]
        blocks = ceil_div(size, tile)
        outer = self.outer[counter] = None if blocks == 1 else axis((kind, counter.arg[0]), blocks, kind)
        inner = None if tile == 1 else axis(("t", counter.arg[0]), tile, "tile")
        position = add(mul(outer, tile) if outer is not None else 0, inner if inner is not None else 0)
        self.split[counter] = position
        if inner is not None:
            self.tile_axis[counter] = inner
        inside = lt(position, size)
        if inside is not TRUE:
            self.limits[counter] = inside
        return outer

    def program(self) -> TileProgram:
        for counter in self.kernel.axes:
            if counter not in self.plan.inner:
                outer = self._split(counter, "grid")
                if outer is not None:
                    self.grid.append(outer)
        for counter in self.plan.inner:
            if self.plan.resident(counter):
                self._split(counter, "loop")
        statements: list[Node] = []
        for current in self.passes:
            statements += self._pass(current)
        statements += self._sinks()
        return TileProgram(self.name, self.kernel.params, tuple(self.grid), block(*statements))

    # --- values ---

    def _guard(self, load: Node, src: tuple[Node, ...]) -> Node:
        """A load may not leave memory where a tile overhangs the size of a counter."""
        index, valid = src
        for counter, inside in self.limits.items():
            if counter in free_axes(load.src[0]):
                valid = both(valid, inside)
        return node(LOAD, (index, valid), load.arg, load.dtype)

    def _at(self, value: Node) -> Node:
        """The value with counters split, finished reductions read from their tiles and loads guarded."""
        done: dict[Node, Node] = dict(self.values)
        for current in toposort(value, enter=lambda n: n not in self.values):
            if current in done:
                continue
            if current in self.split:
                done[current] = self.split[current]
                continue
            src = tuple(done[s] for s in current.src)
            if current.op is LOAD:
                done[current] = self._guard(current, src)
            else:
                done[current] = current if src == current.src else build(current, src)
        return done[value]

    def _tile(self, value: Node, prefix: str) -> Tile:
        """A new tile over the tile counters that the value's free counters have."""
        axes = tuple(self.tile_axis[a] for a in self._ordered(free_axes(value)) if a in self.tile_axis)
        self.tiles += 1
        return Tile(f"{prefix}{self.tiles}", axes, value.dtype)

    def _ordered(self, axes) -> list[Node]:
        order = {a: n for n, a in enumerate((*self.kernel.axes, *self.split))}
        return sorted(axes, key=lambda a: order.get(a, 0))

    # --- passes ---

    def _pass(self, current: Pass) -> list[Node]:
        """Initial values, the loop (clipped, its inside unmasked), and what the results read as afterwards."""
        outers = [o for o in (self._split(a, "loop") for a in current.axes) if o is not None]
        accumulators = {item.reduction: self._tile(item.reduction, "acc") for item in current.items}
        once = not outers
        before = [] if once else [set_tile(t, identity(r.arg[0], r.dtype)) for r, t in accumulators.items()]
        after = before + self._loops(current, accumulators, outers)
        for item in current.items:
            self.values[item.reduction] = read(accumulators[item.reduction])
        return after if once else after + self._finish(current)

    def _finish(self, current: Pass) -> list[Node]:
        """Where every step was masked out, NaN if the plain formula gives NaN: u - u of an infinite exponent u."""
        statements: list[Node] = []
        for item in current.items:
            for term in item.exponents:
                final = self._at(term)
                undefined = node(ops.ADD, (final, node(ops.NEG, (final,))))
                if undefined not in self.values:
                    tile = self._tile(term, "finish")
                    statements.append(set_tile(tile, undefined))
                    self.values[undefined] = read(tile)
                self.values[item.reduction] = node(ops.ADD, (self.values[item.reduction], self.values[undefined]))
        return statements

    def _loops(self, current: Pass, accumulators: dict[Node, Tile], outers: list[Node]) -> list[Node]:
        conditions = self._conditions(current)
        if not outers:
            return self._body(current, accumulators, {}, once=True)
        *outer_loops, innermost = outers
        intervals = clip(innermost, conditions)
        if intervals is None:
            intervals = [Interval(as_index(0), as_index(axis_size(innermost)), ())]
        statements = []
        for interval in intervals:
            body = self._body(current, accumulators, dict.fromkeys(interval.holds, TRUE), once=False)
            statements.append(loop(innermost, interval.start, interval.stop, *body))
        for outer in reversed(outer_loops):
            statements = [loop(outer, 0, axis_size(outer), *statements)]
        return statements

    def _conditions(self, current: Pass) -> list[Node]:
        """Conditions without which a step adds nothing: tile overhang, and masks that every summand has."""
        conditions = [self.limits[a] for a in current.axes if a in self.limits]
        summands = [(item.op, self._at(item.summand)) for item in current.items]
        masks = {c: None for _, value in summands for n in toposort(value) if n.op is ops.WHERE
                 for c in conjuncts(n.src[0]) if c.op is ops.LT}
        return conditions + [c for c in masks if c not in conditions and
                             all(is_masked_out(value, c, op) for op, value in summands)]

    def _body(self, current: Pass, accumulators: dict[Node, Tile], holds: dict[Node, Node], once: bool) -> list[Node]:
        """One step of a pass at tile level: lift, rescale, combine (see online.py)."""
        saved, statements = dict(self.values), []
        ends = []
        needed = {s for item in current.items for s in item.states}
        for item in current.items:
            tile = accumulators[item.reduction]
            if item.states and not once:
                statements += self._rescale(item, tile, accumulators, saved)
            summand = self._shared(item.summand, current, statements, holds)
            summand = self._masked(summand, item, current, holds)
            axes = tuple(self.tile_axis[a] for a in current.axes if a in self.tile_axis)
            if item.reduction in needed and not once:
                step, moved = self._tile(item.reduction, "step"), self._tile(item.reduction, "new")
                statements.append(set_tile(step, summand, item.op, axes))
                statements.append(set_tile(moved, node(ops.MAXIMUM, (read(tile), read(step)))))
                self.values[item.reduction] = _finite(read(moved))
                ends.append(set_tile(tile, read(moved)))
                continue
            statements.append(set_tile(tile, summand, item.op, axes, accumulate=not once))
            if once:
                self.values[item.reduction] = read(tile)
        kept = {} if not once else {k: v for k, v in self.values.items() if k not in saved}
        self.values = {**saved, **kept}
        return statements + ends

    def _rescale(self, item: Item, tile: Tile, accumulators: dict[Node, Tile], saved: dict) -> list[Node]:
        """SET acc = acc * g(new state) / g(old state); 0 where nothing was summed yet (state at -inf)."""
        now, = [self._at(_total(item.exponents))]
        moved, self.values = self.values, {**saved, **{s: read(accumulators[s]) for s in item.states}}
        old = self._at(_total(item.exponents))
        self.values = moved
        ratio = node(ops.EXP2, (node(ops.ADD, (now, node(ops.NEG, (old,)))),))
        for state in item.states:
            empty = node(ops.NE, (read(accumulators[state]), const(float("-inf"), state.dtype)))
            ratio = node(ops.WHERE, (empty, ratio, const(0, ratio.dtype)))
        statements = []
        if ratio not in self.values:
            scale = self._tile(item.states[0], "scale")
            statements.append(set_tile(scale, ratio))
            self.values[ratio] = read(scale)
        return statements + [set_tile(tile, node(ops.MUL, (read(tile), self.values[ratio])))]

    def _masked(self, summand: Node, item: Item, current: Pass, holds: dict[Node, Node]) -> Node:
        """The identity where a tile overhangs a reduced counter; inside a product, 0 in the factors."""
        inside = TRUE
        for a in current.axes:
            if a in self.limits and self.limits[a] not in holds:
                inside = both(inside, self.limits[a])
        if inside is TRUE or item.op is ops.SUM and _is_load(summand, inside):
            return summand
        if item.op is ops.SUM and summand.op is ops.MUL:  # both factors: 0 times an unmasked infinity is no 0
            return node(ops.MUL, [s if _is_load(s, inside) else node(ops.WHERE, (inside, s, const(0, s.dtype)))
                                  for s in summand.src])
        return node(ops.WHERE, (inside, summand, identity(item.op, summand.dtype)))

    def _shared(self, value: Node, current: Pass, statements: list[Node], holds: dict[Node, Node]) -> Node:
        """The summand at this step; inner reductions and costly values that are used twice get tiles of their own."""
        for inner in reductions(value):
            if inner in self.values:
                continue
            statements += self._nested(inner, holds)
        for part in self.plan.shared.get(current.axes, ()):
            if part in self.values or part not in toposort(value):
                continue
            if any(r not in self.values for r in reductions(part)):
                continue
            tile = self._tile(part, "v")
            statements.append(set_tile(tile, self._holding(self._at(part), holds)))
            self.values[part] = read(tile)
        return self._holding(self._at(value), holds)

    def _nested(self, inner: Node, holds: dict[Node, Node]) -> list[Node]:
        """A reduction inside the body of a pass: all of it at each step."""
        op, axes, _ = inner.arg
        outers = [o for o in (self._split(a, "loop") for a in axes) if o is not None]
        tile = self._tile(inner, "s")
        counters = tuple(self.tile_axis[a] for a in axes if a in self.tile_axis)
        statements: list[Node] = []
        for deeper in reductions(inner.src[0]):
            if deeper not in self.values:
                statements += self._nested(deeper, holds)
        item = Item(inner)
        summand = self._masked(self._holding(self._at(inner.src[0]), holds), item, Pass(axes, [item]), {})
        step = set_tile(tile, summand, op, counters, accumulate=bool(outers))
        for outer in reversed(outers):
            step = loop(outer, 0, axis_size(outer), step)
        self.values[inner] = read(tile)
        start = [set_tile(tile, identity(op, inner.dtype))] if outers else []
        return statements + start + [step]

    def _holding(self, value: Node, holds: dict[Node, Node]) -> Node:
        return substitute([value], holds, build)[0] if holds else value

    # --- sinks ---

    def _sinks(self) -> list[Node]:
        outers = [o for a in self.plan.inner if (o := self._split(a, "loop")) is not None]
        statements = []
        for sink in self.kernel.sinks:
            index, valid, value = (self._at(r) for r in (sink.index, sink.valid, sink.value))
            for counter in sink.axes:
                if counter in self.limits:
                    valid = both(valid, self.limits[counter])
            axes = tuple(self.tile_axis[a] for a in sink.axes if a in self.tile_axis)
            statements.append(store(sink.param, axes, index, value, valid))
        for outer in reversed(outers):
            statements = [loop(outer, 0, axis_size(outer), *statements)]
        return statements


def _total(terms: tuple[Node, ...]) -> Node:
    total = terms[0]
    for term in terms[1:]:
        total = node(ops.ADD, (total, term))
    return total


def _finite(state: Node) -> Node:
    """The state, or 0 while it is -inf: then every summand is 0 and -inf - -inf must not turn it into NaN."""
    lowest = const(float("-inf"), state.dtype)
    return node(ops.WHERE, (node(ops.NE, (state, lowest)), state, const(0, state.dtype)))


def _is_load(value: Node, inside: Node) -> bool:
    """Whether the value is a load that gives 0 outside by its own mask."""
    while value.op is ops.CAST:
        value = value.src[0]
    return value.op is LOAD and set(conjuncts(inside)) <= set(conjuncts(value.src[1]))
