"""The llama decoder: RMSNorm, grouped-query attention with rotary positions, SwiGLU; one sequence, weights packed.

For: generating tokens from a GGUF file of architecture `llama`.  Not for: training, batches, or other families.
Source: Touvron et al. 2023 (LLaMA 2); tensor and metadata names, and rotary over adjacent pairs, from llama.cpp.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Iterable, Iterator, Sequence

import numpy as np

from minivt import Tensor, Variable, arange, einsum, jit, nn, where, zeros
from minivt.errors import BoundsError, LoadError
from minivt.models.gguf import GGUF, GGUFTensor
from minivt.models.quantization import FORMATS, dequantise

# New tokens per program: each size compiles once.  A prompt runs in the largest that it fills, its rest padded.
CHUNKS = (1, 16, 128)
MATRIX, VECTOR = tuple(FORMATS), ("F32",)       # formats allowed for weights of two axes and of one


@dataclass(frozen=True)
class Config:
    """Sizes and constants of a decoder; `context` is the longest sequence it was trained for."""

    vocabulary: int
    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    rope_theta: float
    eps: float

    @classmethod
    def from_gguf(cls, file: GGUF) -> Config:
        """Errors: LoadError for another architecture, a key that is missing, or sizes that do not fit together."""
        architecture = file.field("general.architecture", str)
        if architecture != "llama":
            raise LoadError(f'{file.path.name}: architecture "{architecture}" is not supported, "llama" is')
        width, heads = positive(file, "llama.embedding_length"), positive(file, "llama.attention.head_count")
        kv_heads = positive(file, "llama.attention.head_count_kv", heads)
        head_dim = positive(file, "llama.attention.key_length", width // heads)
        refuse_unless(file, "llama.attention.head_count", width % heads == 0, f"must divide the width {width}")
        refuse_unless(file, "llama.attention.head_count_kv", heads % kv_heads == 0, f"must divide the {heads} heads")
        rotary = positive(file, "llama.rope.dimension_count", head_dim)
        refuse_unless(file, "llama.rope.dimension_count", rotary == head_dim and head_dim % 2 == 0,
                      f"must be the head size {head_dim}, and even")
        scaling = file.field("llama.rope.scaling.type", str, "none")
        refuse_unless(file, "llama.rope.scaling.type", scaling == "none", 'only "none" is supported')
        return cls(
            vocabulary=len(file.field("tokenizer.ggml.tokens", list)), width=width,
            hidden=positive(file, "llama.feed_forward_length"), layers=positive(file, "llama.block_count"),
            heads=heads, kv_heads=kv_heads, head_dim=head_dim, context=positive(file, "llama.context_length"),
            rope_theta=file.field("llama.rope.freq_base", float, 10000.0),
            eps=file.field("llama.attention.layer_norm_rms_epsilon", float))

    def cache_bytes(self, context: int) -> int:
        """Bytes of float32 keys and values for sequences of `context` tokens."""
        return 2 * 4 * self.layers * self.kv_heads * self.head_dim * capacity(context)


def positive(file: GGUF, key: str, default: int | None = None) -> int:
    value = file.field(key, int, default)
    if value < 1:
        raise LoadError(f'{file.path.name}: metadata "{key}" is {value}, at least 1 is needed')
    return value


def refuse_unless(file: GGUF, key: str, holds: bool, rule: str) -> None:
    if not holds:
        raise LoadError(f'{file.path.name}: metadata "{key}" is {file.metadata.get(key)!r}, {rule}')


def capacity(context: int) -> int:
    """Rows of the cache: the context, and room for the padding of a last chunk."""
    return context + max(CHUNKS) - 1


class Weights:
    """A file's tensors, taken one by one; every one must be asked for once, in the shape that the sizes ask."""

    def __init__(self, file: GGUF):
        self.file, self.left = file, dict(file.tensors)

    def take(self, name: str, shape: tuple[int, ...], formats: tuple[str, ...]) -> GGUFTensor:
        """Errors: LoadError for a tensor missing, of wrong shape, or of wrong format."""
        if name not in self.left:
            raise LoadError(f'{self.file.path.name}: tensor "{name}" is missing, shape {shape} is needed')
        tensor = self.left.pop(name)
        if tensor.shape != shape:
            raise LoadError(f'{self.file.path.name}: tensor "{name}" has shape {tensor.shape}, '
                            f"the metadata asks {shape}")
        if tensor.format not in formats:
            raise LoadError(f'{self.file.path.name}: tensor "{name}" has dtype {tensor.format}, '
                            f"allowed are {', '.join(formats)}")
        return tensor

    def finish(self) -> None:
        """Errors: LoadError where a tensor was not asked for."""
        if self.left:
            raise LoadError(f'{self.file.path.name}: tensor "{next(iter(self.left))}" is unaccounted for: '
                            "a llama decoder has none of this name")


