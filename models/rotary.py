"""Rotary positions of a decoder: tables of angles, and the ways to stretch them over longer contexts.

For: turning queries and keys (Su et al. 2021), all of a head or its first part.  Not for: images' positions.
Sources: linear, Chen et al. 2023; dynamic, NTK-aware scaling; llama3, the Llama 3.1 report; yarn, Peng et al. 2023.
"""
from __future__ import annotations

import math

import numpy as np

from minivt import Tensor, Variable, arange, cat, stack
from minivt.models.config import Config


def frequencies(config: Config, context: int) -> tuple[np.ndarray, float]:
    """Radians a position for each pair, (rotary_dim / 2,) float64, and the factor on cosine and sine.

    dynamic: the base follows from `context`, so that all positions of a sequence share it.
    """
    dim, base, scaling = config.rotary_dim, config.rope_theta, dict(config.scaling)
    kind, factor = scaling.get("rope_type", "default"), scaling.get("factor")
    if kind == "dynamic":
        longest = max(context, config.context)
        base *= (factor * longest / config.context - (factor - 1)) ** (dim / (dim - 2))
    plain = base ** -(np.arange(0, dim, 2) / dim)
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "llama3":
        return llama3(plain, scaling), 1.0
    if kind == "yarn":
        return yarn(plain, config, scaling)
    return plain, 1.0


def llama3(plain: np.ndarray, scaling: dict) -> np.ndarray:
    """Long waves are stretched by the factor, short ones stay, and those between are blended."""
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)       # in the original context
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (kept + (1 - kept) / scaling["factor"])


def yarn(plain: np.ndarray, config: Config, scaling: dict) -> tuple[np.ndarray, float]:
    """Pairs that turn often in the original context stay, slow ones are stretched, a ramp lies between."""
    original = scaling["original_max_position_embeddings"]
    factor = scaling.get("factor") or config.context / original

    def pair(turns: float) -> float:
        """The place of the pair that turns so often."""
        return config.rotary_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config.rope_theta))

    low, high = pair(scaling.get("beta_fast") or 32), pair(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotary_dim - 1)
    high += 0.001 if high == low else 0
    stretched = np.clip((np.arange(len(plain)) - low) / (high - low), 0, 1)
    return plain * (1 - stretched) + plain / factor * stretched, attention_factor(scaling, factor)


def attention_factor(scaling: dict, factor: float) -> float:
    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]

    def grown(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1
    above, below = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return grown(above) / grown(below) if above and below else grown(1)


class Rotary:
    """Turns pairs of a head's elements by angles that grow with the position.

    The angles of every position are tabulated in float64, so no large sine is taken in float32.
    """

    def __init__(self, config: Config, context: int, positions: int):
        rates, factor = frequencies(config, context)
        angles = np.arange(positions)[:, None] * rates                                   # (positions, rotary_dim / 2)
        self.cos, self.sin = (Tensor((factor * f(angles)).astype(np.float32)) for f in (np.cos, np.sin))
        self.dim, self.adjacent = config.rotary_dim, config.adjacent

    def __call__(self, x: Tensor, starts: tuple[Variable, ...]) -> Tensor:
        """x: (batch, new tokens, heads, head_dim), row b at positions starts[b], starts[b] + 1, ..."""
        batch, tokens, heads, dim = x.shape
        half = self.dim // 2
        pair = (half, 2) if self.adjacent else (2, half)
        axis, table = (-1, (batch, tokens, 1, half, 1)) if self.adjacent else (-2, (batch, tokens, 1, 1, half))
        cos, sin = (stack([t[start:start + tokens] for start in starts]).reshape(*table) for t in (self.cos, self.sin))
        pairs = x[..., :self.dim].reshape(batch, tokens, heads, *pair)
        sign = (arange(2) * 2 - 1).cast(x.dtype)                                          # (a, b) -> (-b, a)
        sign = sign if self.adjacent else sign.reshape(2, 1)
        turned = (pairs * cos + pairs.flip(axis) * sign * sin).reshape(batch, tokens, heads, self.dim)
        return turned if self.dim == dim else cat([turned, x[..., self.dim:]], -1)
