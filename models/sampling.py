"""Choosing the next token from one row of logits: greedy, or at random within temperature, top-k and top-p.

For: one sequence, on the host, in NumPy, repeatable by seed.  Not for: beam search, batches, penalties.
"""
from __future__ import annotations

import math

import numpy as np


class Sampler:
    """Picks token ids.  The filters apply in this order: temperature, top-k, top-p.

    temperature: 0 takes the largest logit always; above 0, logits are divided by it.
    top_k: keep this many of the most probable tokens; 0 keeps all.
    top_p: of those keep the fewest whose probabilities reach this share, at least one; 1 keeps all.
    seed: of the random numbers; None draws a fresh one.
    Among equal logits the lower id comes first.  A NaN counts as minus infinity.
    Errors: ValueError for a parameter outside its range.
    """

    def __init__(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None):
        if not (math.isfinite(temperature) and temperature >= 0):
            raise ValueError(f"temperature is {temperature}, allowed are 0 (greedy) and above")
        if top_k < 0:
            raise ValueError(f"top_k is {top_k}, allowed are 0 (all) and above")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p is {top_p}, allowed are values above 0 and up to 1 (all)")
        if seed is not None and seed < 0:
            raise ValueError(f"seed is {seed}, allowed are 0 and above")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.rng = np.random.default_rng(seed)

    def __call__(self, logits: np.ndarray) -> int:
        """The id of the next token.

        logits: (vocabulary,) floats.  Errors: ValueError where no logit is above minus infinity.
        """
        logits = np.asarray(logits, np.float64)
        logits = np.where(np.isnan(logits), -np.inf, logits)
        best = int(logits.argmax())
        if logits[best] == -np.inf:
            raise ValueError(f"logits: none of the {len(logits)} is a number above minus infinity")
        if self.temperature == 0:
            return best
        return self.draw(*self.candidates(logits))

    def candidates(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids in falling order of probability and their weights, after all filters; weights need not sum to 1."""
        ids = largest_first(logits, self.top_k or len(logits))
        weights = exponentials(logits[ids], self.temperature)
        if self.top_p == 1:
            return ids, weights
        reached = np.cumsum(weights)
        kept = 1 + np.count_nonzero(reached[:-1] < self.top_p * reached[-1])   # the one that reaches it stays
        return ids[:kept], weights[:kept]

    def draw(self, ids: np.ndarray, weights: np.ndarray) -> int:
        cumulative = np.cumsum(weights)
        # random() is at most 1 - 2**-53, so the product stays below the total and a weight of 0 is never met
        return int(ids[np.searchsorted(cumulative, self.rng.random() * cumulative[-1], side="right")])


def largest_first(logits: np.ndarray, count: int) -> np.ndarray:
    """Ids of the `count` largest logits, falling, the lower id first among equals; all where there are fewer."""
    if count >= len(logits):
        return np.argsort(-logits, kind="stable")
    bound = np.partition(logits, len(logits) - count)[len(logits) - count]
    ids = np.flatnonzero(logits >= bound)                          # `count` and whatever ties with the last
    return ids[np.argsort(-logits[ids], kind="stable")][:count]


def exponentials(logits: np.ndarray, temperature: float) -> np.ndarray:
    """exp(logits / temperature) in float64 up to a common factor; several +inf share everything equally."""
    largest = logits.max()
    if largest == np.inf:
        return (logits == np.inf).astype(np.float64)
    with np.errstate(over="ignore"):                               # a tiny temperature: minus infinity is right
        return np.exp((logits - largest) / temperature)
