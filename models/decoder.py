"""Decoders of the llama and Qwen families: norms, attention or a gated delta rule, SwiGLU or a mixture of experts.

For: generating tokens with llama, mistral, qwen2, qwen3, qwen3_moe, qwen3_next, qwen3_5 and qwen3_5_moe (text), from
a GGUF file or from arrays by the names of published checkpoints.  What tells them apart is in config.py; the parts are
in attention.py, rotary.py, moe.py and gated_delta.py.  Not for: training, nor for images.
Source: Touvron et al. 2023 (LLaMA 2), Jiang et al. 2023 (Mistral), the Qwen2, Qwen3 and Qwen3-Next reports.
"""
from __future__ import annotations

from typing import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from minivt import Tensor, Variable, cat, jit
from minivt.errors import BoundsError
from minivt.models.attention import CHUNKS, Attention, KVCache, Rows, capacity
from minivt.models.config import LINEAR, Config
from minivt.models.gated_delta import GatedDelta
from minivt.models.gguf import GGUF
from minivt.models.moe import Mixture
from minivt.models.rotary import Rotary
from minivt.models.weights import Linear, Weights, rms_norm


class FeedForward:
    """SwiGLU: (silu(x Wgᵀ) · x Wuᵀ) Wdᵀ (Shazeer 2020)."""

    def __init__(self, weights: Weights, name: str, width: int, hidden: int):
        self.gate = Linear(weights, f"{name}.gate_proj", hidden, width)
        self.up = Linear(weights, f"{name}.up_proj", hidden, width)
        self.down = Linear(weights, f"{name}.down_proj", width, hidden)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.gate(x).silu() * self.up(x))


