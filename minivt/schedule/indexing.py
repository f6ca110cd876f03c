"""Movement to arithmetic: the value of a graph node at given counters, as one scalar expression.

RESHAPE, PERMUTE, EXPAND, PAD, SHRINK and FLIP vanish into index expressions with validity masks, GATHER becomes an
index that loads. Not for deciding what is computed in one kernel (partition.py).
"""
from __future__ import annotations

from functools import lru_cache

from minivt import dtypes, ops
from minivt.codegen.tile import LOAD, Param, load
from minivt.graph import Node, const, node, toposort, walk
from minivt.schedule.kernel import reduce
from minivt.symbolic import (FALSE, TRUE, ZERO, Size, add, as_index, as_size, axis, both, bounds, build, idiv, le, lt,
                             mod, mul, sub)

Index = tuple[Node, ...]
HALF = (dtypes.float16, dtypes.bfloat16)
AS_INDEX = {ops.CAST: None, ops.ADD: add, ops.MUL: mul, ops.IDIV: idiv, ops.MOD: mod}


def flatten(index: Index, shape: tuple[Size, ...]) -> Node:
    """The row-major position of an index."""
    total: Node = ZERO
    for position, size in zip(index, shape):
        total = add(mul(total, size), position)
    return total


def unflatten(position: Node, shape: tuple[Size, ...]) -> Index:
    """The index at a row-major position."""
    if 0 in shape:
        return (ZERO,) * len(shape)  # there is no position
    index = []
    for size in reversed(shape):
        if size == 1:
            index.append(ZERO)
            continue
        index.append(mod(position, size))
        position = idiv(position, size)
    return tuple(reversed(index))


def to_index(value: Node) -> Node:
    """An integer expression of any dtype as index arithmetic; loads, and what may wrap around, stay as atoms."""
    done: dict[Node, Node] = {}
    for current in toposort(value, enter=lambda n: n.op in AS_INDEX and n.dtype.is_int):
        done[current] = _to_index(current, [done[s] for s in current.src if s in done])
    return done[value]


def _to_index(value: Node, src: list[Node]) -> Node:
    if value.op is ops.CONST and value.dtype.is_int:
        return as_index(value.arg)
    made = None
    if value.op is ops.CAST and value.src[0].dtype.is_int:
        made, = src
    elif value.op in AS_INDEX and value.op is not ops.CAST and value.dtype.is_int:
        if value.op in (ops.ADD, ops.MUL) or bounds(src[1])[0] > 0:
            made = AS_INDEX[value.op](*src)
    if made is not None and _fits(made, value.dtype):
        return made
    return value if value.dtype is dtypes.index else node(ops.CAST, (value,), dtypes.index)


def _fits(value: Node, dtype) -> bool:
    """Whether an index expression is certainly a value of an integer dtype, so that nothing wraps around."""
    if dtype is dtypes.index:
        return True
    low, high = bounds(value)
    bits = 8 * dtype.itemsize
    return (-(1 << bits - 1) <= low and high < 1 << bits - 1) if dtype.kind == "i" else 0 <= low and high < 1 << bits


