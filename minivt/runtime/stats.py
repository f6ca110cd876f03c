"""What kernels really touch: counts of kernels, bytes and operations, taken where they are launched.

    with minivt.stats() as s:
        y.realize()
    print(s.kernels, s.bytes_read)

Not for time; compile_s is the one duration here.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from minivt import ops
from minivt.codegen.tile import BLOCK, LOAD, LOOP, SET, TileProgram
from minivt.graph import Node, substitute, toposort
from minivt.symbolic import AXIS, as_index, bounds, build, conjuncts, evaluate, linear

AVERAGED = 4096  # counters around a loop for which its clipped length is looked at one by one
FREE_OPS = frozenset((ops.CAST, ops.BITCAST, ops.WHERE, ops.CONST, ops.VARIABLE))


@dataclass(eq=False)
class Stats:
    """kernels: launches. bytes_read, bytes_written: distinct elements of arguments, each counted once a launch.
    flops: arithmetic on floats. peak_bytes: the most memory held at once. compile_s: seconds in code generation."""
    kernels: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    flops: int = 0
    peak_bytes: int = 0
    compile_s: float = 0.0


_ACTIVE: list[Stats] = []


@contextmanager
def stats():
    """Count what runs inside the with block."""
    counted = Stats()
    _ACTIVE.append(counted)
    try:
        yield counted
    finally:
        _ACTIVE.remove(counted)


def active() -> bool:
    return bool(_ACTIVE)


def record(program: TileProgram, values: dict[str, int]) -> None:
    """Count one launch."""
    for counted in _ACTIVE:
        read, written, flops = traffic(program, tuple(sorted(values.items())))
        counted.kernels += 1
        counted.bytes_read += read
        counted.bytes_written += written
        counted.flops += flops


def record_memory(held: int) -> None:
    for counted in _ACTIVE:
        counted.peak_bytes = max(counted.peak_bytes, held)


def record_compile(seconds: float) -> None:
    for counted in _ACTIVE:
        counted.compile_s += seconds


@lru_cache(maxsize=4096)
def traffic(program: TileProgram, values: tuple[tuple[str, int], ...]) -> tuple[int, int, int]:
    """Bytes read and written and float operations of one launch, for values of the VARIABLEs."""
    known = dict(values)
    touched: dict[tuple, int] = {}
    flops = 0
    stack = [(program.body, prod(_size(g, known) for g in program.grid))]
    while stack:
        current, repeats = stack.pop()
        if current.op is BLOCK:
            stack.extend((s, repeats) for s in current.src)
        elif current.op is LOOP:
            stack.append((current.src[0], repeats * _trips(current, known)))
        else:
            flops += repeats * _operations(current)
            _touch(current, touched, known)
    read, written = 0, 0
    for param in program.params:
        elements = sum(count for (p, _), count in touched.items() if p == param)
        total = min(elements, evaluate(param.size, known)) * param.dtype.itemsize
        read, written = (read, written + total) if param.written else (read + total, written)
    return read, written, round(flops)


def _size(counter: Node, known: dict[str, int]) -> int:
    return evaluate(counter.arg[1], known)


def _trips(statement: Node, known: dict[str, int]) -> float:
    """How often a loop runs, on average over the counters around it; all of its counter where lengths are loaded."""
    bounds_of = statement.src[1:]
    around = [n for n in toposort(*bounds_of) if n.op is AXIS]
    if any(map(_has_load, bounds_of)) or prod(_size(a, known) for a in around) > AVERAGED:
        return _size(statement.arg, known)
    trips = []
    for place in product(*(range(_size(a, known)) for a in around)):
        start, stop = substitute(bounds_of, dict(zip(around, map(as_index, place))), build)
        trips.append(max(0, evaluate(stop, known) - evaluate(start, known)))
    return sum(trips) / max(1, len(trips))


def _operations(statement: Node) -> int:
    """Float operations of one run of a statement."""
    points = statement.arg.tile.axes + statement.arg.reduce_axes if statement.op is SET else statement.arg[1]
    arithmetic = sum(n.op in ops.ELEMENTWISE and n.op not in FREE_OPS and n.dtype.is_float
                     for n in toposort(statement.src[-1] if statement.op is not SET else statement.src[0]))
    reduces = statement.op is SET and statement.arg.reduce is not None
    return (arithmetic + reduces) * prod(a.arg[1] for a in points)


def _touch(statement: Node, touched: dict, known: dict[str, int]) -> None:
    """Note the distinct elements that the loads and the store of a statement reach."""
    if statement.op is not SET:
        param, axes = statement.arg
        touched[(param, statement.src[0])] = _points(statement.src[0], statement.src[1], known)
    for current in toposort(*statement.src):
        if current.op is LOAD:
            touched[(current.arg, current.src[0])] = _points(*current.src, known)


def _points(index: Node, valid: Node, known: dict[str, int]) -> int:
    """How many distinct values an index takes at most: for each counter, no more than its terms tell apart, and for
    counters that a mask holds below a size, no more than that.

    before:  20 * (k // 32) + k % 16 + 4 for k < 576
    after:   min(576, 18 * 16)
    """
    apart: dict[Node, int] = {}
    for atom, _ in linear(index)[0]:
        counters = [n for n in toposort(atom) if n.op is AXIS]
        for counter in counters:
            low, high = bounds(atom)
            size = _size(counter, known)
            count = min(size, high - low + 1) if len(counters) == 1 and not _has_load(atom) else size
            apart[counter] = min(size, apart.get(counter, 1) * count)
    total = prod(apart.values())
    for condition in conjuncts(valid):
        below = [n for n in toposort(condition) if n.op is AXIS and n in apart]
        limit = condition.src[1] if condition.op is ops.LT else None
        if below and limit is not None and not any(n.op in (AXIS, LOAD) for n in toposort(limit)):
            together = prod(apart[n] for n in below)
            total = total // together * min(together, max(0, evaluate(limit, known)))
    return total


def _has_load(value: Node) -> bool:
    return any(n.op is LOAD for n in toposort(value))
