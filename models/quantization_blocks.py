"""Weight formats whose codes are numbers: what a block's bytes mean, as expressions over them.

For: the rows of the table in quantization.py.  Each function takes (..., block_bytes) uint8 and returns
(..., block) float32.  Not for: formats that look codes up (quantization_tables.py).

In the docstrings d and m are float16 scale and offset, q a code, s and o small integers that scale d and m for a part
of the block.  Source of the layouts: ggml's block structures; OCP Microscaling Formats 1.0 for E2M1 and E8M0.
"""
from __future__ import annotations

from minivt import Tensor, arange, dtypes, where

# --- pieces ---


def plain(values: Tensor) -> Tensor:
    return values.cast(dtypes.float32)


def bf16(bits: Tensor) -> Tensor:
    """Bits as uint16, or bfloat16 itself, to float32."""
    return bits.bitcast(dtypes.bfloat16).cast(dtypes.float32)


def word(block: Tensor, first: int, count: int = 1) -> Tensor:
    """`count` little-endian 16-bit words from byte `first` on: (..., count) uint16."""
    pairs = block[..., first:first + 2 * count].reshape(*block.shape[:-1], count, 2).cast(dtypes.uint16)
    return pairs[..., 0] | (pairs[..., 1] << 8)


def half(block: Tensor, first: int) -> Tensor:
    """The float16 at byte `first` as float32: (..., 1)."""
    return word(block, first).bitcast(dtypes.float16).cast(dtypes.float32)


def shifted(codes: Tensor, step: int, count: int) -> Tensor:
    """codes >> 0, step, 2·step, ...: (..., n) to (..., count, n), all of one shift before the next."""
    shifts = (arange(count, device=codes.device) * step).cast(codes.dtype).reshape(count, 1)
    return codes[..., None, :] >> shifts


def spread(codes: Tensor, step: int, count: int) -> Tensor:
    """codes >> 0, step, 2·step, ...: (..., n) to (..., n, count), all shifts of one code before the next code."""
    return codes[..., :, None] >> (arange(count, device=codes.device) * step).cast(codes.dtype)


def nibbles(codes: Tensor) -> Tensor:
    """(..., n) bytes to (..., 2, n): low halves, then high halves."""
    return shifted(codes, 4, 2) & 15


def signed(codes: Tensor, offset: int) -> Tensor:
    """Small unsigned codes less an offset, as float32."""
    return codes.cast(dtypes.float32) - float(offset)


def scaled(scale: Tensor, codes: Tensor) -> Tensor:
    """Parts of a block times their scales: (..., parts) and (..., parts, n) float32 to (..., parts * n)."""
    return flat(scale[..., None] * codes)


def flat(x: Tensor, axes: int = 2) -> Tensor:
    """The last axes as one."""
    kept, joined = x.shape[:x.ndim - axes], 1
    for size in x.shape[x.ndim - axes:]:
        joined *= size
    return x.reshape(*kept, joined)


def parts(x: Tensor, count: int) -> Tensor:
    """The last axis cut into `count` equal ones: (..., count, n)."""
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count)


# --- blocks of 32 ---


def q4_0(block: Tensor) -> Tensor:
    """d·(q - 8): bytes 0-1 d, 2-17 q; low halves are elements 0-15, high halves 16-31."""
    return half(block, 0) * signed(flat(nibbles(block[..., 2:18])), 8)


def q4_1(block: Tensor) -> Tensor:
    """d·q + m: bytes 0-1 d, 2-3 m, 4-19 q as in Q4_0."""
    return flat(nibbles(block[..., 4:20])).cast(dtypes.float32) * half(block, 0) + half(block, 2)


def fifth_bits(block: Tensor, first: int) -> Tensor:
    """Bit i of the 32-bit word at byte `first`, as 16 for element i: (..., 32) uint8."""
    return flat(spread(block[..., first:first + 4], 1, 8) & 1) << 4


def q5_0(block: Tensor) -> Tensor:
    """d·(q - 16): bytes 0-1 d, 2-5 the highest bits of q, 6-21 the others as in Q4_0."""
    return half(block, 0) * signed(flat(nibbles(block[..., 6:22])) | fifth_bits(block, 2), 16)


