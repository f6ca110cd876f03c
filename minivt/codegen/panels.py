"""Products on operands that threads stage in shared memory themselves: every contraction without bulk copies.

Threads of a block load an operand's next panel (or compute it: dequantise, gather, mask), put it into shared memory,
meet, and multiply from there, on matrix instructions that take registers or with plain arithmetic. Every element
is read from memory once a block instead of once a thread. A first operand that is itself a tile of the block, such as
the weights of attention, stays in registers where the instruction's layout allows.

before:  SET acc[i, j] += sum over k in 64 of LOAD a[i, k] * LOAD b[k, j]
after:   LOOP c in 2:  BARRIER;  STAGE panel_a[i', k'] = LOAD a[i', 32 c + k'];  STAGE panel_b[j', k'] = LOAD b[...]
                       BARRIER;  SET acc[i, j] += sum over k' in 32 of panel_a[i, k'] * panel_b[j, k']

Not for bulk copies (stage, pipeline) nor for what one thread does (distribute).
"""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from minivt import dtypes, ops
from minivt.codegen import thread as t
from minivt.codegen.layout import Spread
from minivt.codegen.stage import narrow, padded, statements
from minivt.codegen.target import MatrixInstruction, Target
from minivt.codegen.tile import BLOCK, LOAD, LOOP, READ, SET, Contraction, block, contraction, loop, set_tile
from minivt.graph import Node, const, node, substitute, walk
from minivt.symbolic import add, as_index, axis, build, idiv, linear, mul

LEAST_REUSE = 16        # rows and columns from which staging pays
ROOM = 44 * 1024        # bytes of panels; the rest of 48 KiB is for exchanges between warps
PANEL_STEPS = 64        # summed products of one panel, at most
PAD_BYTES = 16          # after each row, so that neighbouring rows start in different banks
VECTOR_BYTES = 16


@dataclass(frozen=True)
class Panel:
    """An operand in shared memory: element (free, k) at free * pitch + k of `array`; words hold two steps of k."""
    array: t.Array
    free: tuple[Node, ...]
    k: tuple[Node, ...]
    pitch: int

    def index(self, free: Node, k: Node) -> Node:
        return add(mul(free, self.pitch), k)


@dataclass(frozen=True)
class PanelProduct:
    """A product on an instruction that takes registers; a is a Panel or a value to compute into registers."""
    statement: Node
    instruction: MatrixInstruction
    m: Node
    n: Node
    k: Node
    a: Panel | Node
    b: Panel


@dataclass(frozen=True)
class Panels:
    """body: with staging in it; products: its statements that are on instructions.

    fills: for each panel the axes that its staging counts, which of them follows memory, and the size of an element.
    """
    body: Node
    products: dict[Node, PanelProduct]
    fills: tuple[tuple[tuple[Node, ...], Node, int], ...]

    def spreads(self, threads: int) -> dict[Node, Spread]:
        """Of the staging axes."""
        return {x: spread for fill in self.fills for x, spread in staging_spreads(*fill, threads).items()}


def panels(body: Node, target: Target) -> Panels:
    """Stage every product of the block, or none. Instructions are used when all the products have one."""
    found = {s: how for s in statements(body) if s.op is SET and (how := contraction(s)) is not None}
    if not found or any(how.batch or min(_size(how.m), _size(how.n)) < LEAST_REUSE for how in found.values()):
        return Panels(body, {}, ())
    chosen = {s: instruction(s, how, target) for s, how in found.items()}
    rows = {how.m[0].arg[1] for how in found.values()}
    if None in chosen.values() or len(rows) > 1:
        chosen = dict.fromkeys(found)
    staging = Staging()
    plans = {s: staging.plan(s, how, chosen[s]) for s, how in found.items()}
    if None in plans.values() or sum(staging.sizes.values()) > ROOM:
        return Panels(body, {}, ())
    return Panels(staging.rewrite(body, plans), staging.products, tuple(staging.fills))


def instruction(statement: Node, how: Contraction, target: Target) -> MatrixInstruction | None:
    """The instruction on registers that takes these operands."""
    if not len(how.m) == len(how.n) == len(how.k) == 1:
        return None
    kinds = narrow(how.a).dtype, narrow(how.b).dtype, statement.dtype
    fits = [i for i in target.matrix if (i.a, i.b, i.acc) == kinds and "shared" not in i.b_space
            and how.k[0].arg[1] % i.k == 0]
    return fits[0] if fits else None


