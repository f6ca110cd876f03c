"""Node: the one immutable, hash-consed value type of graphs, index expressions and kernels.

Two nodes with the same op, dtype, sources and argument are the same object, so equality is identity, shared
work is shared by construction, and a table keyed by nodes is a table keyed by structure. All walks are iterative:
a chain of 100,000 nodes is as good as one of ten. Not for meanings (ops.py) or for rules over integers (symbolic.py).
"""
from __future__ import annotations

import struct
import weakref
from typing import Any, Callable, Iterable, Iterator

from minivt import ops
from minivt.dtypes import DType

_TABLE: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
nodes_made = 0  # how many nodes this process has built: what rewriting a graph costs, counted


class Node:
    """An operation applied to nodes.

    op: a row of ops.PRIMITIVES or of codegen/tile.py; dtype: of the result; src: the inputs; arg: what the op's row
    says, hashable; shape: of the result, sizes are ints or scalar Nodes (bounded symbolic integers).
    """
    __slots__ = ("op", "dtype", "src", "arg", "shape", "__weakref__")

    op: ops.Op
    dtype: DType
    src: tuple[Node, ...]
    arg: Any
    shape: tuple

    def __init__(self):
        raise TypeError("build nodes with minivt.graph.node(op, src, arg, dtype)")

    def __reduce__(self):
        raise TypeError("a Node is tied to this process; print it or export the values")

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f", {self.arg!r}"
        return f"{self.op.name}({', '.join(s.op.name for s in self.src)}{arg}) {self.dtype}{list(self.shape)}"


def _const_key(value):
    """Distinguish -0.0 from 0.0, NaN from itself, 1 from 1.0 from True."""
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    return (type(value).__name__, value)


def node(op: ops.Op, src: Iterable[Node] = (), arg: Any = None, dtype: DType | None = None) -> Node:
    """The node for `op` on `src`, made once; checks shapes and dtypes by the op's row."""
    src = tuple(src)
    if op.dtype is not None:
        dtype = None  # the op's own rule decides
    key = (op, dtype, tuple(map(id, src)), _const_key(arg) if op is ops.CONST else arg)
    found = _TABLE.get(key)
    if found is not None:
        return found
    made = object.__new__(Node)
    made.op, made.src, made.arg = op, src, arg
    made.dtype = dtype if op.dtype is None else op.dtype([s.dtype for s in src], arg)
    made.shape = op.shape([s.shape for s in src], arg) if op.shape is not None else ()
    _TABLE[key] = made
    global nodes_made
    nodes_made += 1
    return made


def const(value, dtype: DType) -> Node:
    """A scalar constant; the value is stored as the dtype's own Python type."""
    value = bool(value) if dtype.kind == "b" else float(value) if dtype.is_float else int(value)
    return node(ops.CONST, (), value, dtype)


def toposort(*roots: Node, enter: Callable[[Node], bool] | None = None) -> list[Node]:
    """Every node below the roots, sources first; nodes for which `enter` is false are listed, not entered."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        current, done = stack.pop()
        if done:
            order.append(current)
            continue
        if current in seen:
            continue
        seen.add(current)
        stack.append((current, True))
        if enter is None or enter(current):
            stack.extend((s, False) for s in reversed(current.src) if s not in seen)
    return order


def users(order: Iterable[Node]) -> dict[Node, list[Node]]:
    """For each node of a toposorted list, the nodes that read it (once per distinct reader)."""
    out: dict[Node, list[Node]] = {}
    for current in order:
        out.setdefault(current, [])
        for s in dict.fromkeys(current.src):
            out.setdefault(s, []).append(current)
    return out


def rebuild(root: Node, src: Iterable[Node]) -> Node:
    """`root` with other sources; itself when nothing changed."""
    src = tuple(src)
    if src == root.src:
        return root
    return node(root.op, src, root.arg, root.dtype)


def substitute(roots: Iterable[Node], mapping: dict[Node, Node],
               make: Callable[[Node, tuple], Node] = rebuild) -> list[Node]:
    """The roots with every node of `mapping` replaced, rebuilt bottom-up once; `make` builds the changed parents.

    before:  ADD(x, MUL(x, y)), {x: z}
    after:   ADD(z, MUL(z, y))
    """
    roots = list(roots)
    done = dict(mapping)
    for current in toposort(*roots, enter=lambda n: n not in mapping):
        if current not in done:
            src = tuple(done[s] for s in current.src)
            done[current] = current if src == current.src else make(current, src)
    return [done[r] for r in roots]


def walk(*roots: Node) -> Iterator[Node]:
    """Each node below the roots once, in no promised order."""
    seen, stack = set(roots), list(roots)
    while stack:
        current = stack.pop()
        yield current
        for s in current.src:
            if s not in seen:
                seen.add(s)
                stack.append(s)
