"""Online reductions: cascades of reductions over one counter as one pass, derived from their algebra.

softmax(x) @ v is three reductions, each needing the one before: m = max x, l = sum exp2(x - m), o = sum exp2(x - m) v.
A reduction whose summand factors as g(state) * h(x), where the state comes from earlier reductions of the same pass,
can run beside them: whenever the state moves from s to s', what has been summed is multiplied by g(s') / g(s). That is
the whole condition; nothing here knows about attention.

What one pass keeps is a tuple monoid: init (identities), lift (the summand at the current state), combine (rescale,
then add), finish. Sequential, split and tree forms of a pass all come from these. Not for loops and tiles (tiling.py).
"""
from __future__ import annotations

from dataclasses import dataclass, field

from minivt import ops
from minivt.codegen.tile import REDUCE
from minivt.graph import Node, const, node, substitute, toposort
from minivt.schedule.indexing import simplify
from minivt.schedule.kernel import free_axes, reduce, reductions
from minivt.symbolic import axis_size, build


@dataclass
class Item:
    """One reduction of a pass. states: the earlier items whose running value its summand contains.

    exponents: terms u(state) for which the summand holds a factor exp2(u); they give the rescale factor.
    """
    reduction: Node
    states: tuple[Node, ...] = ()
    exponents: tuple[Node, ...] = ()

    @property
    def op(self) -> ops.Op:
        return self.reduction.arg[0]

    @property
    def summand(self) -> Node:
        return self.reduction.src[0]


@dataclass
class Pass:
    """Reductions that run in one loop over the same counters."""
    axes: tuple[Node, ...]
    items: list[Item] = field(default_factory=list)


# --- factoring -------------------------------------------------------------------------------------------------------

@dataclass
class Factors:
    """value = product of plain * kept; kept still holds factors exp2(u) for each u in exponents.

    plain and exponents do not move with the counters. A plain factor keeps its own dtype: a rounding of the product
    moves onto what is kept, which is where a matrix instruction wants it.
    """
    plain: tuple[Node, ...] = ()
    exponents: tuple[Node, ...] = ()
    kept: Node | None = None  # None: one


def _fixed(value: Node, axes: frozenset[Node]) -> bool:
    return not (free_axes(value) & axes)


def factor(value: Node, axes: frozenset[Node], states: frozenset[Node]) -> Factors | None:
    """Split a summand by structure; None where a state sits somewhere that no factor can be taken from."""
    if not any(n in states for n in toposort(value)):
        return Factors(kept=value)
    if _fixed(value, axes):
        return Factors(plain=(value,))
    op, src = value.op, value.src
    if op is ops.MUL or op is ops.DIV:
        left, right = factor(src[0], axes, states), factor(src[1], axes, states)
        if left is None or right is None or (op is ops.DIV and right.exponents):
            return None
        plain = right.plain if op is ops.MUL else tuple(_inverse(p) for p in right.plain)
        return Factors(left.plain + plain, left.exponents + right.exponents, _combine(op, left.kept, right.kept))
    if op is ops.EXP2:
        terms = split_sum(src[0], axes, states)
        return None if terms is None else Factors(exponents=terms, kept=value)
    if op is ops.CAST and value.dtype.is_float and src[0].dtype.is_float:
        inner = factor(src[0], axes, states)
        if inner is None or inner.kept is None:
            return None
        return Factors(inner.plain, inner.exponents, simplify(ops.CAST, [inner.kept], value.dtype))
    if op is ops.WHERE and _is_zero(src[2]) and not any(n in states for n in toposort(src[0])):
        inner = factor(src[1], axes, states)
        if inner is None:
            return None
        kept = const(1, value.dtype) if inner.kept is None else inner.kept
        return Factors(inner.plain, inner.exponents, node(ops.WHERE, (src[0], kept, src[2])))
    return None


def _combine(op: ops.Op, a: Node | None, b: Node | None) -> Node | None:
    if b is None:
        return a
    if a is None:
        return b if op is ops.MUL else _inverse(b)
    return simplify(op, [a, b])


def split_sum(value: Node, axes: frozenset[Node], states: frozenset[Node]) -> tuple[Node, ...] | None:
    """The fixed terms of a sum that hold all its states; None where a state is not in such a term."""
    if not any(n in states for n in toposort(value)):
        return ()
    if _fixed(value, axes):
        return (value,)
    op, src = value.op, value.src
    if op is ops.ADD:
        left, right = split_sum(src[0], axes, states), split_sum(src[1], axes, states)
        return None if left is None or right is None else left + right
    if op is ops.NEG:
        inner = split_sum(src[0], axes, states)
        return None if inner is None else tuple(node(ops.NEG, (t,)) for t in inner)
    if op is ops.MUL and any(s.op is ops.CONST for s in src):
        scale, other = src if src[0].op is ops.CONST else src[::-1]
        inner = split_sum(other, axes, states)
        return None if inner is None else tuple(node(ops.MUL, (t, scale)) for t in inner)
    if op is ops.WHERE and src[2].op is ops.CONST and src[2].arg == float("-inf"):
        return split_sum(src[1], axes, states)
    return None


