"""Tile level to thread level, for GPUs: every statement becomes what one thread does with its own elements.

A tile axis turns into an expression of the thread number and of register counters (its spread); a tile turns into a
register array; a reduction turns into a loop over registers and exchanges between threads; a matrix product turns into
instructions on staged operands, fed by a producer role that runs the same loops with copies in them.

before:  SET s[i, j] = x[i, j] * c                                                (i: 8:1@lane/4, j: 4:2@lane%4, ...)
after:   UNROLL r2 in 16, r1 in 2:  s[4 * r2 + 2 * r1 + 0] = x[...] * c;  s[4 * r2 + 2 * r1 + 1] = x[...] * c

Not for choosing routes (stage), spreads (spreads) or instruction text (render).
"""
from __future__ import annotations

from dataclasses import dataclass, field

from minivt import dtypes, ops
from minivt.codegen import thread as t
from minivt.codegen.layout import Spread
from minivt.codegen.order import block_order
from minivt.codegen.overlap import Overlap, overlap
from minivt.codegen.panels import PanelProduct, Panels, panels
from minivt.codegen.pipeline import Feed, feeds, produce
from minivt.codegen.register_products import register_product
from minivt.codegen.spreads import block_threads, deal, matrix_spreads, unused_digits, uses
from minivt.codegen.stage import Operand, Product, padded, products, statements
from minivt.codegen.target import Target
from minivt.codegen.tile import BLOCK, LOAD, LOOP, READ, SET, Tile, TileProgram, block, loop
from minivt.dtypes import DType
from minivt.graph import Node, const, node, substitute, walk
from minivt.symbolic import TRUE, add, as_index, both, bounds, build, conjuncts, idiv, linear, lt, mod, mul, sub

UNROLLED_STEPS = 64   # a reduction of more steps than this stays a loop in the code
UNROLLED_READS = 256  # the same when it reads register arrays, which a loop would move to slower memory
VECTOR_BYTES = 16  # of the widest access of one thread
OVERLAP_REGISTERS = 192  # of a thread, for products in flight; about 40 remain for everything else
COPY_GROUP = 128   # threads of the producer role: registers are handed out by warpgroup


def distribute(program: TileProgram, target: Target) -> t.ThreadProgram:
    """The thread program of a tile program for a GPU."""
    found = products(program.body, target)
    fixed = matrix_spreads(list(found.values())) if found else None
    feed = feeds(program.body, found, target) if fixed else None
    if feed is None:
        return staged(program, target)
    lowering = Lowering(program, found, feed, deal(uses(program.body, found), *fixed), fixed[1])
    body, producer = lowering.top(program.body), produce(program.body, found, feed)
    boxes = tuple(dict.fromkeys(n.arg[2] for n in statements(producer) if n.op is t.FILL))
    return lowering.program_of(t.statement(t.ROLES, None, producer, body), boxes, COPY_GROUP)


def staged(program: TileProgram, target: Target) -> t.ThreadProgram:
    """Without bulk copies: threads stage operands themselves where products reuse them."""
    panelled = panels(program.body, target)
    fixed = matrix_spreads(list(panelled.products.values())) if panelled.products else ({}, 0)
    if fixed is None:
        panelled, fixed = Panels(program.body, {}, ()), ({}, 0)
    asked = uses(panelled.body, panelled.products)
    threads = fixed[1] or block_threads(asked)
    spreads = deal(asked, {**fixed[0], **panelled.spreads(threads)}, threads)
    lowering = Lowering(program, panelled.products, Feed({}, {}, ()), spreads, threads)
    return lowering.program_of(lowering.body(panelled.body))


