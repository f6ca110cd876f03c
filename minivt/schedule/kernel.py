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
from minivt.graph import Node, const, node, toposort
from minivt.symbolic import AXIS


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


def reduce(value: Node, op: ops.Op, axes: tuple[Node, ...]) -> Node:
    """The reduction of value over counters of its own; over none it is the value."""
    return node(REDUCE, (value,), (op, tuple(axes)), value.dtype) if axes else value


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
