"""Grouped-query attention over a cache of keys and values, and the rows that a program works on.

For: full and sliding attention of every architecture of decoder.py.  Not for: linear attention (gated_delta.py).
"""
from __future__ import annotations

import math
from dataclasses import dataclass

from minivt import Tensor, Variable, arange, einsum, stack, where, zeros
from minivt.models.config import SLIDING, Config
from minivt.models.rotary import Rotary
from minivt.models.weights import Linear, Weights, rms_norm

# New tokens per program: each size compiles once.  A prompt runs in the largest that it fills, its rest padded.
CHUNKS = (1, 16, 128)


def capacity(context: int) -> int:
    """Rows of the cache: the context, and room for the padding of a last chunk."""
    return context + max(CHUNKS)


@dataclass(frozen=True)
class Rows:
    """Where the rows of a batch stand: row b brings counts[b] new tokens from position starts[b] on, the rest of its
    new tokens is padding; last[b] is its last token's place; reach bounds every start."""

    starts: tuple[Variable, ...]
    counts: tuple[Variable, ...]
    last: tuple[Variable, ...]
    reach: Variable

    def positions(self, tokens: int) -> Tensor:
        """(batch, new tokens)"""
        return stack([start + arange(tokens) for start in self.starts])

    def valid(self, tokens: int) -> Tensor:
        """(batch, new tokens) bool: no padding"""
        return stack([arange(tokens) < count for count in self.counts])


class KVCache:
    """Keys and values of one layer for the positions so far: (batch, kv_heads, positions, head_dim) each."""

    def __init__(self, config: Config, context: int, batch: int, dtype: str):
        shape = batch, config.kv_heads, capacity(context), config.head_dim
        self.keys, self.values = zeros(shape, dtype=dtype), zeros(shape, dtype=dtype)

    def append(self, k: Tensor, v: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Store k and v, (batch, new tokens, kv_heads, head_dim), each row from its start on; all up to the reach."""
        tokens = k.shape[1]
        for row, start in enumerate(rows.starts):
            self.keys[row, :, start:start + tokens] = k[row].transpose(0, 1)
            self.values[row, :, start:start + tokens] = v[row].transpose(0, 1)
        end = rows.reach + tokens
        return tuple(cache[:, :, :end].cast("float32") for cache in (self.keys, self.values))


class Attention:
    """Grouped-query attention over the cache (Ainslie et al. 2023); with a norm on each head of q and k (Qwen3), a
    window (Mistral), or a gate on the output (Qwen3-Next) where the architecture has them."""

    def __init__(self, weights: Weights, layer: str, number: int, config: Config, rotary: Rotary, cache: KVCache):
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.window = config.window if config.kinds[number] == SLIDING else 0
        self.gated, self.rotary, self.cache = config.gated, rotary, cache
        wide, narrow, bias = config.heads * config.head_dim, config.kv_heads * config.head_dim, config.qkv_bias
        name = f"{layer}.self_attn"
        self.wq = Linear(weights, f"{name}.q_proj", wide * (2 if config.gated else 1), config.width, bias)
        self.wk = Linear(weights, f"{name}.k_proj", narrow, config.width, bias)
        self.wv = Linear(weights, f"{name}.v_proj", narrow, config.width, bias)
        self.wo = Linear(weights, f"{name}.o_proj", config.width, wide, config.output_bias)
        self.q_norm = self.k_norm = None
        if config.qk_norm:
            self.q_norm, self.k_norm = (rms_norm(weights, f"{name}.{one}", config.head_dim, config.eps,
                                                 config.zero_centred) for one in ("q_norm", "k_norm"))

    def __call__(self, x: Tensor, rows: Rows) -> Tensor:
        B, T, _ = x.shape                                                     # (batch, new tokens, width)
        G, D = self.kv_heads, self.head_dim
        q = self.wq(x).reshape(B, T, self.heads, -1)                          # with a gate: (..., 2 * head_dim)
        q, gate = q[..., :D], q[..., D:]
        k, v = (w(x).reshape(B, T, G, D) for w in (self.wk, self.wv))
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = self.rotary(q, rows.starts), self.rotary(k, rows.starts)
        k, v = self.cache.append(k, v, rows)                                  # (batch, kv_heads, positions, head_dim)
        q = q.reshape(B, T, G, self.heads // G, D)                            # (batch, tokens, kv_heads, group, D)
        scores = einsum("btgrd,bgsd->bgrts", q, k) * D ** -0.5
        place, key = rows.positions(T)[:, None, None, :, None], arange(k.shape[2])
        visible = key <= place                                                # (batch, 1, 1, tokens, positions): causal
        if self.window:
            visible = visible & (place < key + self.window)
        probs = where(visible, scores, -math.inf).softmax(-1)
        mixed = einsum("bgrts,bgsd->btgrd", probs, v).reshape(B, T, self.heads * D)
        return self.wo(mixed * gate.reshape(B, T, self.heads * D).sigmoid() if self.gated else mixed)
