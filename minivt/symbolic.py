"""Integers that are known only as bounded expressions: symbolic sizes, loop counters, index arithmetic.

An index expression is a Node of dtype int64 over CONST, VARIABLE, AXIS and loaded values. The functions here build
expressions in one canonical form (a sum of atoms times coefficients), so that equal indices are equal nodes and most
divisions, remainders and comparisons of tiled loops vanish while they are built. Division floors; divisors are
positive. Not for floats or for values of tensors.
"""
from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from math import gcd
from typing import Callable
from weakref import WeakKeyDictionary

from minivt import dtypes, ops
from minivt.graph import Node, const, node, toposort
from minivt.ops import Op

AXIS = Op("AXIS", group="index", arg="(id, size, kind)",
          meaning="a counter 0 <= value < size; kind says who counts: grid, loop, tile or reduce", dtype=None)
Size = "int | Node"  # a size, an offset or an index: a Python int or a scalar Node
UNBOUNDED = 1 << 62


def axis(key, size: Size, kind: str = "grid") -> Node:
    """A loop counter; `key` tells it from others of the same size."""
    return node(AXIS, (), (key, size, kind), dtypes.index)


def axis_size(counter: Node) -> Size:
    return counter.arg[1]


def variable(name: str, lowest: int, highest: int) -> Node:
    return node(ops.VARIABLE, (), (name, int(lowest), int(highest)), dtypes.index)


def as_index(value: Size) -> Node:
    return value if isinstance(value, Node) else _integer(value)


@lru_cache(maxsize=1 << 12)
def _integer(value: int) -> Node:
    return const(value, dtypes.index)


def as_size(value: Size) -> Size:
    """The int when the value is constant, else the expression."""
    return value.arg if isinstance(value, Node) and value.op is ops.CONST else value


TRUE, FALSE = const(True, dtypes.bool_), const(False, dtypes.bool_)
ZERO = as_index(0)


def per_node(rule: Callable) -> Callable:
    """A rule over nodes, kept for each while it lives; sources come first, so that the rule never goes deep."""
    known: WeakKeyDictionary = WeakKeyDictionary()

    @wraps(rule)
    def look_up(value: Node):
        found = known.get(value)
        if found is None:
            if not all(s in known for s in value.src):
                for current in toposort(*value.src, enter=lambda n: n not in known):
                    if current not in known:
                        known[current] = rule(current)
            found = known[value] = rule(value)
        return found
    return look_up


# --- bounds ----------------------------------------------------------------------------------------------------------

@per_node
def bounds(value: Node) -> tuple[int, int]:
    """The lowest and highest value that the expression can take, as far as intervals tell."""
    low, high = _interval(value)
    if value.dtype.is_int and value.dtype.itemsize < 8:
        bits = 8 * value.dtype.itemsize
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if value.dtype.kind == "i" else (0, (1 << bits) - 1)
        return (low, high) if least <= low and high <= most else (least, most)  # what leaves the dtype wraps around
    return low, high


