"""Kernel: a set of stores as scalar expressions over counters, the form between the graph and the tiles.

An expression is a Node over elementwise primitives, LOAD, REDUCE, AXIS, VARIABLE and CONST. Equal kernels are equal
values, whatever buffers they run on, so everything after this form is done once per distinct kernel.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from minivt import ops
from minivt.codegen.tile import LOAD, REDUCE, Param
from minivt.dtypes import DType
from minivt.graph import Node, const, node, substitute, toposort
from minivt.symbolic import AXIS, Size, add, as_index, as_size, axis, axis_size, build, idiv, mod, mul


@dataclass(frozen=True)
class Sink:
    """param[index] = value for all counters in axes, where valid."""
    param: Param
    axes: tuple[Node, ...]
    index: Node
    valid: Node
    value: Node


@dataclass(frozen=True)
class Kernel:
    """params: the array arguments in slot order; sinks share the same axes."""
    params: tuple[Param, ...]
    sinks: tuple[Sink, ...]

    @property
    def roots(self) -> tuple[Node, ...]:
        return tuple(r for s in self.sinks for r in (s.index, s.valid, s.value))

    @property
    def axes(self) -> tuple[Node, ...]:
        return self.sinks[0].axes


def capacity(shape: tuple[Size, ...]) -> Size:
    """The number of elements of a shape."""
    total = as_index(1)
    for size in shape:
        total = mul(total, size)
    return as_size(total)


def reduce(value: Node, op: ops.Op, axes: tuple[Node, ...], origin: int) -> Node:
    """The reduction of value over counters of its own; over none it is the value.

    origin: which reduction of the graph it computes, counted in graph order; several expressions of one origin are
    work done more than once.
    """
    return node(REDUCE, (value,), (op, tuple(axes), origin), value.dtype) if axes else value


@lru_cache(maxsize=1 << 16)
def _own_axes(current: Node) -> frozenset[Node]:
    below = frozenset().union(*(_own_axes(s) for s in current.src)) if current.src else frozenset()
    if current.op is AXIS:
        return frozenset((current,))
    return below - frozenset(current.arg[1]) if current.op is REDUCE else below


def free_axes(value: Node) -> frozenset[Node]:
    """The counters on which an expression depends, without those that its reductions bind."""
    for current in toposort(value):  # sources first, so that the cached rule never goes deep
        _own_axes(current)
    return _own_axes(value)


def reductions(*roots: Node) -> list[Node]:
    """The REDUCE nodes below the roots, inner and earlier ones first."""
    return [n for n in toposort(*roots) if n.op is REDUCE]


def identity(op: ops.Op, dtype: DType) -> Node:
    """What a reduction starts from: 0 for SUM, the lowest value of the dtype for MAX."""
    if op is ops.SUM:
        return const(0, dtype)
    if dtype.is_float:
        return const(float("-inf"), dtype)
    bits = 8 * dtype.itemsize
    return const(False if dtype.kind == "b" else -(1 << bits - 1) if dtype.kind == "i" else 0, dtype)


def loads(*roots: Node) -> list[Node]:
    return [n for n in toposort(*roots) if n.op is LOAD]


def with_roots(kernel: Kernel, roots) -> Kernel:
    """The kernel with other sink expressions, in the order of `kernel.roots`."""
    return Kernel(kernel.params, tuple(Sink(s.param, s.axes, *roots[3 * n:3 * n + 3])
                                       for n, s in enumerate(kernel.sinks)))


def split_axes(kernel: Kernel) -> Kernel:
    """Count with several counters where indices divide one, so that each part can be tiled by itself.

    before:  out[c] = sum over j of p[c // 64, j] * v[j, c % 64]          over c < 576
    after:   out[64 * h + d] = sum over j of p[h, j] * v[j, d]            over h < 9, d < 64
    """
    for counter in kernel.axes:
        steps = _steps(kernel.roots, counter)
        if not steps:
            continue
        sizes = [outer // inner for outer, inner in zip([axis_size(counter), *steps], [*steps, 1])]
        parts = [axis((counter.arg[0], n), size, counter.arg[2]) for n, size in enumerate(sizes)]
        position = as_index(0)
        for part, step in zip(parts, [*steps, 1]):
            position = add(position, mul(part, step))
        kernel = _recount(kernel, {counter: position}, {counter: tuple(parts)})
    return kernel


def _steps(roots, counter: Node) -> list[int]:
    """The strides at which index divisions cut a counter, from large to small; none where they do not nest."""
    size = axis_size(counter)
    found = set()
    for current in toposort(*roots):
        if current.op in (ops.IDIV, ops.MOD) and current.src[1].op is ops.CONST:
            value, divisor = current.src[0], max(1, current.src[1].arg)
            inner = value.src[1].arg if value.op is ops.IDIV and value.src[1].op is ops.CONST else 1
            if value is counter or inner > 1 and value.src[0] is counter:
                found.update((inner, inner * divisor))
    steps = sorted((s for s in found if s not in (1, size)), reverse=True)
    chain = [size, *steps, 1]
    nested = isinstance(size, int) and all(a % b == 0 for a, b in zip(chain, chain[1:]))
    return steps if nested else []


def _recount(kernel: Kernel, positions: dict[Node, Node], counters: dict[Node, tuple[Node, ...]]) -> Kernel:
    """The kernel with counters replaced: their values by expressions, their places among the axes by new ones."""
    axes = tuple(new for a in kernel.axes for new in counters.get(a, (a,)))
    roots = substitute(kernel.roots, positions, build)
    return Kernel(kernel.params, tuple(Sink(s.param, axes, *roots[3 * n:3 * n + 3])
                                       for n, s in enumerate(kernel.sinks)))


def merge_axes(kernel: Kernel) -> Kernel:
    """Count neighbouring axes as one where no index needs them apart.

    before:  out[500 * i + j] = a[500 * i + j] * 2    over i < 300, j < 500
    after:   out[x] = a[x] * 2                        over x < 150000
    """
    position = 0
    while position + 1 < len(kernel.axes):
        merged = _merge_pair(kernel, position)
        if merged is None:
            position += 1
        else:
            kernel = merged
    return kernel


def _merge_pair(kernel: Kernel, position: int) -> Kernel | None:
    first, second = kernel.axes[position:position + 2]
    if axis_size(second) == 0:
        return None
    size = as_size(mul(axis_size(first), axis_size(second)))
    both = axis(first.arg[0], size, first.arg[2])
    parts = {first: idiv(both, axis_size(second)), second: mod(both, axis_size(second))}
    merged = _recount(kernel, parts, {first: (both,), second: ()})
    return merged if _divisions(merged.roots) <= _divisions(kernel.roots) else None


def _divisions(roots) -> int:
    return sum(n.op in (ops.IDIV, ops.MOD) for n in toposort(*roots))
