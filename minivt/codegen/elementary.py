"""EXP2, LOG2 and SIN in float32 and float64 arithmetic, as polynomials written through a Builder (render/llvm.py).

Errors: about 1 unit in the last place for EXP2 and SIN, 2 for LOG2. NaN, infinities, subnormals and overflow are as in
NumPy. Every step works lane by lane, without branches. Not for the other primitives (primitives.py).
"""
from __future__ import annotations

from math import e, factorial, log, log2, pi

from minivt import dtypes
from minivt.codegen.render.llvm import Builder, Value

# For each dtype: bits of the fraction, bias of the exponent, the same-size unsigned integer.
_FORMAT = {dtypes.float32: (23, 127, dtypes.uint32), dtypes.float64: (52, 1023, dtypes.uint64)}

# 2**x = 1 + x * P(x) for |x| <= 1/2: minimax in float32, Taylor in float64.
_EXP2 = {dtypes.float32: (0.6931472045752688, 0.2402265132847395, 0.05550330030439487, 0.009618005585298456,
                          0.0013399614002315566, 0.0001547590115522066),
         dtypes.float64: tuple(log(2) ** n / factorial(n) for n in range(1, 14))}
# log(1 + f) = f + f**2 * P(f) for sqrt(1/2) <= 1 + f <= sqrt(2): minimax.
_LOG = (-0.5000000003540744, 0.33333313814082965, -0.2499998208887349, 0.2000203272733061, -0.1666931485503619,
        0.1422216132461228, -0.1238528348637598, 0.11850304327653087, -0.11776542739514417, 0.069473974411605)
# atanh(s) = s + s**3 * P(s**2): Taylor.
_ATANH = tuple(1 / (2 * n + 3) for n in range(11))
# sin(r) = r + r**3 * P(r**2) for |r| <= pi/2: minimax in float32, Taylor in float64.
_SIN = {dtypes.float32: (-0.16666666637879096, 0.008333331525764747, -0.000198409160788312, 2.7527590755202587e-06,
                         -2.392435654637175e-08),
        dtypes.float64: tuple((-1) ** n / factorial(2 * n + 1) for n in range(1, 12))}
# The binary digits of 1 / (2 pi), 64 a word, after one word of zeros.
_TURNS = (0x0, 0x28BE60DB9391054A, 0x7F09D5F47D4D3770, 0x36D8A5664F10E410, 0x7F9458EAF7AEF158, 0x6DC91B8E909374B8,
          0x01924BBA82746487, 0x3F877AC72C4A69CF, 0xBA208D7D4BAED121, 0x3A671C09AD17DF90, 0x4E64758E60D4CE7D,
          0x272117E2EF7E4A0E, 0xC7FE25FFF7816603, 0xFBCBC462D6829B47, 0xDB4D9FB3C9F2C26D, 0xD3D18FD9A797FA8B,
          0x5D49EEB1FAF97C5E, 0xCF41CE7DE294A4BA, 0x9AFED7EC47E35742, 0x1580CC11BF1EDAEA, 0xFC33EF0826BD0D87)