class Block:
    """One layer: x + mix(norm x), then x + feed-forward(norm x)."""

    def __init__(self, weights: Weights, number: int, config: Config, rotary: Rotary, context: int, batch: int,
                 cache: str):
        name, width = f"model.layers.{number}", config.width
        self.attention_norm = rms_norm(weights, f"{name}.input_layernorm", width, config.eps, config.zero_centred)
        if config.kinds[number] == LINEAR:
            self.attention = GatedDelta(weights, f"{name}.linear_attn", config, batch)
        else:
            self.attention = Attention(weights, name, number, config, rotary, KVCache(config, context, batch, cache))
        self.feed_forward_norm = rms_norm(weights, f"{name}.post_attention_layernorm", width, config.eps,
                                          config.zero_centred)
        if config.sparse[number]:
            shared = config.experts.shared
            self.feed_forward = Mixture(weights, f"{name}.mlp", width, config.experts, shared and FeedForward(
                weights, f"{name}.mlp.shared_expert", width, shared))
        else:
            self.feed_forward = FeedForward(weights, f"{name}.mlp", width, config.hidden)

    def __call__(self, x: Tensor, rows: Rows) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rows)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder:
    """A decoder with its cache, for one sequence or a batch of them.

    source: an open GGUF file, or arrays by name, which need a config.
    context: the longest sequence, prompt and answer together; at most what the model was trained for.
    progress: wraps the sequence of layers while they load, for a progress bar.  batch: sequences side by side.
    cache: dtype of keys and values.  Recurrent state is float32: it is small, and rounding it would add up.
    Errors: LoadError where weights and architecture disagree; BoundsError for the context.
    """

    def __init__(self, source: GGUF | Mapping[str, np.ndarray], context: int,
                 progress: Callable[[Iterable], Iterable] = iter, *, config: Config | None = None, batch: int = 1,
                 cache: str = "float16"):
        self.config = config = config or Config.from_gguf(source)
        check_context(context, config)
        self.context, self.batch = context, batch
        weights, rotary = Weights(source), Rotary(config, context, capacity(context))
        self.embedding = Linear(weights, "model.embed_tokens", config.vocabulary, config.width)
        self.blocks = [Block(weights, number, config, rotary, context, batch, cache)
                       for number in progress(range(config.layers))]
        self.norm = rms_norm(weights, "model.norm", config.width, config.eps, config.zero_centred)
        self.head = self.embedding if config.tied else Linear(weights, "lm_head", config.vocabulary, config.width)
        weights.set_aside((*config.extras, "lm_head.") if config.tied else config.extras)
        weights.finish()
        self.cached: list[list[int]] = [[] for _ in range(batch)]             # the tokens that the state has seen
        self.compiling: Callable[[int, int], None] | None = None              # told of kernels done and of all
        self.programs = {size: jit(self.forward, self._compiled) for size in CHUNKS}

    def forward(self, tokens: Tensor, starts: tuple, counts: tuple, last: tuple, reach: Variable) -> Tensor:
        """Logits after the last new token of each row, while all of them enter the cache.

        tokens: (batch, new tokens) int32, row b at positions starts[b], starts[b] + 1, ...; counts, last, reach: as in
        Rows.  Returns (batch, vocabulary) float32.
        """
        rows = Rows(starts, counts, last, reach)
        x = self.embedding.rows(tokens)                                       # (batch, new tokens, width)
        for block in self.blocks:
            x = block(x, rows)
        ends = [x[row, end:end + 1] for row, end in enumerate(last)]          # (1, width) each
        return self.head(self.norm(cat(ends) if len(ends) > 1 else ends[0]))

    def _compiled(self, done: int, total: int) -> None:
        if self.compiling is not None:
            self.compiling(done, total)

    def forget(self) -> None:
        """Begin every row anew."""
        self.cached = [[] for _ in range(self.batch)]

    def compile(self, size: int) -> None:
        """Build the program for chunks of `size` tokens ahead of its first use; `compiling` hears of its kernels."""
        self.forget()                                                         # it writes to the cache
        self.run([[0] * size] * self.batch, size)

    def run(self, new: Sequence[Sequence[int]], size: int) -> np.ndarray:
        """Logits, (batch, vocabulary) float32, after the last of at most `size` new tokens of each row.

        A row without new tokens keeps its state and its logits mean nothing.  Rows of padding write past the last
        token, where nothing reads before a later token is written there.
        """
        padded = np.zeros((self.batch, size), np.int32)
        for row, tokens in enumerate(new):
            padded[row, :len(tokens)] = tokens
        known = [len(tokens) for tokens in self.cached]
        starts = tuple(Variable(f"start{row}", 0, self.context).bind(n) for row, n in enumerate(known))
        counts = tuple(Variable(f"count{row}", 0, size).bind(len(tokens)) for row, tokens in enumerate(new))
        last = tuple(Variable(f"last{row}", 0, size - 1).bind(max(len(tokens) - 1, 0))
                     for row, tokens in enumerate(new))
        reach = starts[0] if self.batch == 1 else Variable("reach", 0, self.context).bind(max(known))
        return self.programs[size](Tensor(padded), starts, counts, last, reach).numpy()

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits, (vocabulary,) float32, for what follows `tokens` in a decoder of one row; see next_logits."""
        return self.next_logits({0: tokens})[0]

    def next_logits(self, rows: Mapping[int, Sequence[int]]) -> dict[int, np.ndarray]:
        """Logits, (vocabulary,) float32, for what follows the tokens of each row named; other rows wait.

        What the state of a row already begins with is not rerun.
        Errors: BoundsError for a row outside the batch, no tokens, more than the context, ids outside the vocabulary.
        """
        for row, tokens in rows.items():
            if not 0 <= row < self.batch:
                raise BoundsError(f"rows: row {row} came, the decoder has rows 0 to {self.batch - 1}")
            self.check(tokens)
        for row, tokens in rows.items():
            del self.cached[row][self._known(row, tokens):]                   # true also if we are interrupted
        answers: dict[int, np.ndarray] = {}
        while len(answers) < len(rows):
            left = {row: tokens[len(self.cached[row]):] for row, tokens in rows.items()}
            size = chunk_sizes(max(map(len, left.values())))[0]
            new = [left.get(row, [])[:size] for row in range(self.batch)]
            logits = self.run(new, size)
            for row, tokens in enumerate(new):
                self.cached[row].extend(tokens)
                if row in rows and len(tokens) == len(left[row]) and row not in answers:
                    answers[row] = logits[row]
        return answers

    def _known(self, row: int, tokens: Sequence[int]) -> int:
        """How many tokens need no rerun; a recurrent state cannot go back, so it begins anew."""
        seen = len(self.cached[row])
        known = min(common_prefix(self.cached[row], tokens), len(tokens) - 1)
        return 0 if LINEAR in self.config.kinds and known < seen else known

    def check(self, tokens: Sequence[int]) -> None:
        if not 1 <= len(tokens) <= self.context:
            raise BoundsError(f"tokens: {len(tokens)} came, the context allows 1 to {self.context}")
        if not 0 <= min(tokens) <= max(tokens) < self.config.vocabulary:
            raise BoundsError(f"tokens: ids from {min(tokens)} to {max(tokens)} came, "
                              f"the vocabulary has {self.config.vocabulary}")

    def generate(self, prompt: Sequence[int], choose: Callable[[np.ndarray], int], max_tokens: int,
                 stop: frozenset[int] = frozenset()) -> Iterator[int]:
        """Ids of the answer as they come, without the stop token that ends it.

        choose: (vocabulary,) logits to an id, such as a sampling.Sampler.
        The answer also ends after max_tokens, or where the context is full.
        Errors: BoundsError as in `logits`.
        """
        tokens = list(prompt)
        for _ in range(max_tokens):
            id = choose(self.logits(tokens))
            if id in stop:
                return
            yield id
            if len(tokens) == self.context:
                return
            tokens.append(id)


def check_context(context: int, config: Config) -> None:
    if not 1 <= context <= config.longest:
        raise BoundsError(f"context: {context} tokens were asked for, the model allows 1 to {config.longest}")


def chunk_sizes(count: int) -> list[int]:
    """Program sizes that cover `count` tokens in order; only the last may be padded.

    before:  37
    after:   16, 16, 16 (5 tokens and 11 rows of padding)
    """
    sizes = []
    while count > 0:
        full = [size for size in CHUNKS if size <= count and size > 1]
        sizes.append(max(full) if full else min(size for size in CHUNKS if size >= count))
        count -= sizes[-1]
    return sizes


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading elements are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