def _is_zero(value: Node) -> bool:
    return value.op is ops.CONST and value.arg == 0


def _inverse(value: Node) -> Node:
    return node(ops.DIV, (const(1, value.dtype), value))


# --- passes ----------------------------------------------------------------------------------------------------------

def share_axes(roots: tuple[Node, ...]) -> list[Node]:
    """Let reductions of equal sizes count with the same counters, so that what they share is the same expression.

    before:  m = max over r of x[r];  l = sum over q of exp2(x[q] - m)
    after:   m = max over r of x[r];  l = sum over r of exp2(x[r] - m)
    """
    canonical: dict[tuple, tuple[Node, ...]] = {}

    def rename(current: Node, src: tuple) -> Node:
        if current.op is not REDUCE:
            return build(current, src)
        op, axes, origin = current.arg
        sizes = tuple(axis_size(a) for a in axes)
        for key in range(8):
            shared = canonical.setdefault((sizes, key), axes)
            if shared == axes:
                return reduce(src[0], op, axes, origin)
            if not _captures(src[0], axes, shared):
                value, = substitute([src[0]], dict(zip(axes, shared)), build)
                return reduce(value, op, shared, origin)
        return reduce(src[0], op, axes, origin)

    done: dict[Node, Node] = {}
    for current in toposort(*roots):
        src = tuple(done[s] for s in current.src)
        done[current] = current if src == current.src and current.op is not REDUCE else rename(current, src)
    return [done[r] for r in roots]


def _captures(value: Node, axes: tuple[Node, ...], shared: tuple[Node, ...]) -> bool:
    """Whether renaming axes to shared would collide with a counter in use, free or bound around one of axes."""
    inner = (r for r in reductions(value) if free_axes(r) & set(axes))
    return bool(set(shared) & free_axes(value)) or any(set(shared) & set(r.arg[1]) for r in inner)


def pull_factors(roots: tuple[Node, ...]) -> list[Node]:
    """Take row factors that are earlier reductions' results out of sums: sum of g * h(x) is g * sum of h(x).

    before:  o = sum over r of (exp2(x[r] - m) / l) * v[r]
    after:   o = (sum over r of exp2(x[r] - m) * v[r]) * (1 / l)
    """
    def pull(current: Node, src: tuple) -> Node:
        if current.op is not REDUCE or current.arg[0] is not ops.SUM or not current.dtype.is_float:
            return build(current, src)
        axes = frozenset(current.arg[1])
        states = frozenset(r for r in reductions(src[0]) if set(r.arg[1]) <= axes and _fixed(r, axes))
        parts = factor(src[0], axes, states)
        if not states or parts is None or not parts.plain or parts.kept is None:
            return reduce(src[0], *current.arg)
        value = reduce(parts.kept, *current.arg)
        for plain in parts.plain:
            value = simplify(ops.MUL, [value, simplify(ops.CAST, [plain], value.dtype)])
        return value

    done: dict[Node, Node] = {}
    for current in toposort(*roots):
        src = tuple(done[s] for s in current.src)
        done[current] = pull(current, src)
    return [done[r] for r in roots]


def find_passes(roots: tuple[Node, ...]) -> list[Pass]:
    """Group the outermost reductions into as few passes as their dependences allow.

    A reduction joins the pass of the states it needs when its summand factors over them, otherwise it starts a new
    pass behind theirs. A reduction over counters of an enclosing pass belongs to that pass's body.
    """
    passes: list[Pass] = []
    where: dict[Node, int] = {}
    for current in reductions(*roots):
        if _inside_another(current, roots):
            continue
        needed = [r for r in reductions(current.src[0]) if r in where]
        earliest = max((where[r] for r in needed), default=0)
        for number in range(earliest, len(passes)):
            candidate = passes[number]
            if candidate.axes != current.arg[1]:
                continue
            item = _joined(current, candidate, [r for r in needed if where[r] == number])
            if item is not None:
                candidate.items.append(item)
                where[current] = number
                break
        else:
            passes.append(Pass(current.arg[1], [Item(current)]))
            where[current] = len(passes) - 1
    return passes


def _inside_another(current: Node, roots: tuple[Node, ...]) -> bool:
    """Whether the reduction depends on counters that an enclosing reduction binds."""
    return any(a.arg[2] == "reduce" for a in free_axes(current))


def _joined(current: Node, into: Pass, needed: list[Node]) -> Item | None:
    if not needed:
        return Item(current)
    if current.arg[0] is not ops.SUM:
        return None
    parts = factor(current.src[0], frozenset(into.axes), frozenset(needed))
    if parts is None or parts.plain or parts.kept is None:
        return None
    states = tuple(r for r in needed if any(r in toposort(t) for t in parts.exponents))
    if any(s.arg[0] is not ops.MAX for s in states):
        return None
    return Item(current, states, parts.exponents)
