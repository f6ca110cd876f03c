"""Elementwise operators of Tensor: arithmetic, comparisons, bits, choice and casts.

Each is a composition of primitives after broadcasting and promotion (promotion.py). Not for functions such as exp
(real_functions.py), for reductions or for anything that moves elements.
"""
from __future__ import annotations

import math

from minivt import dtypes, ops
from minivt.broadcasting import broadcast_shapes
from minivt.dtypes import DType, as_dtype
from minivt.errors import BackendError, DTypeError, ShapeError
from minivt.graph import const, node
from minivt.promotion import as_float, default_dtype, promote, promote_scalar
from minivt.variable import SymbolicInt, shape_text

KINDS = (bool, int, float)  # of weak Python numbers, narrowest first


def scalar_kind(value) -> type | None:
    """bool, int or float for what counts as a weak Python number, else None."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, (int, SymbolicInt)):
        return int
    return float if isinstance(value, float) else None


def scalar_node(name: str, value, dtype: DType):
    """A Python number or symbolic integer as a scalar of `dtype`; DTypeError where an integer does not fit."""
    if isinstance(value, SymbolicInt):
        made = value.node
        return made if made.dtype is dtype else node(ops.CAST, (made,), dtype)
    if dtype.is_int:
        low, high = integer_range(dtype)
        if not low <= value <= high:
            raise DTypeError(f"{name}: {value} does not fit {dtype}, which holds {low} to {high}; cast the tensor "
                             "first")
    return const(value, dtype)


def integer_range(dtype: DType) -> tuple[int, int]:
    bits = 8 * dtype.itemsize
    return (0, (1 << bits) - 1) if dtype.kind == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)


def operands(name: str, *values, like=None):
    """Tensors of one dtype and one shape from Tensors, arrays and weak numbers.

    like: a Tensor on whose device the others are put; by default the first Tensor among the values.
    """
    like = next(v for v in values if isinstance(v, Elementwise)) if like is None else like
    values = [v if scalar_kind(v) else like._coerce(v) for v in values]
    kinds = [scalar_kind(v) for v in values if scalar_kind(v)]
    types = [v.dtype for v in values if not scalar_kind(v)] or [default_dtype(max(kinds, key=KINDS.index))]
    dtype = types[0]
    for other in types[1:]:
        dtype = promote(name, dtype, other)
    for kind in kinds:
        dtype = promote_scalar(dtype, kind)
    return broadcast(name, *(like._make(scalar_node(name, v, dtype)) if scalar_kind(v) else v.cast(dtype)
                             for v in values))


def broadcast(name: str, *tensors):
    """The tensors expanded to one shape; all must be on one device."""
    for t in tensors[1:]:
        if t.device != tensors[0].device:
            raise BackendError(f"{name}: operands are on {tensors[0].device} and {t.device}; move one with to(device)")
    shape = broadcast_shapes(name, *(t.node.shape for t in tensors))
    return [t._expanded(shape) for t in tensors]


class Elementwise:
    """The elementwise methods of Tensor."""
    __slots__ = ()

    # --- plumbing ---------------------------------------------------------------------------------------------------

    def _apply(self, op, *others, arg=None):
        return self._make(node(op, (self.node, *(o.node for o in others)), arg))

    def _binary(self, name: str, op, other):
        a, b = operands(name, self, other)
        return a._apply(op, b)

    def _require(self, name: str, kinds: str, what: str):
        if self.dtype.kind not in kinds:
            raise DTypeError(f"{name}: the tensor has dtype {self.dtype}; {what} is needed: cast first")

    # --- dtype ------------------------------------------------------------------------------------------------------

    def cast(self, dtype):
        """The nearest values of another dtype; floats to integers truncate."""
        dtype = as_dtype(dtype)
        return self._make(self.node) if dtype is self.dtype else self._apply(ops.CAST, arg=dtype)

    def bitcast(self, dtype):
        """The same bits read as another dtype.

        Of the same size, elementwise. To a wider dtype the last axis holds the parts, the lowest first, and
        disappears: uint8 (..., 2) is float16 (...). DTypeError for narrower dtypes and for bool.
        """
        dtype = as_dtype(dtype)
        if "b" in (dtype.kind, self.dtype.kind) or dtype.itemsize < self.dtype.itemsize:
            raise DTypeError(f"bitcast: {self.dtype} cannot be read as {dtype}; choose a dtype of the same or a larger "
                             "size, not bool")
        if dtype.itemsize > self.dtype.itemsize:
            return self._joined(dtype).bitcast(dtype)
        return self._make(self.node) if dtype is self.dtype else self._apply(ops.BITCAST, arg=dtype)

    def _joined(self, dtype: DType):
        """The parts along the last axis as one unsigned integer of dtype's size."""
        count, bits = dtype.itemsize // self.dtype.itemsize, 8 * self.dtype.itemsize
        if not self.ndim or self.node.shape[-1] != count:
            raise ShapeError(f"bitcast: {self.dtype} {shape_text(self.node.shape)} cannot be read as {dtype}; the last "
                             f"axis must hold the {count} parts of one element")
        wide = dtypes.BY_NAME[f"uint{8 * dtype.itemsize}"]
        parts = self.bitcast(f"uint{bits}")
        joined = parts[..., 0].cast(wide)
        for i in range(1, count):
            joined = joined | parts[..., i].cast(wide) << bits * i
        return joined

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def __add__(self, other):
        return self._binary("add", ops.ADD, other)

    def __mul__(self, other):
        return self._binary("multiply", ops.MUL, other)

    def __sub__(self, other):
        a, b = operands("subtract", self, other)
        a._require("subtract", "iuf", "a number")
        return a._apply(ops.ADD, -b)

    def __truediv__(self, other):
        a, b = operands("divide", self, other)
        dtype = as_float(a.dtype)
        return a.cast(dtype)._apply(ops.DIV, b.cast(dtype))

    def __floordiv__(self, other):
        """The floor of the quotient, for floats of the rounded quotient; integers give 0 where the divisor is 0."""
        a, b = operands("floor_divide", self, other)
        return (a / b).floor() if a.dtype.is_float else a._apply(ops.IDIV, b)

    def __mod__(self, other):
        """x - floor(x / y) * y, of y's sign; integers give 0 where y is 0."""
        a, b = operands("remainder", self, other)
        if not a.dtype.is_float:
            return a._apply(ops.MOD, b)
        quotient = a // b
        rest = (quotient == 0).where(a, a - quotient * b)
        wrong = (rest != 0) & ((rest < 0) != (b < 0))  # the quotient was rounded up, or to zero
        return wrong.where(rest + b, rest)

    def __pow__(self, exponent):
        """x to the power y. An integer y as a Python number multiplies; floats go through exp2 and log2."""
        if isinstance(exponent, int) and not isinstance(exponent, bool):
            return self._integer_power(exponent)
        if isinstance(exponent, float) and exponent == 0.5:
            return self.sqrt()
        a, b = operands("pow", self, exponent)
        return a._real_power(b) if a.dtype.is_float else a._counted_power(b)

    def _integer_power(self, exponent: int):
        """By squaring; a negative exponent inverts, which integers refuse."""
        if exponent < 0:
            self._require("pow", "f", "a float for a negative exponent")
            return 1.0 / self._integer_power(-exponent)
        result, square = None, self.cast(promote_scalar(self.dtype, int))
        while exponent:
            if exponent & 1:
                result = square if result is None else result * square
            exponent >>= 1
            square = square * square if exponent else square
        return self.ones_like().cast(square.dtype) if result is None else result

    def _counted_power(self, exponent):
        """Integers to integer powers of at least 0, bit by bit of the exponent."""
        result, square = self.ones_like(), self
        for bit in range(8 * self.dtype.itemsize - 1):
            result = ((exponent >> bit & 1) != 0).where(result * square, result)
            square = square * square
        return result

    def __neg__(self):
        self._require("negative", "iuf", "a number")
        return self._apply(ops.NEG)

    def __abs__(self):
        if self.dtype.kind in "bu":
            return self._make(self.node)
        negated = 0.0 - self if self.dtype.is_float else -self  # 0.0 - x also turns -0.0 into 0.0
        return (self > 0).where(self, negated)

    def abs(self):
        return abs(self)

    def __radd__(self, other):
        return self + other

    def __rmul__(self, other):
        return self * other

    def __rsub__(self, other):
        return operands("subtract", other, self)[0] - self

    def __rtruediv__(self, other):
        return operands("divide", other, self)[0] / self

    def __rfloordiv__(self, other):
        return operands("floor_divide", other, self)[0] // self

    def __rmod__(self, other):
        return operands("remainder", other, self)[0] % self

    def __rpow__(self, other):
        return operands("pow", other, self)[0] ** self

    # --- comparisons ------------------------------------------------------------------------------------------------

    def __lt__(self, other):
        return self._binary("less", ops.LT, other)

    def __gt__(self, other):
        a, b = operands("greater", self, other)
        return b._apply(ops.LT, a)

    def __le__(self, other):
        a, b = operands("less_equal", self, other)
        return (a < b) | (a == b) if a.dtype.is_float else ~(b < a)  # an order with NaN is not the other's opposite

    def __ge__(self, other):
        a, b = operands("greater_equal", self, other)
        return b <= a

    def __ne__(self, other):
        return self._binary("not_equal", ops.NE, other)

    def __eq__(self, other):
        return ~self._binary("equal", ops.NE, other)

    __hash__ = object.__hash__  # tensors are compared element by element but kept in sets by identity

    def isnan(self):
        return self != self

    def isinf(self):
        return abs(self) == math.inf

    def isfinite(self):
        return abs(self) < math.inf

    # --- bits -------------------------------------------------------------------------------------------------------

    def _bitwise(self, name: str, op, other, kinds: str = "biu"):
        a, b = operands(name, self, other)
        a._require(name, kinds, "an integer" if kinds == "iu" else "bool or an integer")
        return a._apply(op, b)

    def __and__(self, other):
        return self._bitwise("and", ops.AND, other)

    def __or__(self, other):
        return self._bitwise("or", ops.OR, other)

    def __xor__(self, other):
        return self._bitwise("xor", ops.XOR, other)

    def __invert__(self):
        self._require("invert", "biu", "bool or an integer")
        ones = {"b": True, "i": -1}.get(self.dtype.kind, integer_range(self.dtype)[1])
        return self._bitwise("invert", ops.XOR, ones)

    def __lshift__(self, other):
        return self._bitwise("left_shift", ops.SHL, other, "iu")

    def __rshift__(self, other):
        return self._bitwise("right_shift", ops.SHR, other, "iu")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __rlshift__(self, other):
        return operands("left_shift", other, self)[0] << self

    def __rrshift__(self, other):
        return operands("right_shift", other, self)[0] >> self

    # --- choice -----------------------------------------------------------------------------------------------------

    def where(self, x, y):
        """x where this bool tensor holds, else y; shape: the three broadcast together."""
        self._require("where", "b", "a bool condition")
        x, y = operands("where", x, y, like=self)
        condition, x, y = broadcast("where", self, x, y)
        return condition._apply(ops.WHERE, x, y)

    def maximum(self, other):
        """The larger; NaN where either is NaN."""
        return self._binary("maximum", ops.MAXIMUM, other)

    def minimum(self, other):
        """The smaller; NaN where either is NaN."""
        a, b = operands("minimum", self, other)
        return a._reversed()._apply(ops.MAXIMUM, b._reversed())._reversed()

    def _reversed(self):
        """Values in the opposite order, without overflow: -x of floats, ~x of integers and bools."""
        return -self if self.dtype.is_float else ~self

    def clip(self, min=None, max=None):
        """Values below min become min, above max become max; None leaves that side open."""
        result = self if min is None else self.maximum(min)
        return result if max is None else result.minimum(max)