def q5_1(block: Tensor) -> Tensor:
    """d·q + m: bytes 0-1 d, 2-3 m, 4-7 the highest bits of q, 8-23 the others as in Q4_0."""
    q = flat(nibbles(block[..., 8:24])) | fifth_bits(block, 4)
    return q.cast(dtypes.float32) * half(block, 0) + half(block, 2)


def q8_0(block: Tensor) -> Tensor:
    """d·q with signed 8-bit q: bytes 0-1 d, 2-33 q."""
    return block[..., 2:34].bitcast(dtypes.int8).cast(dtypes.float32) * half(block, 0)


# --- blocks of 256 ---


def q2_k(block: Tensor) -> Tensor:
    """d·s·q - m·o for each 16 elements: bytes 0-15 s (low half) and o (high half), 16-79 q, 80-81 d, 82-83 m.

    q has 2 bits: 32 bytes hold 128 elements, the lowest bits of all first.
    """
    q = flat(shifted(parts(block[..., 16:80], 2), 2, 4) & 3, 3)
    s, o = (block[..., 0:16] & 15).cast(dtypes.float32), (block[..., 0:16] >> 4).cast(dtypes.float32)
    return flat((half(block, 80) * s)[..., None] * parts(q, 16).cast(dtypes.float32) - (half(block, 82) * o)[..., None])


def q3_k(block: Tensor) -> Tensor:
    """d·(s - 32)·(q - 4) for each 16 elements: bytes 0-31 highest bits of q, 32-95 the others, 96-107 s, 108-109 d.

    Byte j of the first 32 holds element j of each 32 in its bit.  s has 6 bits: the low four are low halves, then
    high halves, of bytes 96-103; the high two are in bytes 104-107, the lowest bits of all four first.
    """
    low = flat(shifted(parts(block[..., 32:96], 2), 2, 4) & 3, 3)
    high = flat(shifted(block[..., 0:32], 1, 8) & 1)
    s = flat(nibbles(block[..., 96:104])) | (flat(shifted(block[..., 104:108], 2, 4) & 3) << 4)
    return scaled(half(block, 108) * signed(s, 32), parts(signed(low | (high << 2), 4), 16))


