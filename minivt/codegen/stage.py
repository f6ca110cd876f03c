"""Routes of operands: which contractions run on matrix instructions, and how their operands get there.

A contraction takes a matrix instruction when its operands' dtypes and tile sizes fit one. Its second operand, and its
first where that is a plain load too, are staged: bulk copies through a ring in shared memory, or once per block where
no loop counter moves them. Any other first operand is computed straight into the operand's registers. Not for layouts
of registers nor for the order of statements (distribute).
"""
from __future__ import annotations

from dataclasses import dataclass

from minivt import dtypes, ops
from minivt.codegen.layout import SharedTile, span_bytes
from minivt.codegen.target import MatrixInstruction, Target
from minivt.codegen.thread import Box
from minivt.codegen.tile import BLOCK, LOAD, LOOP, SET, Contraction, contraction, load, tile_axes
from minivt.graph import Node, const, node, walk
from minivt.symbolic import AXIS, ZERO, Size, add, as_size, both, bounds, conjuncts, from_terms, linear, sub

BOX_ROWS, BOX_DIMENSIONS, COPY_BYTES = 256, 5, 16


@dataclass(frozen=True)
class Operand:
    """A staged operand: panels of a box at these coordinates, contiguous dimension first, make the shared tile.

    contracted: 'rows' or 'columns' of the tile, whichever the product sums over.
    """
    box: Box
    tile: SharedTile
    origin: tuple[Node, ...]
    contracted: str


@dataclass(frozen=True)
class Product:
    """A contraction on a matrix instruction; a is staged or a value to compute into registers."""
    statement: Node
    instruction: MatrixInstruction
    m: Node
    n: Node
    k: Node
    a: Operand | Node
    b: Operand


def products(body: Node, target: Target) -> dict[Node, Product]:
    """The contractions of a tile program as matrix products; none at all unless every one has a route.

    A contraction without one would need the whole block's accumulators in another layout.
    """
    found = {}
    for statement in statements(body):
        how = contraction(statement) if statement.op is SET else None
        if how is None:
            continue
        product = matrix_product(statement, how, target)
        if product is None:
            return {}
        found[statement] = product
    return found if len({p.m.arg[1] for p in found.values()}) == 1 else {}


def statements(body: Node) -> list[Node]:
    """All statements below, in program order, loops before their bodies."""
    found, stack = [], [body]
    while stack:
        current = stack.pop()
        if current.op is BLOCK:
            stack.extend(reversed(current.src))
            continue
        found.append(current)
        if current.op is LOOP:
            stack.append(current.src[0])
    return found


def matrix_product(statement: Node, how: Contraction, target: Target) -> Product | None:
    if how.batch or not len(how.m) == len(how.n) == len(how.k) == 1 or "tma" not in target.features:
        return None
    (m,), (n,), (k,) = how.m, how.n, how.k
    a, b = narrow(how.a), narrow(how.b)
    instruction = choose(target, a, b, statement.dtype, m.arg[1], n.arg[1], k.arg[1])
    if instruction is None:
        return None
    operand = bulk_operand(b, n, k, padded(n.arg[1], instruction.n))
    if operand is None:
        return None
    first = bulk_operand(a, m, k, padded(m.arg[1], instruction.m)) or a
    return Product(statement, instruction, m, n, k, first, operand)


def padded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def narrow(value: Node) -> Node:
    """The operand before it was widened for exact products; masks to zero are narrowed with it, or join a load's.

    before:  WHERE(inside, CAST(float32, x: bfloat16), 0.0)
    after:   WHERE(inside, x, 0.0: bfloat16)
    """
    if value.op is ops.CAST and value.dtype is dtypes.float32 and value.src[0].dtype.itemsize == 2:
        return value.src[0]
    if value.op is ops.WHERE and value.src[2] is const(0, value.dtype):
        inner = narrow(value.src[1])
        if inner.op is LOAD:
            return load(inner.arg, inner.src[0], both(value.src[0], inner.src[1]))
        return node(ops.WHERE, (value.src[0], inner, const(0, inner.dtype)))
    return value


def choose(target: Target, a: Node, b: Node, accumulator, m: int, n: int, k: int) -> MatrixInstruction | None:
    """The matrix instruction that takes these dtypes with the least rows and columns beyond the tile, then the widest.

    Rows and columns may be padded, since they are apart in the result; the contracted axis may not.
    """
    fits = [i for i in target.matrix if (i.a, i.b, i.acc) == (a.dtype, b.dtype, accumulator) and k % i.k == 0
            and "shared" in i.b_space]
    return min(fits, key=lambda i: (padded(m, i.m) * padded(n, i.n), -i.m * i.n), default=None)


# --- bulk copies -----------------------------------------------------------------------------------------------------

@dataclass
class _Position:
    """Where a tile axis starts along its dimension, and where the dimension ends; None while no mask says so."""
    start: Node | None = None
    limit: Size | None = None