@dataclass
class Lowering:
    """The consumer role's statements. arrays collects what they need."""
    program: TileProgram
    products: dict[Node, Product | PanelProduct]
    feed: Feed
    spreads: dict[Node, Spread]
    threads: int
    arrays: list[t.Array] = field(default_factory=list)
    tiles: dict[Tile, t.Array] = field(default_factory=dict)
    operands: dict[Node, tuple[t.Array, Node]] = field(default_factory=dict)

    # --- coordinates -------------------------------------------------------------------------------------------------

    def counters(self, axes: tuple[Node, ...]) -> list[tuple[Node, Node, int]]:
        """(register counter, its axis, step) of these axes, the fastest first."""
        found = [(rank, place, x, size, step) for place, x in enumerate(axes)
                 for rank, size, step in self.spreads[x].registers]
        return [(t.register_counter((x.arg[0], rank), size), x, step)
                for rank, _, x, size, step in sorted(found, key=lambda f: f[:2])]

    def coordinate(self, x: Node) -> Node:
        """The axis' counter as an expression of thread number and register counters."""
        number = t.thread_number(self.threads)
        digits = [mul(mod(idiv(number, divisor), size), step) for divisor, size, step in self.spreads[x].threads]
        return add(*digits, *(mul(c, step) for c, _, step in self.counters((x,))))

    def guard(self, axes) -> Node:
        """Where these axes' counters are inside the tile; a spread may cover a little more."""
        inside = TRUE
        for x in axes:
            if self.spreads[x].places > x.arg[1]:
                inside = both(inside, lt(self.coordinate(x), x.arg[1]))
        return inside

    def array(self, tile: Tile) -> t.Array:
        if tile not in self.tiles:
            size = t.register_count(tuple(c for c, _, _ in self.counters(tile.axes)))
            self.tiles[tile] = self.declare(tile.name, tile.dtype, size)
        return self.tiles[tile]

    def declare(self, name: str, dtype: DType, size: int, space: str = "register") -> t.Array:
        taken = {a.name for a in self.arrays}
        unique = next(n for n in (name, *(f"{name}_{i}" for i in range(len(taken) + 1))) if n not in taken)
        self.arrays.append(t.Array(unique, dtype, size, space))
        return self.arrays[-1]

    def place(self, axes: tuple[Node, ...]) -> Node:
        """The register of a tile with these axes: its counters as digits of one number."""
        index, stride = [as_index(0)], 1
        for counter, _, _ in self.counters(axes):
            index.append(mul(counter, stride))
            stride *= counter.arg[1]
        return add(*index)

    def value(self, value: Node, axes: tuple[Node, ...]) -> Node:
        """A tile expression at this thread's elements."""
        inside = self.guard(axes)
        mapping = {x: self.coordinate(x) for x in axes}
        for n in walk(value):
            if n.op is READ:
                mapping[n] = t.element(self.array(n.arg), self.place(n.arg.axes))

        def make(parent: Node, src: tuple[Node, ...]) -> Node:
            if parent.op is LOAD:
                return node(LOAD, (src[0], both(src[1], inside)), parent.arg, parent.dtype)
            if parent.op is t.ELEMENT and inside is not TRUE:
                return t.element(parent.arg, node(ops.WHERE, (inside, src[0], as_index(0))))
            return build(parent, src)
        return substitute([value], mapping, make)[0]

    # --- statements --------------------------------------------------------------------------------------------------

    def program_of(self, body: Node, boxes: tuple[t.Box, ...] = (), copiers: int = 0) -> t.ThreadProgram:
        program = self.program
        grid, blocks = block_order(program, list(self.products.values()))
        variables = sorted({n for n in walk(body, *(e for _, e in grid)) if n.op is ops.VARIABLE}, key=lambda n: n.arg)
        return t.ThreadProgram(program.name, program.params, tuple(variables), boxes, grid, blocks,
                               self.threads + copiers, self.threads, tuple(self.arrays), self.feed.rings, body)

    def top(self, body: Node) -> Node:
        """The block's body; resident operands are awaited first."""
        return block(*(t.statement(t.AWAIT, ring) for ring in self.feed.residents.values()), *self.body(body).src)

    def body(self, body: Node) -> Node:
        out, group = [], []
        for s in (*body.src, None) if body.op is BLOCK else (body, None):
            if group and (s not in self.products or s not in self.feed.group[group[0]].statements):
                out.append(self.multiply(group))
                group = []
            if s is None:
                break
            if s in self.feed.group:
                group.append(s)
            else:
                out.append(self.statement(s))
        return block(*out)

    def statement(self, s: Node) -> Node:
        if s.op is BLOCK:
            return self.body(s)
        if s.op is LOOP:
            return self.loop(s)
        if s in self.products:
            return register_product(self, s)
        if s.op is t.BARRIER:
            return s
        if s.op is t.STAGE:
            return self.stage(s)
        if s.op is not SET:
            return self.store(s)
        return self.map(s) if s.arg.reduce is None else self.reduce(s)

    def over(self, axes, emit, outer: tuple[Node, ...] = ()) -> Node:
        """emit(lane) for all registers of the axes; the fastest counter, if along memory, is written out by lanes."""
        counters = self.counters(axes)
        lane = counters[0][0] if counters and counters[0][2] == 1 and counters[0][0].arg[1] <= 16 else None
        body = block(*emit(lane))
        return t.unroll(tuple(c for c, _, _ in reversed(counters) if c is not lane and c not in outer), body)

    def map(self, s: Node) -> Node:
        tile = s.arg.tile
        array, index, value = self.array(tile), self.place(tile.axes), self.value(s.src[0], tile.axes)
        return self.over(tile.axes, lambda lane: [t.write(array, i, v) for i, v in lanes(lane, index, value)])

    def store(self, s: Node) -> Node:
        param, axes = s.arg
        index, valid, value = (self.value(x, axes) for x in s.src)
        valid = both(both(valid, self.guard(axes)), self.single(axes))

        def emit(lane):
            width = vector_width(index, valid, lane, param.dtype)
            found = lanes(lane, index, value)
            return [t.put(param, found[e][0], tuple(v for _, v in found[e:e + width]), at(valid, lane, e))
                    for e in range(0, len(found), width)]
        return self.over(axes, emit)

    def stage(self, s: Node) -> Node:
        """Fill a panel; 16-bit values that come two by two along the contracted axis become words here."""
        array, axes = s.arg
        if array not in self.arrays:
            self.arrays.append(array)
        index, value = (self.value(x, axes) for x in s.src)
        valid = both(self.guard(axes), self.single(axes))
        pairs = array.dtype.itemsize // value.dtype.itemsize

        def emit(lane):
            found = lanes(lane, index, value)
            for e in range(0, len(found), pairs):
                word = found[e][1] if pairs == 1 else node(t.PACK, (found[e][1], found[e + 1][1]), None, array.dtype)
                yield t.write(array, found[e][0], word, at(valid, lane, e))
        return self.over(axes, emit)

    def single(self, axes) -> Node:
        """True in one of the threads that hold copies of these axes' elements."""
        number, condition = t.thread_number(self.threads), TRUE
        for divisor, size in unused_digits([self.spreads[x] for x in axes], self.threads):
            condition = both(condition, lt(mod(idiv(number, divisor), size), 1))
        return condition

    # --- reductions --------------------------------------------------------------------------------------------------

    def reduce(self, s: Node) -> Node:
        how, tile = s.arg, s.arg.tile
        op = ops.ADD if how.reduce is ops.SUM else ops.MAXIMUM
        identity = lowest(how.reduce, tile.dtype)
        target = self.array(tile)
        digits = [d for x in how.reduce_axes for d in self.spreads[x].threads]
        direct = not digits and not any(n.op is READ and n.arg is tile for n in walk(s.src[0]))
        sums = target if direct else self.declare(f"{tile.name}_part", tile.dtype, target.size)
        index = self.place(tile.axes)
        start = [] if direct and how.accumulate else [
            self.over(tile.axes, lambda lane: [t.write(sums, i, identity) for i, _ in lanes(lane, index, identity)])]
        steps = [self.accumulate(s, sums, op, identity)] + self.exchange(sums, op, digits)
        if not direct:
            part, old = t.element(sums, index), t.element(target, index)
            value = node(op, (old, part), None, tile.dtype) if how.accumulate else part
            steps.append(self.over(tile.axes,
                                   lambda lane: [t.write(target, i, v) for i, v in lanes(lane, index, value)]))
        return block(*start, *steps)

    def accumulate(self, s: Node, sums: t.Array, op, identity: Node) -> Node:
        """This thread's share of a reduction; reduced counters outside, so that loaded elements serve all points."""
        tile, axes = s.arg.tile, s.arg.reduce_axes
        value = self.value(s.src[0], tile.axes + axes)
        inside = self.guard(axes)
        if inside is not TRUE:
            value = node(ops.WHERE, (inside, value, identity), None, value.dtype)
        index = self.place(tile.axes)
        reduced = [c for c, _, _ in self.counters(axes)]
        lane = next((c for c, _, step in self.counters(axes + tile.axes) if step == 1 and c.arg[1] <= 16), None)
        inner = block(*(t.write(sums, i, node(op, (t.element(sums, i), v), None, sums.dtype))
                        for i, v in lanes(lane, index, value)))
        points = [c for c, _, _ in reversed(self.counters(tile.axes)) if c is not lane]
        body = t.unroll(tuple(points), inner)
        held = {c for n in walk(value) if n.op is t.ELEMENT for c in walk(n) if c in reduced}
        reduced = [c for c in reduced if c is not lane]
        if t.register_count(tuple(reduced + points)) <= (UNROLLED_READS if held else UNROLLED_STEPS):
            return t.unroll(tuple(reversed(reduced)), body)
        for counter in reduced:
            body = loop(counter, 0, counter.arg[1], body)
        return body

    def exchange(self, sums: t.Array, op, digits) -> list[Node]:
        """Combine the shares of threads that differ in these digits, in one order for all, so that copies agree.

        before:  thread 0: a, thread 1: b             (digit of 2 lanes)
        after:   thread 0: a + b, thread 1: b + a
        """
        counter = t.register_counter(("share", sums.name), sums.size)
        index = counter if sums.size > 1 else as_index(0)
        mine, out = t.element(sums, index), []
        across = []
        for divisor, size, _ in digits:
            bit = divisor
            while bit < divisor * size:
                if bit < 32:
                    other = node(t.SHUFFLE, (mine,), bit, sums.dtype)
                    out.append(t.write(sums, index, node(op, (mine, other), None, sums.dtype)))
                else:
                    across.append(bit)
                bit *= 2
        if across:
            out += self.exchange_shared(sums, index, op, across)
        return [t.unroll((counter,) if sums.size > 1 else (), block(*out))] if out else []

    def exchange_shared(self, sums: t.Array, index: Node, op, bits: list[int]) -> list[Node]:
        """Through shared memory, for threads of different warps; the digits are powers of two."""
        scratch = self.declare(f"{sums.name}_shared", sums.dtype, self.threads, "shared")
        number = t.thread_number(self.threads)
        own = add(*(mul(mod(idiv(number, bit), 2), bit) for bit in bits))
        total = None
        for choice in range(1 << len(bits)):
            other = sum(bit for place, bit in enumerate(bits) if choice >> place & 1)
            share = t.element(scratch, add(sub(number, own), other))
            total = share if total is None else node(op, (total, share), None, sums.dtype)
        barrier = t.statement(t.BARRIER)
        return [t.write(scratch, number, t.element(sums, index)), barrier, t.write(sums, index, total), barrier]

    # --- matrix products ---------------------------------------------------------------------------------------------

    def loop(self, s: Node) -> Node:
        """A loop; products of one iteration may still run while the next one starts."""
        inner = s.src[0].src if s.src[0].op is BLOCK else (s.src[0],)
        if inner and inner[0] in self.feed.group:
            parts = overlap(inner, self.products, self.feed)
            if parts and self.fits(parts):
                return self.overlapped(s, parts)
            if self.only_multiplies(inner):
                return self.accumulating(s, list(inner))
        return loop(s.arg, s.src[1], s.src[2], self.body(s.src[0]))

    def only_multiplies(self, inner: tuple[Node, ...]) -> bool:
        group = self.feed.group[inner[0]]
        return group.statements == inner and group.streamed and all(
            s.arg.accumulate and isinstance(self.products[s].a, Operand) for s in inner)

    def accumulating(self, s: Node, group: list[Node]) -> Node:
        """One group of instructions stays unfinished while the next is issued; its slot is released a step later."""
        sums = tuple(self.array(x.arg.tile) for x in group)
        ring = self.feed.group[group[0]].ring
        previous = t.statement(t.RELEASE, (ring, 1))
        body = block(self.issue(group), t.statement(t.SETTLE, (1, ())), t.when(lt(s.src[1], s.arg), previous),
                     t.statement(t.ADVANCE, ring))
        return block(loop(s.arg, s.src[1], s.src[2], body), t.statement(t.SETTLE, (0, sums)),
                     t.when(lt(s.src[1], s.src[2]), previous))

    def overlapped(self, s: Node, parts: Overlap) -> Node:
        """The loop of overlap.py: its first and last iterations are half outside."""
        score, total = self.array(parts.first.arg.tile), self.array(parts.last.arg.tile)
        first, last = self.issue([parts.first]), self.issue([parts.last])
        free, bound = (block(*(self.statement(x) for x in part)) for part in (parts.free, parts.bound))
        after = block(bound, self.operand(parts.last)[1])
        finish_first, finish_last = self.finish([parts.first]), self.finish([parts.last])
        steady = block(first, last, t.statement(t.SETTLE, (1, (score,))), finish_first, free,
                       t.statement(t.SETTLE, (0, (total,))), finish_last, after)
        start = block(first, t.statement(t.SETTLE, (0, (score,))), finish_first, free, after)
        start, = substitute([start], {s.arg: s.src[1]}, build)
        end = block(last, t.statement(t.SETTLE, (0, (total,))), finish_last)
        several = bounds(sub(s.src[2], s.src[1]))[1] > 1
        middle = [loop(s.arg, add(s.src[1], 1), s.src[2], steady)] if several else []
        return t.when(lt(s.src[1], s.src[2]), block(start, *middle, end))

    def fits(self, parts: Overlap) -> bool:
        """Whether both sums, the operand and what is computed meanwhile fit the registers."""
        return sum(self.array(x.arg.tile).size for x in (parts.first, parts.last)) + \
            self.operand(parts.last)[0].size <= OVERLAP_REGISTERS

    def multiply(self, group: list[Node]) -> Node:
        """A group of products, finished before the next statement."""
        sums = tuple(self.array(s.arg.tile) for s in group)
        operands = [self.operand(s)[1] for s in group if not isinstance(self.products[s].a, Operand)]
        return block(*operands, self.issue(group), t.statement(t.SETTLE, (0, sums)), self.finish(group))

    def finish(self, group: list[Node]) -> Node:
        members = self.feed.group[group[0]]
        if not members.streamed:
            return block()
        return block(t.statement(t.RELEASE, (members.ring, 0)), t.statement(t.ADVANCE, members.ring))

    def issue(self, group: list[Node]) -> Node:
        """Wait for staged operands and start the instructions."""
        members = self.feed.group[group[0]]
        awaited = [t.statement(t.AWAIT, members.ring)] if members.streamed else []
        held = [self.operand(s)[0] for s in group if not isinstance(self.products[s].a, Operand)]
        sums = tuple(self.array(s.arg.tile) for s in group)
        return block(*awaited, t.statement(t.OPEN, sums + tuple(held)),
                     *(call for s in group for call in self.instructions(s)), t.statement(t.COMMIT, sums))

    def operand(self, s: Node) -> tuple[t.Array, Node]:
        """The array for a computed first operand, two 16-bit elements a word, and the statement that fills it."""
        if s not in self.operands:
            product = self.products[s]
            axes = (product.m, product.k)
            counters = [c for c, _, _ in self.counters(axes)]
            words = self.declare(f"{s.arg.tile.name}_operand", dtypes.uint32, t.register_count(tuple(counters)) // 2)
            value, index, lane = self.value(product.a, axes), self.place(axes), counters[0]
            word = node(t.PACK, tuple(v for _, v in lanes(lane, index, value)), None, dtypes.uint32)
            write = t.write(words, idiv(at(index, lane, 0), 2), word)
            self.operands[s] = words, t.unroll(tuple(reversed(counters[1:])), write)
        return self.operands[s]

    def instructions(self, s: Node) -> list[Node]:
        """The instructions of one product: steps along k inside, repeats along m and n outside.

        Group g of the threads computes rows g * 64 ...; its operands start that much further.
        """
        product = self.products[s]
        how, sums = product.instruction, self.array(s.arg.tile)
        operand = None if isinstance(product.a, Operand) else self.operand(s)[0]
        rows, columns = padded(product.m.arg[1], how.m) // how.m, padded(product.n.arg[1], how.n) // how.n
        groups = self.threads // how.group
        part = how.m * how.n // how.group
        group = idiv(t.thread_number(self.threads), how.group)
        out = []
        for r in range(rows // groups):
            for c in range(columns):
                for step in range(product.k.arg[1] // how.k):
                    if operand is None:
                        a = add(self.address(s, product.a, r * groups * how.m, step * how.k),
                                mul(group, self.offset(product.a, how.m, 0)))
                    else:
                        a = as_index(0)
                    b = self.address(s, product.b, c * how.n, step * how.k)
                    call = t.Multiply(how, sums, (r * columns + c) * part, operand or product.a.tile,
                                      step * how.k * how.m // how.group // 2,
                                      "columns" if operand else product.a.contracted,
                                      product.b.tile, product.b.contracted)
                    out.append(t.multiply(call, s.arg.accumulate or step > 0, a, b))
        return out

    def offset(self, operand: Operand, free: int, contracted: int) -> int:
        row, column = (free, contracted) if operand.contracted == "columns" else (contracted, free)
        return operand.tile.offset(row, column)

    def address(self, s: Node, operand: Operand, free: int, contracted: int) -> Node:
        ring, position = self.feed.slot(s, operand)
        return t.address(ring, position, self.offset(operand, free, contracted))


# --- lanes -----------------------------------------------------------------------------------------------------------

def lowest(reduce, dtype: DType) -> Node:
    """The identity of a reduction: 0 for sums, the lowest value for maxima."""
    if reduce is ops.SUM or dtype.kind in "bu":
        return const(0, dtype)
    return const(float("-inf") if dtype.is_float else -(1 << 8 * dtype.itemsize - 1), dtype)


def at(value: Node, lane: Node | None, e: int) -> Node:
    return value if lane is None else substitute([value], {lane: as_index(e)}, build)[0]


def lanes(lane: Node | None, index: Node, value: Node) -> list[tuple[Node, Node]]:
    """(index, value) for each value of the counter; loads of neighbouring elements become lanes of one vector."""
    if lane is None:
        return [(index, value)]
    widths = {n: vector_width(n.src[0], n.src[1], lane, n.dtype) for n in walk(value) if n.op is LOAD}
    out = []
    for e in range(lane.arg[1]):
        mapping = {lane: as_index(e)}
        for n, width in widths.items():
            if width > 1:
                start = tuple(at(s, lane, e // width * width) for s in n.src)
                mapping[n] = node(t.LANE, (node(t.VECTOR, start, (n.arg, width), n.dtype),), e % width, n.dtype)
        out.append((at(index, lane, e), substitute([value], mapping, build)[0]))
    return out


def vector_width(index: Node, valid: Node, lane: Node | None, dtype: DType) -> int:
    """Elements of one aligned access over the counter; 1 where elements are apart or only some of them may be valid.

    A bound `start + lane < limit` holds for all lanes or none when start and limit are multiples of the width.
    """
    width = 1 if lane is None else min(lane.arg[1], VECTOR_BYTES // dtype.itemsize)
    while width > 1 and not _together(index, valid, lane, width):
        width -= 1
    return width


def _together(index: Node, valid: Node, lane: Node, width: int) -> bool:
    if lane.arg[1] % width or width & width - 1:
        return False
    terms, constant = linear(index)
    if dict(terms).get(lane) != 1 or not _multiples(terms, constant, lane, width):
        return False
    for condition in conjuncts(valid):
        if not _depends(condition, lane):
            continue
        if condition.op is not ops.LT:
            return False
        terms, constant = linear(sub(condition.src[1], condition.src[0]))
        if dict(terms).get(lane) != -1 or not _multiples(terms, constant, lane, width):
            return False
    return True


def _multiples(terms, constant: int, lane: Node, width: int) -> bool:
    return constant % width == 0 and all(c % width == 0 and not _depends(a, lane) for a, c in terms if a is not lane)


def _depends(value: Node, lane: Node) -> bool:
    return any(n is lane for n in walk(value))
