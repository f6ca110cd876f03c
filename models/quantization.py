"""The weight formats of GGUF files, one row a format: how many elements a block has, its bytes, what they mean.

For: turning packed weights into numbers inside the computation that uses them.  A row's `unpack` is an expression
over the packed bytes, so it fuses into the consuming contraction and float weights never exist in memory.
Not for: quantising, and not for reading files (gguf.py).

Source of the layouts: the GGUF specification (docs/gguf.md of ggml) and ggml's block structures; all little-endian.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import numpy as np

from minivt import Tensor, arange, dtypes


@dataclass(frozen=True)
class Format:
    """One way of storing weights: `block` elements of a row become `block_bytes` bytes, held as `storage` elements."""

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


def half(pair: Tensor) -> Tensor:
    """(..., 2) uint8, a little-endian float16 each, to (..., 1) float32."""
    low, high = pair[..., 0:1].cast(dtypes.uint16), pair[..., 1:2].cast(dtypes.uint16)
    return (low | (high << 8)).bitcast(dtypes.float16).cast(dtypes.float32)


def unpack_plain(values: Tensor) -> Tensor:
    return values.cast(dtypes.float32)


def unpack_q4_1(blocks: Tensor) -> Tensor:
    """d·q + m with 4-bit q: bytes 0-1 d, 2-3 m, 4-19 q; low nibbles are elements 0-15, high nibbles 16-31."""
    scale, offset = half(blocks[..., 0:2]), half(blocks[..., 2:4])      # (..., blocks, 1)
    shift = (arange(2, device=blocks.device) * 4).cast(dtypes.uint8).reshape(2, 1)            # low nibble, high nibble
    q = (blocks[..., None, 4:20] >> shift) & 15                         # (..., blocks, 2, 16)
    q = q.reshape(*blocks.shape[:-1], 32).cast(dtypes.float32)
    return join_blocks(q * scale + offset)


def unpack_q8_0(blocks: Tensor) -> Tensor:
    """d·q with signed 8-bit q: bytes 0-1 d, 2-33 q."""
    q = blocks[..., 2:34].bitcast(dtypes.int8).cast(dtypes.float32)     # (..., blocks, 32)
    return join_blocks(q * half(blocks[..., 0:2]))


def join_blocks(x: Tensor) -> Tensor:
    """(..., blocks, block) to (..., blocks * block)."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


FORMATS = {row.name: row for row in (
    #      name    block  bytes  storage                unpack
    Format("F32",      1,     4, np.dtype("<f4"),       unpack_plain),
    Format("F16",      1,     2, np.dtype("<f2"),       unpack_plain),
    Format("Q4_1",    32,    20, np.dtype("u1"),        unpack_q4_1),
    Format("Q8_0",    32,    34, np.dtype("u1"),        unpack_q8_0),
)}


def dequantise(packed: Tensor, format: str) -> Tensor:
    """Packed weights as float32.

    packed: Tensor in the format's storage shape and dtype, (..., blocks, block_bytes) uint8 or the plain floats.
    format: a name in FORMATS.
    Returns (..., blocks * block) float32, lazily: nothing is computed or stored until something consumes it.
    """
    return FORMATS[format].unpack(packed)
