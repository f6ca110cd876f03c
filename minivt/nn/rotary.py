"""Rotary position embedding (Su and others, RoFormer, 2021). Not for the scaling of long contexts.

A pair of elements (a, b) at position p is turned by the angle p * frequency: (a cos - b sin, a sin + b cos). Models
differ in which elements form a pair: neighbours (rotate_adjacent) or the two halves of the head (rotate_halves).
"""
from __future__ import annotations

from minivt import dtypes
from minivt.errors import ShapeError
from minivt.functional import cat, stack
from minivt.tensor import Tensor
from minivt.variable import shape_text


def rotary_frequencies(head_dim: int, theta: float = 10000.0) -> Tensor:
    """theta^(-2 i / head_dim) for each pair i, in radians a position. Shape: (head_dim / 2,), float32."""
    if head_dim % 2:
        raise ShapeError(f"rotary_frequencies: head_dim is {head_dim}; it must be even, for its elements turn in pairs")
    return Tensor([theta ** (-2.0 * i / head_dim) for i in range(head_dim // 2)], dtypes.float32)


def _angles(name: str, x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine and sine of each pair's angle, (..., tokens, 1, head_dim / 2), in float32."""
    if x.ndim < 3 or x.shape[-1] != 2 * frequencies.shape[-1]:
        raise ShapeError(f"{name}: x has shape {shape_text(x.node.shape)} for {frequencies.shape[-1]} frequencies; it "
                         "must be (..., tokens, heads, head_dim) with two elements for each frequency")
    angle = (positions.cast(dtypes.float32).unsqueeze(-1) * frequencies).unsqueeze(-2)
    return angle.cos(), angle.sin()


def rotate_adjacent(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Turn the pairs (x[0], x[1]), (x[2], x[3]), ...

    x: (..., tokens, heads, head_dim); positions: (..., tokens) integers; frequencies: (head_dim / 2,).
    """
    cos, sin = _angles("rotate_adjacent", x, positions, frequencies)
    pairs = x.cast(dtypes.float32).reshape(*x.shape[:-1], frequencies.shape[-1], 2)
    a, b = pairs[..., 0], pairs[..., 1]
    return stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(*x.shape).cast(x.dtype)


def rotate_halves(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Turn the pairs (x[0], x[n / 2]), (x[1], x[n / 2 + 1]), ...; shapes as in rotate_adjacent."""
    cos, sin = _angles("rotate_halves", x, positions, frequencies)
    half = frequencies.shape[-1]
    wide = x.cast(dtypes.float32)
    a, b = wide[..., :half], wide[..., half:]
    return cat([a * cos - b * sin, a * sin + b * cos], -1).cast(x.dtype)
