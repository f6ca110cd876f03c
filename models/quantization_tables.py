"""Weight formats whose codes are looked up: what a block's bytes mean, as expressions over them and small tables.

For: the rows of the table in quantization.py.  Each function takes (..., block_bytes) uint8 and returns
(..., block) float32; the lookup is a gather inside the consuming kernel.  Not for: formats whose codes are numbers.

The tables (1 to 16 KB) are those of the package `gguf`, read when such a format is first used; the layouts are
ggml's block structures.  A code names a row of 8 or 4 values; d is a float16 scale, s a scale of a part of the block.
"""
from __future__ import annotations

from functools import cache

import numpy as np

from minivt import Tensor, dtypes, where
from minivt.errors import LoadError
from minivt.models.quantization_blocks import flat, half, nibbles, parts, scaled, signed, spread, word


@cache
def table(name: str, device: str) -> Tensor:
    """The values that a format's codes name, (codes, values) int8 on a device.

    name: a format's, or "signs": rows of 8 factors 1 and -1 by a code of 7 bits.
    Errors: LoadError where the package `gguf` is not installed.
    """
    try:
        from gguf import quants
    except ImportError as error:
        raise LoadError(f"weights of format {name} need tables of the package gguf; install it with "
                        "pip install 'minivt[models]'") from error
    if name == "signs":
        bits = np.unpackbits(np.frombuffer(quants.IQ2_XXS.ksigns, np.uint8)[:, None], axis=1, bitorder="little")
        return Tensor(1 - 2 * bits.astype(np.int8), device=device)
    kind = getattr(quants, name)
    if hasattr(kind, "kvalues"):
        return Tensor(np.array(kind.kvalues, np.int8), device=device)
    kind.init_grid()
    return Tensor(kind.grid.reshape(kind.grid_shape).astype(np.int8), device=device)


def looked_up(name: str, codes: Tensor) -> Tensor:
    """The values that codes name: integers (...) to (..., values) float32."""
    return table(name, codes.device)[codes].cast(dtypes.float32)


def sign_bits(codes: Tensor) -> Tensor:
    """-1 for each bit that is set and 1 for the others, the lowest first: (..., n) uint8 to (..., n, 8) float32."""
    return 1.0 - ((spread(codes, 1, 8) & 1) << 1).cast(dtypes.float32)


def half_steps(codes: Tensor) -> Tensor:
    return codes.cast(dtypes.float32) + 0.5


def interleaved(codes: Tensor) -> Tensor:
    """(..., n) bytes to (..., 2n): low and high half of each byte in turn."""
    return flat(spread(codes, 4, 2) & 15)


def two_words(block: Tensor, first: int, stride: int) -> tuple[Tensor, Tensor]:
    """Low and high 16 bits of eight 32-bit words, `stride` bytes apart from byte `first` on: (..., 8) uint16 each."""
    rows = parts(block[..., first:first + 8 * stride], 8)[..., -4:].cast(dtypes.uint16)   # (..., 8, 4)
    return rows[..., 0] | (rows[..., 1] << 8), rows[..., 2] | (rows[..., 3] << 8)


def signs_and_scale(block: Tensor, first: int, stride: int) -> tuple[Tensor, Tensor]:
    """Of a 32-bit word for each 32 elements: four codes of signs, 7 bits each, and in the highest four bits s.

    Returns (..., 8, 4, 8) factors 1 and -1, and (..., 8) s + 0.5, both float32.
    """
    low, high = two_words(block, first, stride)
    wide = low.cast(dtypes.uint32) | (high.cast(dtypes.uint32) << 16)
    return looked_up("signs", spread(wide, 7, 4) & 127), half_steps(wide >> 28)


def iq2_xxs(block: Tensor) -> Tensor:
    """d·(s + 0.5)/4 · sign · row: bytes 0-1 d, then for each 32 elements 4 codes of 8 bits and a word of signs."""
    signs, s = signs_and_scale(block, 2, 8)
    rows = looked_up("IQ2_XXS", parts(block[..., 2:66], 8)[..., 0:4])                # (..., 8, 4, 8)
    return scaled(half(block, 0) * s * 0.25, flat(rows * signs))


def iq2_xs(block: Tensor) -> Tensor:
    """d·(s + 0.5)/4 · sign · row for each 16 elements: bytes 0-1 d, 2-65 words, 66-73 s.

    A word: 9 bits of code, 7 of signs.
    """
    codes = word(block, 2, 32)                                                       # (..., 32)
    rows = looked_up("IQ2_XS", codes & 511) * looked_up("signs", codes >> 9)         # (..., 32, 8)
    return scaled(half(block, 0) * half_steps(interleaved(block[..., 66:74])) * 0.25, parts(flat(rows), 16))