def bulk_operand(value: Node, free: Node, contracted: Node, room: int) -> Operand | None:
    """The load as panels of bulk copies; None where strides, alignment or masks are beyond a copy engine.

    room: what the instructions address along the free axis.

    A mask `start + i < limit` becomes the size of a dimension: what lies outside reads as zero, as a masked load does.

    before:  LOAD q[(h * 1000 + ib * 128 + i) * 64 + e]  where ib * 128 + i < 1000        (i, e tile axes of 128, 64)
    after:   box (64, 128, 1) of sizes (64, 1000, H), strides (64, 64000) at (0, ib * 128, h)
    """
    if value.op is not LOAD or tile_axes(value) != {free, contracted}:
        return None
    itemsize = value.dtype.itemsize
    terms, constant = linear(value.src[0])
    rest = dict(terms)
    steps = {x: rest.pop(x, 0) for x in (free, contracted)}
    inner = next((x for x, step in steps.items() if step == 1), None)
    outer = contracted if inner is free else free
    row = steps[outer]
    if inner is None or row <= 1 or row * itemsize % COPY_BYTES or any(tile_axes(a) or _loads(a) for a in rest):
        return None
    positions = _masked(value.src[1], inner, outer)
    span = span_bytes(inner.arg[1], itemsize)
    if positions is None or span is None or outer.arg[1] > BOX_ROWS:
        return None
    for x, step in ((inner, 1), (outer, row)):
        for atom, c in linear(positions[x].start)[0] if positions[x].start is not None else ():
            rest[atom] = rest.get(atom, 0) - c * step
    constant -= sum(linear(p.start)[1] * steps[x] for x, p in positions.items() if p.start is not None)
    extra = _place_rest({a: c for a, c in rest.items() if c}, row, positions, inner, outer)
    if any(c < 1 or c * itemsize % COPY_BYTES for _, c in extra) or len(extra) > BOX_DIMENSIONS - 2:
        return None
    if constant < 0 or constant * itemsize % COPY_BYTES:
        return None
    sizes = tuple(_size(positions[x], x) for x in (inner, outer)) + tuple(bounds(a)[1] + 1 for a, _ in extra)
    box = (span // itemsize, outer.arg[1]) + (1,) * len(extra)
    described = Box(value.arg, constant, sizes, (row,) + tuple(c for _, c in extra), box, span)
    rooms = {free: room, contracted: contracted.arg[1]}
    room = rooms[outer], padded(rooms[inner], span // itemsize)
    tile = SharedTile(outer.arg[1], inner.arg[1], itemsize, span, room)
    starts = tuple(positions[x].start if positions[x].start is not None else ZERO for x in (inner, outer))
    return Operand(described, tile, starts + tuple(a for a, _ in extra),
                   "columns" if inner is contracted else "rows")


def _masked(valid: Node, inner: Node, outer: Node) -> dict[Node, _Position] | None:
    """What the conjuncts of a mask say about the two dimensions; None where a copy engine cannot do the same."""
    lower, upper = {}, {}
    for condition in conjuncts(valid):
        if condition.op is not ops.LT:
            return None
        terms, constant = linear(sub(condition.src[1], condition.src[0]))  # holds where the sum is at least 1
        (x, sign), *more = [(a, c) for a, c in terms if a in (inner, outer)] or [(None, 0)]
        rest = {a: c for a, c in terms if a is not x}
        side = lower if sign > 0 else upper
        if more or abs(sign) != 1 or x in side or any(tile_axes(a) or _loads(a) for a in rest):
            return None
        if sign > 0:  # start + x >= 0
            lower[x] = from_terms(rest, constant - 1)
        else:         # start + x < limit
            start = {a: -c for a, c in rest.items() if _counts(a)}
            if any(c < 0 for c in start.values()):
                return None
            upper[x] = from_terms(start, 0), from_terms({a: c for a, c in rest.items() if not _counts(a)}, constant)
    return _merge(lower, upper, inner, outer)


def _merge(lower: dict, upper: dict, *axes: Node) -> dict[Node, _Position] | None:
    """One position an axis; where both ends are masked, the coordinate counts from the lower one."""
    positions = {}
    for x in axes:
        start, limit = upper.get(x, (None, None))
        if x in lower:
            shift = sub(lower[x], start) if start is not None else ZERO
            if shift.op is not ops.CONST:
                return None
            start, limit = lower[x], limit if limit is None else add(limit, shift)
        positions[x] = _Position(start, limit if limit is None else as_size(limit))
    return positions


def _counts(atom: Node) -> bool:
    """Whether the atom changes within a launch."""
    return any(n.op is AXIS for n in walk(atom))


def _loads(atom: Node) -> bool:
    return any(n.op is LOAD for n in walk(atom))


def _place_rest(rest: dict[Node, int], row: int, positions: dict, inner: Node, outer: Node) -> list[tuple[Node, int]]:
    """Give the other terms of the index to the rows, else to the columns, else to dimensions of their own."""
    rows, columns, extra = {}, {}, []
    for atom, c in rest.items():
        if positions[outer].start is None and c % row == 0:
            rows[atom] = c // row
        elif positions[inner].start is None and abs(c) < row:
            columns[atom] = c
        else:
            extra.append((atom, c))
    for x, terms in ((outer, rows), (inner, columns)):
        if terms:
            positions[x].start = from_terms(terms, 0)
    return extra


def _size(position: _Position, tile_axis: Node) -> Size:
    """Elements along a dimension: the mask's limit, else as far as the counters reach."""
    if position.limit is not None:
        return position.limit
    return (bounds(position.start)[1] if position.start is not None else 0) + tile_axis.arg[1]
