"""Functions of real numbers on Tensor: rounding, roots, exponentials, circular functions and activations.

Each is a composition of primitives. Integers are taken as float32; float16 and bfloat16 are computed in float32 and
cast back. Not for operators (elementwise.py).
"""
from __future__ import annotations

import math
from functools import wraps

from minivt import constants, ops
from minivt.errors import DTypeError
from minivt.promotion import accumulator, as_float


def real_function(method):
    """Call `method` on a float tensor; half precision is computed in float32 and cast back."""
    @wraps(method)
    def wrapped(self, *args, **kwargs):
        dtype = as_float(self.dtype)
        return method(self.cast(accumulator(dtype)), *args, **kwargs).cast(dtype)
    return wrapped


def rounding(method):
    """Call `method` on float tensors; integers are their own result."""
    @wraps(method)
    def wrapped(self):
        return method(self) if self.dtype.is_float else self._make(self.node)
    return wrapped


class RealFunctions:
    """The methods of Tensor that are functions of real numbers."""
    __slots__ = ()

    # --- rounding ---------------------------------------------------------------------------------------------------

    @rounding
    def trunc(self):
        return self._apply(ops.TRUNC)

    @rounding
    def floor(self):
        whole = self.trunc()
        return (self < whole).where(whole - 1, whole)

    @rounding
    def ceil(self):
        whole = self.trunc()
        return (whole < self).where(whole + 1, whole)

    @rounding
    def round(self):
        """The nearest whole number, of two equally near the even one."""
        whole = self.trunc()
        fraction, half = abs(self - whole), whole * 0.5
        away = (fraction > 0.5) | ((fraction == 0.5) & (half != half.trunc()))
        return away.where(whole + self.sign(), whole)

    def sign(self):
        """-1, 0 or 1; NaN stays NaN."""
        self._require("sign", "iuf", "a number")
        positive = (self > 0).where(self.ones_like(), self * 0 if self.dtype.is_float else 0)
        return positive if self.dtype.kind == "u" else (self < 0).where(-1, positive)

    # --- functions of real numbers ----------------------------------------------------------------------------------

    @real_function
    def sqrt(self):
        return self._apply(ops.SQRT)

    @real_function
    def rsqrt(self):
        """1 / sqrt(x)."""
        return 1.0 / self.sqrt()

    def reciprocal(self):
        return 1.0 / self

    def square(self):
        return self * self

    @real_function
    def _real_power(self, exponent):
        exponent = exponent.cast(self.dtype)
        size = (exponent * abs(self).log2()).exp2()
        half = exponent * 0.5
        whole, odd = exponent == exponent.trunc(), half != half.trunc()
        negative = whole.where(odd.where(-size, size), math.nan)
        return (exponent == 0).where(1.0, (self < 0).where(negative, size))

    @real_function
    def exp2(self):
        return self._apply(ops.EXP2)

    @real_function
    def log2(self):
        return self._apply(ops.LOG2)

    @real_function
    def exp(self):
        """e to the power x, as exp2(x * log2 e): within 2 + 2 |x| ulp, since the product rounds once.

        One exponential, and no more, is what the scheduler can rescale: a softmax written with exp is one pass.
        """
        return (self * math.log2(math.e)).exp2()

    @real_function
    def log(self):
        return self.log2() * math.log(2.0)

    @real_function
    def sin(self):
        return self._apply(ops.SIN)

    @real_function
    def cos(self):
        """The cosine of x in radians, within 2e-7 in float32 for |x| up to 2e5.

        x + pi / 2 would lose the bits of a large angle: whole turns are removed first, 2 pi in pieces, and
        cos r = sin(pi / 2 - |r|) keeps the last bits near the zeros.
        """
        turn, quarter = constants.cos(self.dtype)
        turns = (self * (0.5 / math.pi)).round()
        rest = self
        for piece in turn:
            rest = rest - turns * piece
        return (quarter[0] - abs(rest) + quarter[1]).sin()

    @real_function
    def tan(self):
        return self.sin() / self.cos()

    @real_function
    def tanh(self):
        """Lambert's continued fraction x / (1 + x^2 / (3 + x^2 / (5 + ...))) near 0, else 1 - 2 / (exp(2 |x|) + 1)."""
        square, fraction = self * self, 1.0
        for odd in range(constants.tanh_terms(self.dtype), 0, -2):
            fraction = odd + square / fraction if odd > 1 else fraction
        near = self / (1.0 + square / fraction)
        far = 1.0 - 2.0 / ((abs(self) * 2.0).exp() + 1.0)
        return (abs(self) < 0.625).where(near, (self < 0).where(-far, far))

    @real_function
    def erf(self):
        """The error function: its Taylor series below 1, else 1 - exp(-x^2) times a polynomial in 1 / (1 + |x| / 2)."""
        series, tail = constants.erf(self.dtype)
        square, size = self * self, abs(self)
        near = self * horner(square, series)
        far = 1.0 - (-square).exp() * horner(1.0 / (1.0 + 0.5 * size), tail)
        return (size < 1.0).where(near, (self < 0).where(-far, far))

    @real_function
    def sigmoid(self):
        """1 / (1 + exp(-x))."""
        return 1.0 / (1.0 + (-self).exp())

    @real_function
    def silu(self):
        """x * sigmoid(x)."""
        return self / (1.0 + (-self).exp())

    def relu(self):
        return self.maximum(0)

    @real_function
    def gelu(self, approximate: str = "none"):
        """x times the normal distribution function of x; approximate "tanh" takes the formula by that name."""
        if approximate not in ("none", "tanh"):
            raise DTypeError(f"gelu: approximate is {approximate!r}; choose 'none' or 'tanh'")
        if approximate == "tanh":
            inner = math.sqrt(2.0 / math.pi) * (self + 0.044715 * self * self * self)
            return 0.5 * self * (1.0 + inner.tanh())
        return 0.5 * self * (1.0 + (self * math.sqrt(0.5)).erf())

    @real_function
    def softplus(self):
        """log(1 + exp(x)), without overflow."""
        return self.maximum(0) + (1.0 + (-abs(self)).exp()).log()


def horner(x, coefficients):
    """The polynomial in x with the highest coefficient first."""
    total = coefficients[0]
    for c in coefficients[1:]:
        total = total * x + c
    return total