class Linear:
    """y = x Wᵀ with W packed as in the file: (..., columns) float32 to (..., rows)."""

    def __init__(self, weights: Weights, name: str, rows: int, columns: int):
        tensor = weights.take(name, (rows, columns), MATRIX)
        self.weight, self.format = Tensor(tensor.data), tensor.format

    def __call__(self, x: Tensor) -> Tensor:
        return x @ dequantise(self.weight, self.format).T

    def rows(self, ids: Tensor) -> Tensor:
        """W[ids]: (tokens,) integers to (tokens, columns) float32; reads these rows only."""
        return dequantise(self.weight[ids], self.format)


def rms_norm(weights: Weights, name: str, config: Config) -> nn.RMSNorm:
    norm = nn.RMSNorm(config.width, config.eps)
    norm.weight = Tensor(weights.take(name, (config.width,), VECTOR).data)
    return norm


class Rotary:
    """Turns adjacent pairs of a head's elements by angles that grow with the position (Su et al. 2021).

    The angles of every position are tabulated in float64, so no large sine is taken in float32.
    """

    def __init__(self, config: Config, positions: int):
        exponent = np.arange(0, config.head_dim, 2) / config.head_dim
        angles = np.arange(positions)[:, None] * config.rope_theta ** -exponent          # (positions, head_dim / 2)
        self.cos, self.sin = (Tensor(f(angles).astype(np.float32)) for f in (np.cos, np.sin))

    def __call__(self, x: Tensor, start: Variable) -> Tensor:
        tokens, heads, dim = x.shape                                          # (new tokens, heads, head_dim)
        cos, sin = (table[start:start + tokens].reshape(tokens, 1, dim // 2, 1) for table in (self.cos, self.sin))
        pairs = x.reshape(tokens, heads, dim // 2, 2)
        sign = (arange(2) * 2 - 1).cast(x.dtype)                              # (a, b) -> (-b, a)
        return (pairs * cos + pairs.flip(-1) * sign * sin).reshape(tokens, heads, dim)


class KVCache:
    """Keys and values of one layer for the positions so far: (kv_heads, positions, head_dim) each."""

    def __init__(self, config: Config, context: int):
        shape = config.kv_heads, capacity(context), config.head_dim
        self.keys, self.values = zeros(shape), zeros(shape)

    def append(self, k: Tensor, v: Tensor, start: Variable) -> tuple[Tensor, Tensor]:
        """Store k and v, (new tokens, kv_heads, head_dim), from position `start` on; all up to the last new one."""
        end = start + k.shape[0]
        self.keys[:, start:end] = k.transpose(0, 1)
        self.values[:, start:end] = v.transpose(0, 1)
        return self.keys[:, :end], self.values[:, :end]


class Attention:
    """Grouped-query attention over the cache (Ainslie et al. 2023)."""

    def __init__(self, weights: Weights, block: str, config: Config, rotary: Rotary, context: int):
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        wide, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.wq = Linear(weights, f"{block}.attn_q.weight", wide, config.width)
        self.wk = Linear(weights, f"{block}.attn_k.weight", narrow, config.width)
        self.wv = Linear(weights, f"{block}.attn_v.weight", narrow, config.width)
        self.wo = Linear(weights, f"{block}.attn_output.weight", config.width, wide)
        self.rotary, self.cache = rotary, KVCache(config, context)

    def __call__(self, x: Tensor, start: Variable) -> Tensor:
        T, G, D = x.shape[0], self.kv_heads, self.head_dim
        q = self.rotary(self.wq(x).reshape(T, self.heads, D), start)
        k = self.rotary(self.wk(x).reshape(T, G, D), start)
        k, v = self.cache.append(k, self.wv(x).reshape(T, G, D), start)       # (kv_heads, positions, head_dim)
        q = q.reshape(T, G, self.heads // G, D)                               # (new tokens, kv_heads, group, head_dim)
        scores = einsum("tgrd,gsd->grts", q, k) * D ** -0.5
        visible = arange(k.shape[1]) <= start + arange(T)[:, None]            # (new tokens, positions): causal
        probs = where(visible, scores, -math.inf).softmax(-1)
        return self.wo(einsum("grts,gsd->tgrd", probs, v).reshape(T, self.heads * D))


class FeedForward:
    """SwiGLU: (silu(x Wgᵀ) · x Wuᵀ) Wdᵀ (Shazeer 2020)."""

    def __init__(self, weights: Weights, block: str, config: Config):
        self.gate = Linear(weights, f"{block}.ffn_gate.weight", config.hidden, config.width)
        self.up = Linear(weights, f"{block}.ffn_up.weight", config.hidden, config.width)
        self.down = Linear(weights, f"{block}.ffn_down.weight", config.width, config.hidden)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.gate(x).silu() * self.up(x))


class Block:
    """One layer: x + attention(norm x), then x + feed-forward(norm x)."""

    def __init__(self, weights: Weights, number: int, config: Config, rotary: Rotary, context: int):
        name = f"blk.{number}"
        self.attention_norm = rms_norm(weights, f"{name}.attn_norm.weight", config)
        self.attention = Attention(weights, name, config, rotary, context)
        self.feed_forward_norm = rms_norm(weights, f"{name}.ffn_norm.weight", config)
        self.feed_forward = FeedForward(weights, name, config)

    def __call__(self, x: Tensor, start: Variable) -> Tensor:
        x = x + self.attention(self.attention_norm(x), start)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder:
    """A llama decoder with its cache.

    context: the longest sequence, prompt and answer together; at most what the model was trained for.
    progress: wraps the sequence of layers while they load, for a progress bar.
    Errors: LoadError where file and architecture disagree; BoundsError for the context.
    """

    def __init__(self, file: GGUF, context: int, progress: Callable[[Iterable], Iterable] = iter):
        self.config = config = Config.from_gguf(file)
        check_context(context, config)
        self.context = context
        weights, rotary = Weights(file), Rotary(config, capacity(context))
        self.embedding = Linear(weights, "token_embd.weight", config.vocabulary, config.width)
        self.blocks = [Block(weights, number, config, rotary, context) for number in progress(range(config.layers))]
        self.norm = rms_norm(weights, "output_norm.weight", config)
        tied = "output.weight" not in file.tensors
        self.head = self.embedding if tied else Linear(weights, "output.weight", config.vocabulary, config.width)
        weights.finish()
        self.cached: list[int] = []                                           # the tokens whose keys are in the cache
        self.compiling: Callable[[int, int], None] | None = None              # told of kernels done and of all
        self.programs = {size: jit(self.forward, self._compiled) for size in CHUNKS}

    def forward(self, tokens: Tensor, start: Variable, last: Variable) -> Tensor:
        """Logits after one of the new tokens, while all of them enter the cache.

        tokens: (new tokens,) int32 at positions start, start + 1, ...; last: which of them to answer for.
        Returns (1, vocabulary) float32.
        """
        x = self.embedding.rows(tokens)                                       # (new tokens, width)
        for block in self.blocks:
            x = block(x, start)
        return self.head(self.norm(x[last:last + 1]))

    def _compiled(self, done: int, total: int) -> None:
        if self.compiling is not None:
            self.compiling(done, total)

    def compile(self, size: int) -> None:
        """Build the program for chunks of `size` tokens ahead of its first use; `compiling` hears of its kernels."""
        self.cached.clear()                                                   # it writes to the cache
        self.run([0] * size, 0, size)

    def run(self, tokens: Sequence[int], start: int, size: int) -> np.ndarray:
        """Logits, (vocabulary,) float32, after the last of at most `size` tokens from position `start` on.

        Rows of padding write past the last token, where nothing reads before a later token is written there.
        """
        padded = np.zeros(size, np.int32)
        padded[:len(tokens)] = tokens
        position = Variable("start", 0, self.context - 1).bind(start)
        last = Variable("last", 0, size - 1).bind(len(tokens) - 1)
        return self.programs[size](Tensor(padded), position, last).numpy()[0]

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits, (vocabulary,) float32, for what follows `tokens`; what the cache already begins with is not rerun.

        Errors: BoundsError for no tokens, more than the context, or ids outside the vocabulary.
        """
        self.check(tokens)
        known = min(common_prefix(self.cached, tokens), len(tokens) - 1)
        del self.cached[known:]                                               # true also if we are interrupted
        for size in chunk_sizes(len(tokens) - known):
            new = tokens[len(self.cached):len(self.cached) + size]
            logits = self.run(new, len(self.cached), size)
            self.cached.extend(new)
        return logits

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
    if not 1 <= context <= config.context:
        raise BoundsError(f"context: {context} tokens were asked for, the model allows 1 to {config.context}")


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
