"""A mixture of experts: a router chooses k experts a token, and only the chosen ones are read.

For: the softmax router of the Qwen family (Qwen3 technical report), with or without a shared expert.  With few tokens
each (token, expert) pair is a product of its own; with many, pairs of one expert are gathered into blocks of rows, so
that an expert's weights are read once a block.  Not for: where weights lie (weights.py).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from minivt import Tensor, arange, einsum, where
from minivt.models.config import Experts
from minivt.models.weights import Linear, Stack, Weights

BLOCK = 8                              # rows of one expert that share a reading of its weights


def choose(scores: Tensor, k: int) -> Tensor:
    """The places of the k largest of each row, largest first, the lower place first among equals.

    scores: (rows, n) float32 to (rows, k) int64.  A place's rank is the number of scores that come before it.
    """
    n = scores.shape[-1]
    a, b, place = scores[:, :, None], scores[:, None, :], arange(n)
    before = (b > a) | ((b == a) & (place < place[:, None]))               # (rows, n, n): b comes before a
    rank = before.cast("int64").sum(-1)                                    # (rows, n)
    return where(rank[:, None, :] == arange(k)[:, None], place, 0).sum(-1)


@dataclass(frozen=True)
class Plan:
    """Which rows each block works on: rows (blocks, size) places in x, past the end for none; expert (blocks,), past
    the end for a block without rows; slots (tokens, k): where each pair's result stands."""

    rows: Tensor
    expert: Tensor
    slots: Tensor


def single(chosen: Tensor) -> Plan:
    """Every (token, expert) pair is a block of one row."""
    tokens, k = chosen.shape
    pair = arange(tokens * k)
    return Plan((pair // k).reshape(tokens * k, 1), chosen.reshape(tokens * k), pair.reshape(tokens, k))


def grouped(chosen: Tensor, count: int, size: int) -> Plan:
    """Pairs sorted by expert, in order of tokens, each expert's padded to whole blocks of `size` rows.

    A histogram of experts, a prefix sum over their blocks, and each pair's rank among those of its expert.
    """
    tokens, k = chosen.shape
    pairs, expert, number = tokens * k, chosen.reshape(tokens * k), arange(tokens * k)
    used = min(count, pairs)
    blocks = (pairs + used * (size - 1)) // size                           # the most that can be needed
    of_expert = (expert == arange(count)[:, None]).cast("int64")           # (experts, pairs)
    whole = (of_expert.sum(-1) + (size - 1)) // size                       # blocks of each expert
    through = where(arange(count) <= arange(count)[:, None], whole, 0).sum(-1)
    same = (expert == expert[:, None]) & (number < number[:, None])
    slot = (through - whole)[expert] * size + same.cast("int64").sum(-1)   # (pairs,)
    taken = slot == arange(blocks * size)[:, None]                         # (slots, pairs)
    rows = where(taken, number // k - tokens, 0).sum(-1) + tokens
    owner = (through <= arange(blocks)[:, None]).cast("int64").sum(-1)     # experts that end before each block
    return Plan(rows.reshape(blocks, size), owner, slot.reshape(tokens, k))


class Mixture:
    """sum over the chosen of p · expert(x), and sigmoid(x · g) · shared(x) where there is a shared expert."""

    def __init__(self, weights: Weights, name: str, width: int, sizes: Experts, shared: Callable | None):
        self.sizes, hidden = sizes, sizes.hidden
        self.router = Linear(weights, f"{name}.gate", sizes.count, width)
        self.gate_up = Stack(weights, f"{name}.experts.gate_up_proj", sizes.count, 2 * hidden, width)
        self.down = Stack(weights, f"{name}.experts.down_proj", sizes.count, width, hidden)
        self.shared = shared or None
        self.shared_gate = Linear(weights, f"{name}.shared_expert_gate", 1, width) if shared else None

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.reshape(x.shape[0] * x.shape[1], x.shape[2])              # (tokens, width)
        probs = self.router(flat).softmax(-1)                              # (tokens, experts)
        chosen = choose(probs, self.sizes.chosen)                          # (tokens, k)
        share = where(chosen[:, :, None] == arange(self.sizes.count), probs[:, None, :], 0.0).sum(-1)
        if self.sizes.renormalise:
            share = share / share.sum(-1, keepdims=True)
        y = self.experts(flat, chosen.contiguous(), share).reshape(*x.shape)
        return y if self.shared is None else y + self.shared_gate(x).sigmoid() * self.shared(x)

    def experts(self, x: Tensor, chosen: Tensor, share: Tensor) -> Tensor:
        """x: (tokens, width); chosen, share: (tokens, k)."""
        tokens, width = x.shape
        few = tokens * self.sizes.chosen <= self.sizes.count or tokens == 1
        plan = single(chosen) if few else grouped(chosen, self.sizes.count, BLOCK)
        rows = x[plan.rows]                                                # (blocks, size, width)
        hidden = einsum("brd,bfd->brf", rows, self.gate_up[plan.expert])
        half = self.sizes.hidden
        hidden = hidden[..., :half].silu() * hidden[..., half:]
        y = einsum("brf,bdf->brd", hidden, self.down[plan.expert])         # (blocks, size, width)
        y = y.reshape(y.shape[0] * y.shape[1], width).contiguous()
        return (y[plan.slots] * share[:, :, None]).sum(1)