def _interval(value: Node) -> tuple[int, int]:
    """The bounds before the dtype is looked at."""
    op, src = value.op, value.src
    if op is ops.CONST:
        return int(value.arg), int(value.arg)
    if op is ops.VARIABLE:
        return value.arg[1], value.arg[2]
    if op is AXIS:
        return 0, max(0, bounds(as_index(value.arg[1]))[1] - 1)
    if op in (ops.LT, ops.NE) or value.dtype is dtypes.bool_:
        return 0, 1
    if op is ops.ADD:
        (a, b), (c, d) = bounds(src[0]), bounds(src[1])
        return _clamp(a + c), _clamp(b + d)
    if op is ops.MUL:
        corners = [x * y for x in bounds(src[0]) for y in bounds(src[1])]
        return _clamp(min(corners)), _clamp(max(corners))
    if op is ops.IDIV and bounds(src[1])[0] > 0:
        corners = [x // y for x in bounds(src[0]) for y in bounds(src[1])]
        return min(corners), max(corners)
    if op is ops.MOD and bounds(src[1])[0] > 0:
        low, high = bounds(src[0])
        top = bounds(src[1])[1] - 1
        return (0, min(high, top)) if low >= 0 else (0, top)
    if op is ops.MAXIMUM:
        (a, b), (c, d) = bounds(src[0]), bounds(src[1])
        return max(a, c), max(b, d)
    if op is ops.NEG:
        low, high = bounds(src[0])
        return -high, -low
    if op is ops.WHERE:
        (a, b), (c, d) = bounds(src[1]), bounds(src[2])
        return min(a, c), max(b, d)
    if op is ops.CAST and src[0].dtype.is_int:
        return bounds(src[0])
    return -UNBOUNDED, UNBOUNDED


def _clamp(value: int) -> int:
    return max(-UNBOUNDED, min(UNBOUNDED, value))


# --- sums of atoms ---------------------------------------------------------------------------------------------------

@lru_cache(maxsize=1 << 16)
def linear(value: Node) -> tuple[tuple[tuple[Node, int], ...], int]:
    """The expression as ((atom, coefficient), ...) and a constant."""
    if not _is_sum(value):
        return ((), value.arg) if value.op is ops.CONST else (((value, 1),), 0)
    order = toposort(value, enter=_is_sum)
    factors = {current: 0 for current in order}  # how often each node counts in the whole
    factors[value] = 1
    for current in reversed(order):
        if _is_sum(current):
            parts = current.src if current.op is ops.ADD else current.src[:1]
            times = factors[current] * (1 if current.op is ops.ADD else current.src[1].arg)
            for part in parts:
                factors[part] += times
    constant = sum(factors[n] * n.arg for n in order if n.op is ops.CONST)
    return tuple((n, factors[n]) for n in order if n.op is not ops.CONST and not _is_sum(n)), constant


def _is_sum(value: Node) -> bool:
    return value.op is ops.ADD or (value.op is ops.MUL and value.src[1].op is ops.CONST)


def from_terms(terms: dict[Node, int], constant: int) -> Node:
    """The canonical expression of a sum: largest coefficient first, the constant last."""
    terms = _rejoin(terms)
    parts = [_scaled(atom, c) for atom, c in sorted(terms.items(), key=_term_order) if c]
    if constant or not parts:
        parts.append(as_index(constant))
    total = parts[0]
    for part in parts[1:]:
        total = node(ops.ADD, (total, part))
    return total


def _term_order(item: tuple[Node, int]):
    atom, coefficient = item
    return -abs(coefficient), structure(atom)


@lru_cache(maxsize=1 << 16)
def structure(value: Node) -> str:
    """A text that tells expressions apart and is the same in every process; equal nodes have equal texts."""
    for current in toposort(value):  # sources first, so that the cached text below never goes deep
        if current is not value:
            _structure(current)
    return _structure(value)


@lru_cache(maxsize=1 << 16)
def _structure(value: Node) -> str:
    text = f"{value.op.name} {value.dtype} {describe(value.arg)} {' '.join(_structure(s) for s in value.src)}"
    return value.op.name + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def describe(arg) -> str:
    """The argument of a node as text, with the nodes inside it by structure."""
    if isinstance(arg, Node):
        return structure(arg)
    if isinstance(arg, tuple):
        return f"({', '.join(map(describe, arg))})"
    if is_dataclass(arg) and not isinstance(arg, (ops.Op, dtypes.DType)):
        return f"{type(arg).__name__}({', '.join(describe(getattr(arg, f.name)) for f in fields(arg))})"
    return repr(arg)


def _scaled(atom: Node, coefficient: int) -> Node:
    return atom if coefficient == 1 else node(ops.MUL, (atom, as_index(coefficient)))


def _rejoin(terms: dict[Node, int]) -> dict[Node, int]:
    """Put quotient and remainder of one division together again: c*(x//c) + x%c is x."""
    for atom, coefficient in list(terms.items()):
        if atom.op is not ops.MOD or atom.src[1].op is not ops.CONST or not coefficient:
            continue
        divisor = atom.src[1].arg
        quotient = idiv(atom.src[0], divisor)
        if terms.get(quotient) == coefficient * divisor:
            rest = {a: c for a, c in terms.items() if a is not atom and a is not quotient}
            inner, constant = linear(atom.src[0])
            if constant:
                continue  # the constant would have to move too; such sums do not arise from reshapes
            for a, c in inner:
                rest[a] = rest.get(a, 0) + c * coefficient
            return _rejoin(rest)
    return terms


@lru_cache(maxsize=1 << 15)
def add(*values: Size) -> Node:
    terms: dict[Node, int] = {}
    constant = 0
    for value in values:
        value_terms, value_constant = linear(as_index(value))
        constant += value_constant
        for atom, coefficient in value_terms:
            terms[atom] = terms.get(atom, 0) + coefficient
    return from_terms(terms, constant)


@lru_cache(maxsize=1 << 15)
def mul(a: Size, b: Size) -> Node:
    (a_terms, a_constant), (b_terms, b_constant) = linear(as_index(a)), linear(as_index(b))
    terms: dict[Node, int] = {}
    for left, left_factor in (*a_terms, (None, a_constant)):
        for right, right_factor in (*b_terms, (None, b_constant)):
            factor = left_factor * right_factor
            if factor and (left is not None or right is not None):
                atom = _product(left, right)
                terms[atom] = terms.get(atom, 0) + factor
    return from_terms(terms, a_constant * b_constant)


def _product(left: Node | None, right: Node | None) -> Node:
    if left is None or right is None:
        return left if right is None else right
    factors = sorted(_factors(left) + _factors(right), key=structure)
    product = factors[0]
    for factor in factors[1:]:
        product = node(ops.MUL, (product, factor))
    return product


def _factors(atom: Node) -> list[Node]:
    factors = []
    while atom.op is ops.MUL:
        factors.append(atom.src[1])
        atom = atom.src[0]
    return [atom, *reversed(factors)]


def sub(a: Size, b: Size) -> Node:
    return add(a, mul(b, -1))


# --- division --------------------------------------------------------------------------------------------------------

def _split(value: Node, divisor: Size) -> tuple[Node, Node]:
    """value = divisor * quotient + rest, moving all terms that are plainly divisible into the quotient."""
    terms, constant = linear(value)
    if not isinstance(divisor, Node):
        quotient = {a: c // divisor for a, c in terms if c % divisor == 0}
        rest = {a: c for a, c in terms if c % divisor}
        return from_terms(quotient, constant // divisor), from_terms(rest, constant % divisor)
    (lead, factor), *others = linear(divisor)[0]
    quotient = as_index(0)
    for atom, coefficient in terms:
        remaining = _without(_factors(atom), _factors(lead))
        if coefficient % factor == 0 and remaining is not None:
            quotient = add(quotient, mul(as_index(coefficient // factor), remaining))
    rest = sub(value, mul(quotient, divisor))
    if (others or linear(divisor)[1]) and bounds(rest)[0] < 0:
        return as_index(0), value  # what the lead alone divides would borrow from the rest
    return quotient, rest


def _without(factors: list[Node], wanted: list[Node]) -> Node | None:
    """The product of the factors that are left when the wanted ones are taken out; None where one is missing."""
    factors = list(factors)
    for w in wanted:
        if w not in factors:
            return None
        factors.remove(w)
    product = as_index(1)
    for left in factors:
        product = mul(product, left)
    return product


def _upper(value: Node) -> Node:
    """An expression that is never below `value`, with counters of symbolic size at their last value."""
    terms, constant = linear(value)
    total = [as_index(constant)]
    for atom, c in terms:
        product = as_index(c)
        for factor in _factors(atom):
            counts = factor.op is AXIS and c > 0 and bounds(atom)[0] >= 0
            product = mul(product, sub(factor.arg[1], 1) if counts else factor)
        total.append(product)
    return add(*total)


def is_below(value: Node, limit: Size) -> bool:
    """Whether value < limit is certain."""
    if not isinstance(limit, Node) and bounds(value)[1] < limit:
        return True
    return bounds(sub(limit, value))[0] > 0 or bounds(sub(limit, _upper(value)))[0] > 0


@lru_cache(maxsize=1 << 15)
def idiv(value: Size, divisor: Size) -> Node:
    """The floor of value / divisor, divisor > 0."""
    value, divisor = as_index(value), as_size(divisor)
    if divisor == 1:
        return value
    quotient, rest = _split(value, divisor)
    low, high = bounds(rest)
    if low >= 0 and is_below(rest, divisor):
        return quotient
    if not isinstance(divisor, Node):
        if low // divisor == high // divisor and low > -UNBOUNDED:
            return add(quotient, low // divisor)
        terms, constant = linear(rest)
        common = gcd(divisor, *(c for _, c in terms))
        if common > 1:
            return add(quotient, idiv(from_terms({a: c // common for a, c in terms}, constant // common),
                                      divisor // common))
        if rest.op is ops.IDIV and rest.src[1].op is ops.CONST:
            return add(quotient, idiv(rest.src[0], rest.src[1].arg * divisor))
    return add(quotient, node(ops.IDIV, (rest, as_index(divisor))))


@lru_cache(maxsize=1 << 15)
def mod(value: Size, divisor: Size) -> Node:
    """value - divisor * floor(value / divisor), divisor > 0."""
    value, divisor = as_index(value), as_size(divisor)
    if divisor == 1:
        return ZERO
    _, rest = _split(value, divisor)
    low, high = bounds(rest)
    if low >= 0 and is_below(rest, divisor):
        return rest
    if not isinstance(divisor, Node):
        if low // divisor == high // divisor and low > -UNBOUNDED:
            return add(rest, -(low // divisor) * divisor)
        terms, constant = linear(rest)
        opened = [a.src[0] if a.op is ops.MOD and a.src[1].op is ops.CONST and a.src[1].arg % divisor == 0 else a
                  for a, _ in terms]
        if any(o is not a for o, (a, _) in zip(opened, terms)):
            return mod(add(constant, *(mul(o, c) for o, (_, c) in zip(opened, terms))), divisor)
        common = gcd(divisor, *(c for _, c in terms))
        if common > 1:
            inner = mod(from_terms({a: c // common for a, c in terms}, constant // common), divisor // common)
            return add(mul(inner, common), constant % common)
    return node(ops.MOD, (rest, as_index(divisor)))


def ceil_div(value: Size, divisor: Size) -> Size:
    return as_size(idiv(add(value, as_size(sub(divisor, 1))), divisor))


# --- comparisons and logic -------------------------------------------------------------------------------------------

def lt(a: Size, b: Size) -> Node:
    """a < b, decided at once where the bounds allow."""
    a, b = as_index(a), as_index(b)
    low, high = bounds(sub(b, a))
    if low > 0 or is_below(a, b):
        return TRUE
    if high <= 0:
        return FALSE
    terms, constant = linear(sub(b, a))
    left = from_terms({t: -c for t, c in terms if c < 0}, max(0, -constant))
    right = from_terms({t: c for t, c in terms if c > 0}, max(0, constant))
    return node(ops.LT, (left, right))


def le(a: Size, b: Size) -> Node:
    return lt(a, add(b, 1))


def both(a: Node, b: Node) -> Node:
    """a and b; conjunctions are kept flat and without repeats."""
    if a is FALSE or b is FALSE:
        return FALSE
    parts = list(dict.fromkeys(conjuncts(a) + conjuncts(b)))
    total = TRUE
    for part in parts:
        total = part if total is TRUE else node(ops.AND, (total, part))
    return total


def conjuncts(condition: Node) -> list[Node]:
    """The conditions whose conjunction this is; none for true."""
    parts, stack = [], [condition]
    while stack:
        current = stack.pop()
        if current.op is ops.AND:
            stack.extend(reversed(current.src))
        elif current is not TRUE:
            parts.append(current)
    return parts


def maximum(a: Size, b: Size) -> Node:
    a, b = as_index(a), as_index(b)
    low, high = bounds(sub(a, b))
    return a if low >= 0 else b if high <= 0 else node(ops.MAXIMUM, (a, b))


def minimum(a: Size, b: Size) -> Node:
    a, b = as_index(a), as_index(b)
    low, high = bounds(sub(a, b))
    return b if low >= 0 else a if high <= 0 else node(ops.WHERE, (lt(a, b), a, b))


# --- evaluation ------------------------------------------------------------------------------------------------------
_BUILD = {ops.ADD: add, ops.MUL: mul, ops.IDIV: idiv, ops.MOD: mod, ops.LT: lt, ops.AND: both, ops.MAXIMUM: maximum}


def build(parent: Node, src: tuple[Node, ...]) -> Node:
    """Rebuild a node over new sources, in canonical form where it is index arithmetic."""
    if parent.dtype is dtypes.index or (src and src[0].dtype in (dtypes.index, dtypes.bool_)):
        if parent.op in _BUILD and all(s.dtype in (dtypes.index, dtypes.bool_) for s in src):
            if parent.op in (ops.IDIV, ops.MOD) and bounds(src[1])[0] <= 0:
                return node(parent.op, src)  # the rules of division are for sizes; a value may be 0
            if parent.op not in (ops.ADD, ops.MUL, ops.LT, ops.MAXIMUM) or src[0].dtype is dtypes.index:
                return _BUILD[parent.op](*src)
        if parent.op is ops.WHERE and src[0] in (TRUE, FALSE):
            return src[1] if src[0] is TRUE else src[2]
    return node(parent.op, src, parent.arg, parent.dtype)


_COMPUTE = {ops.ADD: int.__add__, ops.MUL: int.__mul__, ops.IDIV: int.__floordiv__, ops.MOD: int.__mod__,
            ops.LT: int.__lt__, ops.AND: int.__and__, ops.MAXIMUM: max,
            ops.WHERE: lambda condition, a, b: a if condition else b}


def evaluate(value: Size, values: dict[str, int]) -> int:
    """The integer for given values of the VARIABLEs by name; KeyError where one is missing."""
    if not isinstance(value, Node):
        return value
    done: dict[Node, int] = {}
    for current in toposort(value):
        if current.op is ops.CONST:
            done[current] = current.arg
        elif current.op is ops.VARIABLE:
            done[current] = values[current.arg[0]]
        else:
            done[current] = _COMPUTE[current.op](*(done[s] for s in current.src))
    return done[value]
