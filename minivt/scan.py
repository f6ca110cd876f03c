"""ScanBody: what one step of a SCAN computes, as a small closed graph over placeholders.

A placeholder is a BUFFER node whose argument is a Placeholder instead of a Buffer: it has a shape and a dtype and no
memory; each step binds it to that step's values. A body is closed: below its outputs stand only its placeholders,
CONST, VARIABLE and ARANGE. Whatever else a step reads becomes an input of the SCAN node (a captured value, the same
at each step), so a walk over the graph sees every dependency. Not for the meaning of a scan (backends/reference.py).

    y[t] = h[t] = a * h[t-1] + x[t]:
    SCAN(h0, x, a; body):  carry (h), x (x_t), captured (a)  ->  outputs (next h, y) = (a*h + x_t, a*h + x_t)
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Callable

from minivt import ops
from minivt.dtypes import DType
from minivt.errors import DTypeError, ShapeError
from minivt.graph import Node, node, substitute, toposort
from minivt.symbolic import Size

_fresh = itertools.count(-1, -1)


@dataclass(frozen=True)
class Placeholder:
    """Stands for a value that a step is given.

    number: in a finished body its position, so that equal bodies are equal values; while a step is traced, unique.
    """
    shape: tuple[Size, ...]
    dtype: DType
    number: int


def placeholder(like: Node, shape: tuple[Size, ...], number: int) -> Node:
    return node(ops.BUFFER, (), Placeholder(tuple(shape), like.dtype, number), like.dtype)


@dataclass(frozen=True)
class ScanBody:
    """One step. The SCAN node's sources are the first carries, then the xs, then the captured values.

    carry_placeholders: the state before the step; x_placeholders: row t of each x (the x without its axis 0);
    captured_placeholders: values that no step changes; outputs: the next carries in order, then the ys;
    length: the number of steps, the size of axis 0 of every x.
    Output i of the SCAN is the last carry i, or from the number of carries on a y with the steps stacked on axis 0.
    """
    carry_placeholders: tuple[Node, ...]
    x_placeholders: tuple[Node, ...]
    captured_placeholders: tuple[Node, ...]
    outputs: tuple[Node, ...]
    length: Size

    @property
    def placeholders(self) -> tuple[Node, ...]:
        """In the order of the SCAN node's sources."""
        return self.carry_placeholders + self.x_placeholders + self.captured_placeholders

    @property
    def carries(self) -> int:
        return len(self.carry_placeholders)

    @property
    def output_shapes(self) -> tuple[tuple[Size, ...], ...]:
        return tuple(o.shape if i < self.carries else (self.length, *o.shape) for i, o in enumerate(self.outputs))

    @property
    def output_dtypes(self) -> tuple[DType, ...]:
        return tuple(o.dtype for o in self.outputs)


def scan(step: Callable, carry: tuple[Node, ...], xs: tuple[Node, ...]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The last carries and the stacked ys of `next_carries, ys = step(carries, rows)` over axis 0 of the xs, in order.

    step is called once, with placeholders. At least one x is needed; to count steps pass an ARANGE.
    ShapeError where the xs differ in length or a carry changes its shape; DTypeError where it changes its dtype.
    """
    lengths = {x.shape[0] for x in xs if x.shape}
    if len(lengths) != 1 or not all(x.shape for x in xs):
        raise ShapeError(f"scan: xs have shapes {[x.shape for x in xs]}; at least one x and one size of axis 0 is "
                         "needed")
    carries = tuple(placeholder(c, c.shape, next(_fresh)) for c in carry)
    rows = tuple(placeholder(x, x.shape[1:], next(_fresh)) for x in xs)
    following, ys = step(carries, rows)
    if [c.shape for c in following] != [c.shape for c in carry]:
        raise ShapeError(f"scan: carries of shapes {[c.shape for c in carry]} became {[c.shape for c in following]}; "
                         "a step must keep them")
    if [c.dtype for c in following] != [c.dtype for c in carry]:
        raise DTypeError(f"scan: carries of dtypes {[c.dtype for c in carry]} became {[c.dtype for c in following]}; "
                         "a step must keep them: cast back")
    captured = _captured((*following, *ys), carries + rows)
    traced = (*carries, *rows, *captured)
    given = tuple(placeholder(t, t.shape, i) for i, t in enumerate(traced))
    outputs = tuple(substitute((*following, *ys), dict(zip(traced, given))))
    n, m = len(carries), len(carries) + len(rows)
    body = ScanBody(given[:n], given[n:m], given[m:], outputs, lengths.pop())
    results = tuple(node(ops.SCAN, (*carry, *xs, *captured), (body, i)) for i in range(len(outputs)))
    return results[:len(carry)], results[len(carry):]


def _captured(outputs: tuple[Node, ...], own: tuple[Node, ...]) -> tuple[Node, ...]:
    """The largest values below the outputs that depend on memory, but on no placeholder of the step."""
    varies, remembers = set(own), set()
    order = toposort(*outputs)
    for current in order:
        if any(s in varies for s in current.src):
            varies.add(current)
        if current.op in (ops.BUFFER, ops.CUSTOM) or any(s in remembers for s in current.src):
            remembers.add(current)
    read = [*outputs, *(s for n in order if n in varies for s in n.src)]
    return tuple(dict.fromkeys(n for n in read if n in remembers and n not in varies))