def scales_of_eight(block: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """s and o of Q4_K and Q5_K, 6 bits each, from 12 bytes: (..., 8) float32 both.

    For parts 0-3 they are the low six bits of bytes 0-3 and 4-7; for parts 4-7 the halves of bytes 8-11, with the two
    bits that the first four left over above them.
    """
    a, b, c = (block[..., None, first + 4 * i:first + 4 * i + 4] for i in range(3))      # (..., 1, 4)
    early = arange(2, device=block.device).reshape(2, 1) < 1
    s = flat(where(early, a & 63, (c & 15) | ((a >> 6) << 4)))
    o = flat(where(early, b & 63, (c >> 4) | ((b >> 6) << 4)))
    return s.cast(dtypes.float32), o.cast(dtypes.float32)


def scaled_less_offset(block: Tensor, codes: Tensor) -> Tensor:
    """d·s·q - m·o for each 32 elements; bytes 0-1 d, 2-3 m, 4-15 s and o."""
    s, o = scales_of_eight(block, 4)
    return flat((half(block, 0) * s)[..., None] * parts(codes, 8).cast(dtypes.float32)
                - (half(block, 2) * o)[..., None])


def q4_k(block: Tensor) -> Tensor:
    """d·s·q - m·o for each 32 elements: bytes 0-15 scales, 16-143 q: 32 bytes are 32 low halves, 32 high halves."""
    return scaled_less_offset(block, flat(nibbles(parts(block[..., 16:144], 4)), 3))


def q5_k(block: Tensor) -> Tensor:
    """As Q4_K with bytes 16-47 the highest bits of q, element j of each 32 in byte j, and 48-175 the others."""
    low = flat(nibbles(parts(block[..., 48:176], 4)), 3)
    high = flat(shifted(block[..., 16:48], 1, 8) & 1)
    return scaled_less_offset(block, low | (high << 4))


def q6_k(block: Tensor) -> Tensor:
    """d·s·(q - 32) for each 16 elements: bytes 0-127 low four bits of q, 128-191 high two, 192-207 s, 208-209 d.

    128 elements have 64 bytes of low bits, all low halves first, and 32 bytes of high bits, the lowest of all first.
    """
    low = flat(nibbles(parts(block[..., 0:128], 2)), 3)
    high = flat(shifted(parts(block[..., 128:192], 2), 2, 4) & 3, 3)
    s = block[..., 192:208].bitcast(dtypes.int8).cast(dtypes.float32)
    return scaled(half(block, 208) * s, parts(signed(low | (high << 4), 32), 16))


def tq1_0(block: Tensor) -> Tensor:
    """d·(q - 1) with q of 0, 1, 2: five in a byte (bytes 0-47), four in the last ones (48-51); 52-53 d.

    A byte is a fraction of 256 in base 3: times 3^i modulo 256, times 3, divided by 256 is digit i.
    """
    element = arange(256, device=block.device)
    first, second = element < 160, element < 240                        # of 32 and 16 bytes with five digits
    place = where(first, element % 32, where(second, 32 + element % 16, 48 + element % 4))
    digit = where(first, element // 32, where(second, (element - 160) // 16, (element - 240) // 4))
    power = where(digit < 2, where(digit < 1, 1, 3), where(digit < 3, 9, where(digit < 4, 27, 81)))
    left = block[..., place.cast(dtypes.uint32)] * power.cast(dtypes.uint8)               # modulo 256
    return half(block, 52) * signed((left.cast(dtypes.uint16) * 3) >> 8, 1)


def tq2_0(block: Tensor) -> Tensor:
    """d·(q - 1): bytes 0-63 q of 2 bits, 32 bytes for 128 elements, the lowest bits of all first; 64-65 d."""
    return half(block, 64) * signed(flat(shifted(parts(block[..., 0:64], 2), 2, 4) & 3, 3), 1)


# --- small floats ---


def e2m1(codes: Tensor) -> Tensor:
    """Four-bit floats, sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.

    Placed where float16 keeps exponent and mantissa, they are 2^14 times too small, exactly.
    """
    wide = codes.cast(dtypes.uint16)
    return (((wide & 8) << 12) | ((wide & 7) << 9)).bitcast(dtypes.float16).cast(dtypes.float32) * 2.0 ** 14


def e4m3(codes: Tensor) -> Tensor:
    """Eight-bit floats, sign, four bits of exponent, three of mantissa, without infinity; 127 and 255 are NaN.

    Placed where float16 keeps exponent and mantissa, they are 2^8 times too small, exactly.
    """
    wide = codes.cast(dtypes.uint16)
    value = (((wide & 128) << 8) | ((wide & 127) << 7)).bitcast(dtypes.float16).cast(dtypes.float32) * 2.0 ** 8
    return where((codes & 127) == 127, float("nan"), value)


def mxfp4(block: Tensor) -> Tensor:
    """2^(e - 127)·q: byte 0 e, 1-16 q of E2M1, low halves first.  2^(e - 128) is built, as ggml does, for 2·q."""
    e = block[..., 0:1].cast(dtypes.uint32)
    bits = where(e < 2, (e << 21) + (1 << 21), (e - 1) << 23)          # below 2^-126 a float32 has no exponent left
    return bits.bitcast(dtypes.float32) * (e2m1(flat(nibbles(block[..., 1:17]))) * 2.0)


def nvfp4(block: Tensor) -> Tensor:
    """s·q for each 16 elements: bytes 0-3 s of E4M3 without its sign, 4-35 q of E2M1; of 8 bytes low halves first."""
    code = block[..., 0:4] & 127
    s = where(block[..., 0:4] == 127, 0.0, e4m3_magnitude(code))
    return scaled(s, flat(e2m1(nibbles(parts(block[..., 4:36], 4)))).reshape(*block.shape[:-1], 4, 16))


def e4m3_magnitude(codes: Tensor) -> Tensor:
    """E4M3 below 128 with no NaN: 127 is 480."""
    return (codes.cast(dtypes.uint16) << 7).bitcast(dtypes.float16).cast(dtypes.float32) * 2.0 ** 8