def _size(axes: tuple[Node, ...]) -> int:
    return prod(x.arg[1] for x in axes)


def is_computed(value: Node) -> bool:
    """Whether the operand is made of tiles of the block."""
    return any(n.op is READ for n in walk(value))


@dataclass(frozen=True)
class Plan:
    """How one product is staged: `chunk` steps of the contracted axis `along` at a time."""
    statement: Node
    how: Contraction
    instruction: MatrixInstruction | None
    along: Node
    chunk: int


@dataclass
class Staging:
    """Makes the staged body; panels of one role and dtype share memory. sizes: bytes of each shared array."""
    sizes: dict[tuple, int] = field(default_factory=dict)
    products: dict[Node, PanelProduct] = field(default_factory=dict)
    fills: list[tuple[tuple[Node, ...], Node, int]] = field(default_factory=list)

    def plan(self, s: Node, how: Contraction, chosen: MatrixInstruction | None) -> Plan | None:
        """The longest chunk with which both panels fit; a computed operand is staged or held whole."""
        along = max(how.k, key=lambda x: x.arg[1])
        size, others = along.arg[1], _size(how.k) // along.arg[1]
        whole = is_computed(how.a) or is_computed(how.b)
        step = chosen.k if chosen else 1
        chunks = [size] if whole else [c for c in range(size, 0, -1) if size % c == 0 and c % step == 0]
        fitting = [c for c in chunks if (c * others <= PANEL_STEPS or c is chunks[-1]) and
                   self._bytes(how, chosen, c * others) <= ROOM]
        if not fitting:
            return None
        plan = Plan(s, how, chosen, along, fitting[0])
        for role, value, free in (("a", how.a, how.m), ("b", how.b, how.n)):
            if not (chosen and is_computed(value)):
                key = role, _element(value, chosen)
                self.sizes[key] = max(self.sizes.get(key, 0), _panel_bytes(value, free, chosen, plan.chunk * others))
        return plan

    def _bytes(self, how: Contraction, chosen, steps: int) -> int:
        return sum(_panel_bytes(v, f, chosen, steps) for v, f in ((how.a, how.m), (how.b, how.n))
                   if not (chosen and is_computed(v)))

    def rewrite(self, body: Node, plans: dict[Node, Plan | None]) -> Node:
        """The body with every product replaced by its staged form."""
        out = []
        for s in body.src if body.op is BLOCK else (body,):
            if s.op is BLOCK:
                out.append(self.rewrite(s, plans))
            elif s.op is LOOP:
                out.append(loop(s.arg, s.src[1], s.src[2], self.rewrite(s.src[0], plans)))
            else:
                out.append(self.staged(plans[s]) if s in plans else s)
        return block(*out)

    def staged(self, plan: Plan) -> Node:
        s, how = plan.statement, plan.how
        chunks = plan.along.arg[1] // plan.chunk
        if chunks == 1:
            return block(*self.step(plan, how.k, {}, s.arg.accumulate))
        counter = axis(("chunk", s.arg.tile.name, len(self.fills)), chunks, "loop")
        inner = axis(("step", s.arg.tile.name, len(self.fills)), plan.chunk, "tile")
        mapping = {plan.along: add(mul(counter, plan.chunk), inner)}
        k = tuple(inner if x is plan.along else x for x in how.k)
        start = [] if s.arg.accumulate else [set_tile(s.arg.tile, const(0, s.dtype))]
        return block(*start, loop(counter, 0, chunks, *self.step(plan, k, mapping, True)))

    def step(self, plan: Plan, k: tuple[Node, ...], mapping: dict, accumulate: bool) -> list[Node]:
        """Stage one chunk of both operands and multiply it."""
        s, how = plan.statement, plan.how
        a, b = (substitute([v], mapping, build)[0] for v in (how.a, how.b))
        if plan.instruction:
            a, b = narrow(a), narrow(b)
        fills, sides = [t.statement(t.BARRIER)], []
        for role, value, free in (("a", a, how.m), ("b", b, how.n)):
            if plan.instruction and role == "a" and is_computed(value):
                sides.append(value)
                continue
            panel, fill = self.panel(role, value, free, k, plan.instruction)
            fills.append(fill)
            sides.append(panel)
        if plan.instruction:  # the number only tells products apart; the instruction reads the panels
            values = [const(float(len(self.products)), s.dtype), const(1.0, s.dtype)]
        else:
            values = [_element_of(panel, k) for panel in sides]
        product = set_tile(s.arg.tile, node(ops.MUL, tuple(values)), ops.SUM, k, accumulate)
        if plan.instruction:
            self.products[product] = PanelProduct(product, plan.instruction, how.m[0], how.n[0], k[0], *sides)
        return [*fills, t.statement(t.BARRIER), product]

    def panel(self, role: str, value: Node, free: tuple, k: tuple, chosen) -> tuple[Panel, Node]:
        """The panel of an operand and the statement that fills it."""
        element, words = _element(value, chosen), 2 if chosen else 1
        pitch = _pitch(_size(k), element, words)
        array = t.Array(f"panel_{role}", element, -(-self.sizes[role, element] // element.itemsize), "shared")
        panel = Panel(array, free, k, pitch)
        if is_computed(value):
            return panel, t.statement(t.STAGE, (array, free + k), panel.index(_flat(free), _flat(k)), value)
        number = len(self.fills)
        fresh = {x: axis(("stage", role, number, i), x.arg[1], "tile") for i, x in enumerate(free + k)}
        moved, = substitute([value], fresh, build)
        own_free, own_k = tuple(fresh[x] for x in free), tuple(fresh[x] for x in k)
        along, itemsize = _contiguous(moved, own_free + own_k), value.dtype.itemsize
        place = idiv(_flat(own_k), words)
        if chosen and along is not own_k[0]:
            pairs = axis(("pairs", role, number), k[0].arg[1] // 2, "tile")
            low, high = (substitute([moved], {own_k[0]: add(mul(pairs, 2), e)}, build)[0] for e in (0, 1))
            moved, own_k, place = node(t.PACK, (low, high), None, dtypes.uint32), (pairs,), pairs
        self.fills.append((own_free + own_k, along, itemsize))
        return panel, t.statement(t.STAGE, (array, own_free + own_k), panel.index(_flat(own_free), place), moved)


def staging_spreads(axes: tuple[Node, ...], along: Node, itemsize: int, threads: int) -> dict[Node, Spread]:
    """Vectors and neighbouring threads along contiguous memory, the other threads along the other axes."""
    found, divisor = {}, 1
    for rank, x in enumerate((along, *(x for x in axes if x is not along))):
        step, count = 1, 1
        if x is along:
            step = VECTOR_BYTES // itemsize
            while x.arg[1] % step:
                step //= 2
        while divisor * count < threads and step * count < x.arg[1]:
            count *= 2
        registers = ((0, step, 1),) if step > 1 else ()
        rest = -(-x.arg[1] // (step * count))
        registers += ((rank + 1, rest, step * count),) if rest > 1 else ()
        found[x] = Spread(((divisor, count, step),) if count > 1 else (), registers)
        divisor *= count
    return found


def _element(value: Node, chosen: MatrixInstruction | None):
    return dtypes.uint32 if chosen else value.dtype


def _pitch(steps: int, element, words: int) -> int:
    """Elements from one row to the next: an odd number of 16-byte units for words, an odd one of elements otherwise.

    Instructions read 4 neighbouring words of 8 rows at a time, plain arithmetic one element of many rows.
    """
    count = steps // words
    if words == 2:
        unit = PAD_BYTES // element.itemsize
        units = -(-count // unit)
        return unit * (units + (units % 2 == 0))
    return count + (count % 2 == 0)


def _panel_bytes(value: Node, free: tuple[Node, ...], chosen, steps: int) -> int:
    element = _element(value, chosen)
    rows = padded(_size(free), 16) if chosen else _size(free)
    return rows * _pitch(steps, element, 2 if chosen else 1) * element.itemsize


def _flat(axes: tuple[Node, ...]) -> Node:
    """The axes as digits of one number, the last one fastest."""
    total = as_index(0)
    for x in axes:
        total = add(mul(total, x.arg[1]), x)
    return total


def _element_of(panel: Panel, k: tuple[Node, ...]) -> Node:
    return t.element(panel.array, panel.index(_flat(panel.free), _flat(k)))


def _contiguous(value: Node, axes: tuple[Node, ...]) -> Node:
    """The axis along which most loads are contiguous."""
    def score(x: Node) -> int:
        return sum(dict(linear(n.src[0])[0]).get(x) == 1 for n in walk(value) if n.op is LOAD)
    return max(reversed(axes), key=score)
