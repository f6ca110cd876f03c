"""THE table of weight formats: how many elements a block has, its bytes, what they mean.

For: turning packed weights into numbers inside the computation that uses them.  A row's `unpack` is an expression
over the packed bytes, so it fuses into the consuming contraction and float weights never exist in memory.
Not for: quantising, nor for reading files (gguf.py, checkpoint.py).  The expressions are in quantization_blocks.py
(arithmetic on codes) and quantization_tables.py (codes that are looked up).

Source of the layouts: the GGUF specification (docs/gguf.md of ggml) and ggml's block structures; all little-endian.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import numpy as np

from minivt import Tensor
from minivt.models import quantization_blocks as blocks, quantization_tables as tables


@dataclass(frozen=True)
class Format:
    """One way of storing weights: `block` elements of a row become `block_bytes` bytes, held as `storage` elements.

    unpack: (..., block_bytes) uint8 to (..., block) float32, or plain elements to float32 of the same shape.
    """

    name: str
    block: int
    block_bytes: int
    storage: np.dtype
    unpack: Callable[[Tensor], Tensor]

    def storage_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the stored array: the logical one, or (..., blocks, block_bytes) where elements share bytes."""
        if self.block == 1:
            return shape
        return *shape[:-1], shape[-1] // self.block, self.block_bytes

    def nbytes(self, elements: int) -> int:
        """Bytes of so many elements of a row, a whole number of blocks."""
        return elements // self.block * self.block_bytes


def packed(name: str, block: int, block_bytes: int, unpack: Callable[[Tensor], Tensor]) -> Format:
    return Format(name, block, block_bytes, np.dtype("u1"), unpack)


def plain(name: str, code: str, unpack: Callable[[Tensor], Tensor] = blocks.plain) -> Format:
    return Format(name, 1, np.dtype(code).itemsize, np.dtype(code), unpack)


FORMATS = {row.name: row for row in (
    plain("F32", "<f4"), plain("F64", "<f8"), plain("F16", "<f2"),
    plain("BF16", "<u2", blocks.bf16),                               # NumPy has no bfloat16: its bits
    plain("I8", "i1"), plain("I16", "<i2"), plain("I32", "<i4"), plain("I64", "<i8"),
    #      name     block  bytes  unpack
    packed("Q4_0",     32,    18, blocks.q4_0),
    packed("Q4_1",     32,    20, blocks.q4_1),
    packed("Q5_0",     32,    22, blocks.q5_0),
    packed("Q5_1",     32,    24, blocks.q5_1),
    packed("Q8_0",     32,    34, blocks.q8_0),
    packed("Q2_K",    256,    84, blocks.q2_k),
    packed("Q3_K",    256,   110, blocks.q3_k),
    packed("Q4_K",    256,   144, blocks.q4_k),
    packed("Q5_K",    256,   176, blocks.q5_k),
    packed("Q6_K",    256,   210, blocks.q6_k),
    packed("TQ1_0",   256,    54, blocks.tq1_0),
    packed("TQ2_0",   256,    66, blocks.tq2_0),
    packed("MXFP4",    32,    17, blocks.mxfp4),
    packed("NVFP4",    64,    36, blocks.nvfp4),
    packed("IQ2_XXS", 256,    66, tables.iq2_xxs),
    packed("IQ2_XS",  256,    74, tables.iq2_xs),
    packed("IQ2_S",   256,    82, tables.iq2_s),
    packed("IQ3_XXS", 256,    98, tables.iq3_xxs),
    packed("IQ3_S",   256,   110, tables.iq3_s),
    packed("IQ1_S",   256,    50, tables.iq1_s),
    packed("IQ1_M",   256,    56, tables.iq1_m),
    packed("IQ4_NL",   32,    18, tables.iq4_nl),
    packed("IQ4_XS",  256,   136, tables.iq4_xs),
)}


def dequantise(packed: Tensor, format: str) -> Tensor:
    """Packed weights as float32.

    packed: Tensor in the format's storage shape and dtype, (..., blocks, block_bytes) uint8 or the plain elements.
    format: a name in FORMATS.
    Returns (..., blocks * block) float32, lazily: nothing is computed or stored until something consumes it.
    Errors: LoadError for a format whose tables come from the package `gguf` where that is not installed.
    """
    row = FORMATS[format]
    values = row.unpack(packed)
    if row.block == 1:
        return values
    return values.reshape(*packed.shape[:-2], packed.shape[-2] * row.block)