def iq2_s(block: Tensor) -> Tensor:
    """As IQ2_XS, with bytes 0-1 d, 2-33 low 8 bits of codes, 34-65 signs, 66-73 high 2 bits of codes, 74-81 s."""
    high = flat(spread(block[..., 66:74], 2, 4) & 3).cast(dtypes.uint16)
    rows = looked_up("IQ2_S", block[..., 2:34].cast(dtypes.uint16) | (high << 8)) * sign_bits(block[..., 34:66])
    return scaled(half(block, 0) * half_steps(interleaved(block[..., 74:82])) * 0.25, parts(flat(rows), 16))


def iq3_xxs(block: Tensor) -> Tensor:
    """d·(s + 0.5)/2 · sign · row: bytes 0-1 d, 2-65 codes of rows of 4, 66-97 a word of signs for each 32 elements."""
    signs, s = signs_and_scale(block, 66, 4)
    rows = looked_up("IQ3_XXS", block[..., 2:66])                                    # (..., 64, 4)
    return scaled(half(block, 0) * s * 0.5, parts(flat(rows), 8) * flat(signs))


def iq3_s(block: Tensor) -> Tensor:
    """d·(1 + 2·s) · sign · row for each 32 elements: bytes 0-1 d, 2-65 low bits of codes of rows of 4, 66-73 high ones.

    Bytes 74-105 are signs, 106-109 s.
    """
    high = flat(spread(block[..., 66:74], 1, 8) & 1).cast(dtypes.uint16)
    rows = looked_up("IQ3_S", block[..., 2:66].cast(dtypes.uint16) | (high << 8))
    s = (interleaved(block[..., 106:110]) * 2 + 1).cast(dtypes.float32)
    return scaled(half(block, 0) * s, parts(flat(rows) * flat(sign_bits(block[..., 74:106])), 8))


def iq1_s(block: Tensor) -> Tensor:
    """d·(1 + 2·s)·(row ± 1/8) for each 32 elements: bytes 0-1 d, 2-33 low 8 bits of codes, 34-49 a word for each 32.

    The word: four times the high 3 bits of a code, 3 bits of s, the sign of 1/8.
    """
    words = word(block, 34, 8)                                                       # (..., 8)
    high = flat(spread(words, 3, 4) & 7)
    rows = looked_up("IQ1_S", block[..., 2:34].cast(dtypes.uint16) | (high << 8))    # (..., 32, 8)
    s = (((words >> 12) & 7) * 2 + 1).cast(dtypes.float32)
    return scaled(half(block, 0) * s, parts(flat(rows), 8) + eighth(words >> 15)[..., None])


def eighth(negative: Tensor) -> Tensor:
    """1/8, and -1/8 where the integer is not 0."""
    return where(negative == 0, 0.125, -0.125)


def quarter(block: Tensor, place: int) -> Tensor:
    """The high half of a byte, where it stands, as (..., 1) uint16."""
    return (block[..., place:place + 1] & 240).cast(dtypes.uint16)


def iq1_m(block: Tensor) -> Tensor:
    """d·(1 + 2·s)·(row ± 1/8): bytes 0-31 low 8 bits of codes, 32-47 for each code 3 high bits and the sign of 1/8.

    Bytes 48-55 are four words: each has four s, of 3 bits, for 16 elements each, and a quarter of d in its highest
    bits, the lowest quarter first.
    """
    words = word(block, 48, 4)
    bits = quarter(block, 49) >> 4 | quarter(block, 51) | quarter(block, 53) << 4 | quarter(block, 55) << 8
    d = bits.bitcast(dtypes.float16).cast(dtypes.float32)
    s = ((flat(spread(words, 3, 4)) & 7) * 2 + 1).cast(dtypes.float32)               # (..., 16)
    high = interleaved(block[..., 32:48])                                            # (..., 32)
    rows = looked_up("IQ1_M", block[..., 0:32].cast(dtypes.uint16) | ((high & 7).cast(dtypes.uint16) << 8))
    return scaled(d * s, parts(flat(rows + eighth(high & 8)[..., None]), 16))


def iq4_nl(block: Tensor) -> Tensor:
    """d·value: bytes 0-1 d, 2-17 codes of 4 bits, low halves first."""
    return half(block, 0) * looked_up("IQ4_NL", flat(nibbles(block[..., 2:18])))


def iq4_xs(block: Tensor) -> Tensor:
    """d·(s - 32)·value for each 32 elements: bytes 0-1 d, 2-3 high 2 bits of s, 4-7 low 4, 8-135 codes as in IQ4_NL."""
    high = flat(spread(block[..., 2:4], 2, 4) & 3)                                   # (..., 8)
    s = signed(interleaved(block[..., 4:8]) | (high << 4), 32)
    codes = nibbles(parts(block[..., 8:136], 8)).reshape(*block.shape[:-1], 8, 32)
    return scaled(half(block, 0) * s, looked_up("IQ4_NL", codes))