def _polynomial(b: Builder, x: Value, coefficients) -> Value:
    total = b.like(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        total = b.multiply_add(total, x, b.like(c, x))
    return total


def exp2(b: Builder, x: Value) -> Value:
    """2**x: a polynomial for the fraction, times two powers of half the integer, so that neither overflows early.

    Adding `magic` rounds x to an integer n and leaves n plus twice the exponent's bias in the low bits of the sum: half
    of that is the biased exponent of the first power, the rest that of the second; shifting drops all higher bits.
    """
    fraction, bias, unsigned = _FORMAT[x.dtype]
    high, low = b.like(bias + 2.0, x), b.like(-float(bias + fraction + 3), x)
    x = b.select(b.less(high, x), high, x)  # NaN compares false and stays
    x = b.select(b.less(x, low), low, x)
    magic = b.like(1.5 * 2.0 ** fraction + 2 * bias, x)
    shifted = b.add(x, magic)
    rest = b.sub(x, b.sub(shifted, magic))
    whole = b.bits(shifted, unsigned)
    half = b.shift_right(whole, b.like(1, whole))
    powers = [b.bits(b.shift_left(n, b.like(fraction, n)), x.dtype) for n in (half, b.sub(whole, half))]
    result = b.multiply_add(rest, _polynomial(b, rest, _EXP2[x.dtype]), b.like(1.0, rest))
    return b.mul(b.mul(result, powers[0]), powers[1])


def log2_(b: Builder, x: Value) -> Value:
    """x = 2**n * (1 + f) with 1 + f near 1; log2(x) = n + log(1 + f) * log2(e), the large parts added last."""
    fraction, bias, unsigned = _FORMAT[x.dtype]
    smallest = b.like(2.0 ** (1 - bias), x)
    subnormal = b.less(x, smallest)
    scaled = b.select(subnormal, b.mul(x, b.like(2.0 ** fraction, x)), x)
    bits = b.bits(scaled, unsigned)
    offset = b.like(_bits_of(0.5 ** 0.5, x.dtype), bits)
    moved = b.sub(bits, offset)
    signed = dtypes.int32 if x.dtype is dtypes.float32 else dtypes.int64
    n = b.shift_right(b.bits(moved, signed), b.const(fraction, signed))
    mantissa = b.add(b.both(moved, b.like((1 << fraction) - 1, bits)), offset)
    f = b.sub(b.bits(mantissa, x.dtype), b.like(1.0, x))
    n = b.cast(b.sub(n, b.select(subnormal, b.like(fraction, n), b.like(0, n))), x.dtype)
    if x.dtype is dtypes.float32:
        tail = b.mul(b.mul(f, f), _polynomial(b, f, _LOG))
    else:
        tail = _log_tail(b, f)
    beyond = b.like(log2(e) - 1, x)
    total = b.multiply_add(f, beyond, b.mul(tail, beyond))
    total = b.add(n, b.add(f, b.add(tail, total)))
    infinity, nan = b.like(float("inf"), x), b.like(float("nan"), x)
    total = b.select(b.less(x, infinity), total, x)  # inf and NaN give themselves
    total = b.select(b.less(x, b.like(0.0, x)), nan, total)
    return b.select(b.differ(x, b.like(0.0, x)), total, b.like(float("-inf"), x))


def _log_tail(b: Builder, f: Value) -> Value:
    """log(1 + f) - f as -f**2/2 + s * (f**2/2 + R(s**2)), s = f / (2 + f)."""
    s = b.divide(f, b.add(f, b.like(2.0, f)))
    z = b.mul(s, s)
    half_square = b.mul(b.mul(f, f), b.like(0.5, f))
    r = b.mul(b.mul(z, _polynomial(b, z, _ATANH)), b.like(2.0, f))
    return b.sub(b.mul(s, b.add(half_square, r)), half_square)


def _bits_of(value: float, dtype) -> int:
    import numpy as np
    return int(np.array(value, dtype.numpy).view(f"u{dtype.itemsize}"))


def sin(b: Builder, x: Value) -> Value:
    """The angle in turns, exactly modulo one: the product of the integer significand and the digits of 1 / (2 pi)
    that matter at x's exponent (Payne and Hanek 1983), as a 64-bit fraction. Small angles are taken as they are."""
    fraction, bias, unsigned = _FORMAT[x.dtype]
    bits = b.cast(b.bits(x, unsigned), dtypes.uint64)
    c = lambda value: b.like(value, bits)
    significand = b.either(b.both(bits, c((1 << fraction) - 1)), c(1 << fraction))
    exponent = b.both(b.shift_right(bits, c(fraction)), c(2 * bias + 1))
    start = b.sub(exponent, c(bias + fraction - 64))  # the first digit of weight 1 turn, counting the word of zeros
    inside = b.less(exponent, c(2 * bias + 1))
    usable = b.both(inside, b.less(c(bias - 3), exponent))
    start = b.select(usable, start, c(64))
    word, shift = b.shift_right(start, c(6)), b.both(start, c(63))
    words = [b.table("turns", _TURNS, b.add(word, c(i))) for i in range(3)]
    high, low = (b.call("fshl", dtypes.uint64, words[i], words[i + 1], shift) for i in range(2))
    turns = b.add(b.mul(significand, high), _high_product(b, significand, low))
    # Fold into a quarter turn either way: sin(a) = sin(half a turn - a).
    turns = b.bits(turns, dtypes.int64)
    s = lambda value: b.like(value, turns)
    quarter = b.shift_right(b.exclusive(turns, b.shift_left(turns, s(1))), s(63))
    turns = b.select(b.differ(quarter, s(0)), b.sub(s(-(1 << 63)), turns), turns)
    large = b.cast(b.mul(b.cast(turns, dtypes.float64), b.const(2 * pi / 2.0 ** 64, dtypes.float64)), x.dtype)
    negative = b.differ(b.both(bits, c(1 << (8 * x.dtype.itemsize - 1))), c(0))
    large = b.select(negative, b.negate(large), large)
    magnitude = b.select(negative, b.negate(x), x)
    r = b.select(b.less(magnitude, b.like(1.5, x)), x, large)
    z = b.mul(r, r)
    result = b.multiply_add(b.mul(r, z), _polynomial(b, z, _SIN[x.dtype]), r)
    result = b.select(b.differ(x, b.like(0.0, x)), result, x)  # keeps the sign of zero
    return b.select(inside, result, b.like(float("nan"), x))


def _high_product(b: Builder, x: Value, y: Value) -> Value:
    """The high 64 bits of a product of unsigned 64-bit integers, x below 2**53."""
    c = lambda value: b.like(value, x)
    x0, x1 = b.both(x, c(0xFFFFFFFF)), b.shift_right(x, c(32))
    y0, y1 = b.both(y, c(0xFFFFFFFF)), b.shift_right(y, c(32))
    middle = b.add(b.mul(x1, y0), b.shift_right(b.mul(x0, y0), c(32)))
    middle_low = b.add(b.both(middle, c(0xFFFFFFFF)), b.mul(x0, y1))
    return b.add(b.add(b.mul(x1, y1), b.shift_right(middle, c(32))), b.shift_right(middle_low, c(32)))
