"""Contractions over pairs of bfloat16: two products a lane in one instruction, added to a float32 sum.

Operands are packed as uint32, the element of even k in the low half. Not for the instruction (render/llvm.py) nor for
packing (packing.py).
"""
from __future__ import annotations

from minivt import dtypes, ops
from minivt.codegen.tile import LOAD, Contraction, Param
from minivt.graph import Node, const, node, substitute, walk
from minivt.ops import Op
from minivt.symbolic import add, axis, axis_size, both, build, from_terms, linear, lt, mul

PAIR_PRODUCT = Op("PAIR_PRODUCT", "kernel", ("x", "y"), dtype=None,
                  meaning="x0 * y0 + x1 * y1 of two bfloat16 each; products exact, subnormals taken as 0")


def pair_up(product: Contraction) -> Contraction | None:
    """The contraction with half as many steps over pairs; None where a factor is no widened bfloat16.

    before:  sum over k < 5 of CAST(a[i, k]) * CAST(b[k, j])
    after:   sum over p < 3 of PAIR_PRODUCT(a[i, 2p] | a[i, 2p + 1] << 16, b[2p, j] | b[2p + 1, j] << 16)
    """
    factors = product.a, product.b
    if any(f.op is not ops.CAST or f.dtype is not dtypes.float32 or f.src[0].dtype is not dtypes.bfloat16
           for f in factors):
        return None
    *rest, k = product.k
    pair = axis((k.arg[0], "pair"), -(-axis_size(k) // 2), "tile")
    a, b = (_paired(f.src[0], k, pair) for f in factors)
    return Contraction(product.m, product.n, (*rest, pair), product.batch, a, b)


def _paired(value: Node, k: Node, pair: Node) -> Node:
    """Two neighbours along k as one uint32."""
    first, second = (substitute([value], {k: add(mul(pair, 2), half)}, build)[0] for half in (0, 1))
    neighbours = _in_memory(first, second)
    if neighbours is not None and axis_size(k) % 2 == 0:
        return neighbours
    if axis_size(k) % 2:
        second = _guarded(second, lt(add(mul(pair, 2), 1), axis_size(k)))
    low, high = (node(ops.CAST, (node(ops.BITCAST, (v,), dtypes.uint16),), dtypes.uint32) for v in (first, second))
    return node(ops.OR, (low, node(ops.SHL, (high, const(16, dtypes.uint32)))))


def _in_memory(first: Node, second: Node) -> Node | None:
    """The pair as one load, where both lie side by side at an even place."""
    if first.op is not LOAD or not isinstance(first.arg, Param) or first.arg.written:
        return None
    if first.src[1] is not second.src[1] or add(first.src[0], 1) is not second.src[0]:
        return None
    terms, constant = linear(first.src[0])
    if constant % 2 or any(c % 2 for _, c in terms):
        return None
    place = Param(first.arg.slot, dtypes.uint32, first.arg.size)
    index = from_terms({a: c // 2 for a, c in terms}, constant // 2)
    return node(LOAD, (index, first.src[1]), place, dtypes.uint32)


def _guarded(value: Node, inside: Node) -> Node:
    """0 outside, and no memory touched there."""
    loads = {n: node(LOAD, (n.src[0], both(n.src[1], inside)), n.arg, n.dtype) for n in walk(value) if n.op is LOAD}
    value, = substitute([value], loads, build)
    return node(ops.WHERE, (inside, value, const(0, value.dtype)))
