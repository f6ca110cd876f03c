"""Constants of the functions of real numbers that depend on the precision. Not for the functions (real_functions.py).

A constant in pieces is a sum of floats of which all but the last have few bits, so that their products with a small
whole number are exact (Cody and Waite, Software Manual for the Elementary Functions, 1980).
"""
from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from minivt import dtypes
from minivt.dtypes import DType

PI = Fraction(31415926535897932384626433832795028841971693993751, 10 ** 49)
LN2 = Fraction(69314718055994530941723212145817656807550013436026, 10 ** 50)

# Coefficients over 0 <= t <= 2/3, by degree, made by interpolation at Chebyshev nodes with 60 digits; the
# error in erfc is 1.4e-8 at degree 9 in float32 and 2.8e-17 at degree 22 in float64.
TAIL = {
    9: (
        -0.009196890518069267, 0.123053640127182, -0.2670886516571045, 0.1141924038529396,
        0.045761607587337494, 0.18343117833137512, 0.24608160555362701, 0.2821345627307892,
        0.28209397196769714, 2.7040434336100816e-09),
    22: (
        0.34827916174489676, -2.7686248562191493, 10.121963478198703, -22.427167626355576, 33.38103670163836,
        -34.974212184394666, 26.401470384356713, -14.695804056944125, 6.3654862391255085, -2.2920874475123507,
        0.594361812499521, -0.07677550995822931, 0.07212987237902674, -0.00682514181070897,
        -0.05312574510101239, -0.056774788170291725, -0.004406256609197113, 0.08374683078380761,
        0.17630924648559718, 0.24683294277690804, 0.28209479177404245, 0.28209479177387836,
        -4.027035859809782e-18),
}


def in_pieces(value: Fraction, bits: tuple[int, ...]) -> tuple[float, ...]:
    """Floats that sum to the value; the i-th has the next bits[i] binary digits, the last what is left."""
    pieces, last_digit = [], math.frexp(float(value))[1]
    for count in bits:
        last_digit -= count
        unit = Fraction(2) ** last_digit
        pieces.append(value // unit * unit)
        value -= pieces[-1]
    return tuple(map(float, (*pieces, value)))


@lru_cache(maxsize=None)
def cos(dtype: DType) -> tuple[tuple[float, ...], tuple[float, float]]:
    """2 pi in three pieces and pi / 2 in two."""
    if dtype is dtypes.float32:
        return in_pieces(2 * PI, (8, 13)), in_pieces(PI / 2, (24,))
    return in_pieces(2 * PI, (30, 30)), in_pieces(PI / 2, (53,))


def tanh_terms(dtype: DType) -> int:
    """The odd number at which the continued fraction of tanh ends; its error is below half an ulp for |x| < 0.625."""
    return 9 if dtype is dtypes.float32 else 19


@lru_cache(maxsize=None)
def erf(dtype: DType) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Taylor coefficients of erf(x) / x in x^2, and of exp(x^2) erfc(x) in t = 1 / (1 + x / 2), highest first."""
    terms, degree = (11, 9) if dtype is dtypes.float32 else (20, 22)
    series = [2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(terms)]
    return tuple(reversed(series)), TAIL[degree]