class Lowering:
    """Lowers the nodes of one kernel; `params` says which nodes are arguments, already in memory.

    A request is (node, index, valid): the value at the index, where no memory may be touched if not valid. A rule is
    a generator that yields the requests it needs, is sent their values and returns its own; `lower` runs them on a
    stack of its own, so depth does not matter.
    """

    def __init__(self, params: dict[Node, Param], root: Node):
        self.params = params
        self.origins = {n: i for i, n in enumerate(n for n in toposort(root) if n.op in ops.REDUCE)}
        self.done: dict[tuple, Node] = {}
        self.reduce_axes = 0

    def lower(self, root: Node, index: Index, valid: Node = TRUE) -> Node:
        answer = None
        stack = [((root, index, valid), self._rule(root, index, valid))]
        while stack:
            request, rule = stack[-1]
            try:
                wanted = rule.send(answer)
            except StopIteration as finished:
                answer = self.done[request] = finished.value
                stack.pop()
                continue
            answer = self.done.get(wanted)
            if answer is None:
                stack.append((wanted, self._rule(*wanted)))
        return answer

    def _rule(self, current: Node, index: Index, valid: Node):
        op, src = current.op, current.src
        if current in self.params:
            return load(self.params[current], flatten(index, current.shape), valid)
        if op is ops.CONST or op is ops.VARIABLE:
            return current
        if op is ops.ARANGE:
            return index[0] if current.dtype is dtypes.index else node(ops.CAST, index, current.dtype)
        if op in ops.MOVEMENT:
            inner, inside = MOVE[op](current, index)
            value = yield src[0], inner, both(valid, inside)
            return _zero_outside(value, inside)
        if op in ops.ELEMENTWISE:
            values = []
            for s in src:
                values.append((yield s, index, valid))
            return simplify(op, values, current.arg)
        if op in ops.REDUCE:
            return (yield from self._reduction(current, index, valid))
        if op is ops.GATHER:
            return (yield from self._gather(current, index, valid))
        if op is ops.CONTIGUOUS:
            return (yield src[0], index, valid)
        raise AssertionError(f"{op} must be an argument of a kernel, not a part of one")

    def _reduction(self, current: Node, index: Index, valid: Node):
        source, removed = current.src[0], current.arg
        counters, full, position = [], [], 0
        for a, size in enumerate(source.shape):
            if a not in removed:
                full.append(index[position])
                position += 1
            elif size == 1:
                full.append(ZERO)
            else:
                counters.append(axis(("r", self.reduce_axes), size, "reduce"))
                self.reduce_axes += 1
                full.append(counters[-1])
        value = yield source, tuple(full), valid
        wide = dtypes.float32 if current.dtype in HALF else current.dtype
        value = reduce(simplify(ops.CAST, [value], wide), current.op, tuple(counters), self.origins[current])
        return simplify(ops.CAST, [value], current.dtype)

    def _gather(self, current: Node, index: Index, valid: Node):
        source, where = current.src
        a, n = current.arg, len(where.shape)
        row = to_index((yield where, index[a:a + n], valid))
        inside = both(le(0, row), lt(row, source.shape[a]))
        value = yield source, (*index[:a], row, *index[a + n:]), both(valid, inside)
        return _zero_outside(value, inside)


def _zero_outside(value: Node, inside: Node) -> Node:
    """0 where not inside; a load with the mask gives that by itself."""
    if inside is TRUE or value.op is LOAD or (value.op is ops.CONST and not value.arg):
        return value
    if value.op is ops.CAST and value.src[0].op is LOAD:
        return value
    return node(ops.WHERE, (inside, value, const(0, value.dtype)))


# --- one rule a movement op: (node, index of the result) -> (index of the source, where it exists) --------------------

def _reshape(current, index):
    inner = []
    for old, new in _groups(current.src[0].shape, current.shape):
        old_sizes, new_sizes = current.src[0].shape[old], current.shape[new]
        if old_sizes == new_sizes:
            inner.extend(index[new])
        else:
            inner.extend(unflatten(flatten(index[new], new_sizes), old_sizes))
    return tuple(inner), TRUE


@lru_cache(maxsize=4096)
def _groups(old: tuple[Size, ...], new: tuple[Size, ...]) -> list[tuple[slice, slice]]:
    """Runs of axes that hold the same elements before and after, as short as they can be.

    before:  (T, 9, 64) to (T, 3, 3, 64)
    after:   T to T, 9 to (3, 3), 64 to 64
    """
    if 0 in old or 0 in new:
        return [(slice(0, len(old)), slice(0, len(new)))]
    groups, i, j = [], 0, 0
    while i < len(old) and j < len(new):
        first_i, first_j, a, b = i, j, old[i], new[j]
        i, j = i + 1, j + 1
        while a is not b and a != b:
            if isinstance(a, int) and (not isinstance(b, int) or a < b) and i < len(old):
                a, i = as_size(mul(a, old[i])), i + 1
            elif isinstance(b, int) and j < len(new):
                b, j = as_size(mul(b, new[j])), j + 1
            else:  # products of symbolic sizes: no cut is certain
                return [*groups, (slice(first_i, len(old)), slice(first_j, len(new)))]
        groups.append((slice(first_i, i), slice(first_j, j)))
    if i < len(old) or j < len(new):  # sizes of 1 are left on one side
        groups.append((slice(i, len(old)), slice(j, len(new))))
    return groups


