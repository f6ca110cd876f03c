"""Each elementwise primitive on lanes: from Values of a Builder (render/llvm.py) to the Value of the result.

float16 and bfloat16 are computed in float32 and rounded once per primitive, as in the reference. Not for memory,
counters or reductions (lanes.py).
"""
from __future__ import annotations

from typing import Callable

from minivt import dtypes, ops
from minivt.codegen.elementary import exp2, log2_, sin
from minivt.codegen.render.llvm import HALF, Builder, Value
from minivt.dtypes import DType


def apply(b: Builder, op: ops.Op, dtype: DType, args: list[Value]) -> Value:
    """The result of an elementwise primitive; dtype: the node's."""
    if op is ops.CAST:
        return b.cast(args[0], dtype)
    if op is ops.BITCAST:
        return b.bits(args[0], dtype)
    if op is ops.WHERE:
        return b.select(*args)
    if op is ops.NEG:
        return b.negate(args[0])
    if op in _WIDENED and args[0].dtype in HALF:
        return b.cast(_WIDENED[op](b, *(b.cast(x, dtypes.float32) for x in args)), dtype)
    return (_WIDENED.get(op) or _EXACT[op])(b, *args)


def lowest(dtype: DType):
    """The identity of MAX, as a number."""
    if dtype.is_float:
        return float("-inf")
    return -(1 << 8 * dtype.itemsize - 1) if dtype.kind == "i" else 0


def _divided(b: Builder, x: Value, y: Value, remainder: bool) -> Value:
    """The floor quotient or its remainder; 0 where y is 0.

    A constant power of two shifts. Otherwise the machine divides by y made harmless, and where the signs of
    remainder and divisor differ one step down makes the floor of the truncated quotient.
    """
    zero, one = b.like(0, x), b.like(1, x)
    known = None if y.text.startswith("%") or y.lanes else int(y.text)
    if known is not None and known > 0 and known & (known - 1) == 0:
        if remainder:
            return b.both(x, b.like(known - 1, x))
        return b.shift_right(x, b.like(known.bit_length() - 1, x))
    if x.dtype.kind == "u":
        result = b.quotient(x, b.select(b.differ(y, zero), y, one), remainder)
        return b.select(b.differ(y, zero), result, zero)
    minus = b.like(-1, x)
    special = b.less(b.unsigned(b.add(y, one)), b.unsigned(b.like(2, x)))  # y is -1 or 0
    safe = b.select(special, one, y)
    rest = b.quotient(x, safe, True)
    down = b.both(b.differ(rest, zero), b.less(b.exclusive(rest, safe), zero))
    if remainder:
        return b.select(special, zero, b.select(down, b.add(rest, safe), rest))
    result = b.quotient(x, safe, False)
    result = b.select(down, b.add(result, minus), result)
    return b.select(special, b.select(b.differ(y, zero), b.negate(x), zero), result)


def _shifted_left(b: Builder, x: Value, y: Value) -> Value:
    inside = b.less(b.unsigned(y), b.unsigned(b.like(8 * x.dtype.itemsize, y)))
    zero = b.like(0, x)
    return b.select(inside, b.shift_left(x, b.select(inside, y, zero)), zero)


def _shifted_right(b: Builder, x: Value, y: Value) -> Value:
    width = 8 * x.dtype.itemsize
    inside = b.less(b.unsigned(y), b.unsigned(b.like(width, y)))
    if x.dtype.kind == "i":
        return b.shift_right(x, b.select(inside, y, b.like(width - 1, y)))
    zero = b.like(0, x)
    return b.select(inside, b.shift_right(x, b.select(inside, y, zero)), zero)


_WIDENED: dict[ops.Op, Callable] = {
    ops.SQRT: Builder.sqrt, ops.TRUNC: Builder.trunc, ops.EXP2: exp2, ops.LOG2: log2_, ops.SIN: sin,
    ops.ADD: Builder.add, ops.MUL: Builder.mul, ops.DIV: Builder.divide, ops.MAXIMUM: Builder.maximum,
    ops.LT: Builder.less, ops.NE: Builder.differ,
}
_EXACT: dict[ops.Op, Callable] = {
    ops.IDIV: lambda b, x, y: _divided(b, x, y, False), ops.MOD: lambda b, x, y: _divided(b, x, y, True),
    ops.AND: Builder.both, ops.OR: Builder.either, ops.XOR: Builder.exclusive,
    ops.SHL: _shifted_left, ops.SHR: _shifted_right,
}