def _permute(current, index):
    inner = [None] * len(index)
    for position, a in zip(index, current.arg):
        inner[a] = position
    return tuple(inner), TRUE


def _expand(current, index):
    return tuple(ZERO if old == 1 and new != 1 else i
                 for i, old, new in zip(index, current.src[0].shape, current.shape)), TRUE


def _pad(current, index):
    inner, inside = [], TRUE
    for position, size, (before, after) in zip(index, current.src[0].shape, current.arg):
        position = sub(position, before)
        if before != 0:
            inside = both(inside, le(0, position))
        if after != 0:
            inside = both(inside, lt(position, size))
        inner.append(position)
    return tuple(inner), inside


def _shrink(current, index):
    return tuple(add(i, start) for i, (start, _) in zip(index, current.arg)), TRUE


def _flip(current, index):
    return tuple(sub(sub(size, 1), i) if a in current.arg else i
                 for a, (i, size) in enumerate(zip(index, current.shape))), TRUE


MOVE = {ops.RESHAPE: _reshape, ops.PERMUTE: _permute, ops.EXPAND: _expand, ops.PAD: _pad, ops.SHRINK: _shrink,
        ops.FLIP: _flip}


# --- elementwise -----------------------------------------------------------------------------------------------------

def simplify(op: ops.Op, values, arg=None) -> Node:
    """The elementwise node, without casts to the same dtype, products with one and choices already made."""
    values = tuple(values)
    if op is ops.CAST and arg is values[0].dtype:
        return values[0]
    if op is ops.CAST and values[0].op is ops.CONST and arg.kind != "b" and values[0].dtype.kind != "f":
        if arg.is_float and abs(values[0].arg) < 1 << 24:
            return const(values[0].arg, arg)
        if arg is dtypes.index:
            return as_index(int(values[0].arg))
    if op is ops.MUL and values[0].dtype.is_float:
        for one, other in (values, values[::-1]):
            if one.op is ops.CONST and one.arg == 1.0:
                return other
    if op is ops.WHERE and values[0].op is ops.CONST:
        return values[1] if values[0].arg else values[2]
    if op is ops.LT and values[0].dtype.kind == "i" and not any(map(_loads, values)):
        return lt(*map(to_index, values))
    if op is ops.AND and values[0].dtype is dtypes.bool_:
        return both(*values)
    if op is ops.NE and values[0].dtype is dtypes.bool_ and values[1].op is ops.CONST:
        return _negated(values[0]) if values[1].arg else values[0]
    if op is ops.XOR and values[0].dtype is dtypes.bool_ and values[1].op is ops.CONST:
        return _negated(values[0]) if values[1].arg else values[0]
    return build(node(op, values, arg), values) if values[0].dtype is dtypes.index else node(op, values, arg)


def _loads(value: Node) -> bool:
    """Whether wrap-around may matter: the value comes from memory, not from counters."""
    return any(n.op is LOAD for n in walk(value))


def _negated(condition: Node) -> Node:
    """not condition, as a comparison where it is one: not a < b is b < a + 1 in integers."""
    if condition.op is ops.CONST:
        return FALSE if condition.arg else TRUE
    if condition.op is ops.LT and condition.src[0].dtype is dtypes.index:
        return le(condition.src[1], condition.src[0])
    return node(ops.XOR, (condition, TRUE))
