"""A random llama of two layers as a GGUF file, and the same decoder in plain NumPy, written another way.

The twin has no cache and no chunks, takes float64, rotates by complex numbers and loops over heads, so what it
shares with models/decoder.py is the definition only.  Not for: anything but tests.
"""
from __future__ import annotations

import numpy as np

from gguf_files import F32, Q4_1, Q8_0, gguf_bytes, numpy_q4_1, numpy_q8_0, random_q4_1, random_q8_0
from minivt.models.tokenizer import BYTE_OF_LETTER

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, CONTEXT, THETA, EPS = 2, 64, 4, 2, 16, 96, 300, 500.0, 0.03125
TOKENS = [*BYTE_OF_LETTER, "ab", "<|im_start|>", "<|im_end|>"]
VOCABULARY, END = len(TOKENS), len(TOKENS) - 1
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role[0] }} {{ m.content }}<|im_end|>{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>a {% endif %}")
METADATA = {
    "general.architecture": "llama", "general.name": "Tiny", "llama.block_count": LAYERS,
    "llama.embedding_length": WIDTH, "llama.feed_forward_length": HIDDEN, "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS, "llama.rope.dimension_count": HEAD_DIM,
    "llama.rope.freq_base": THETA, "llama.attention.layer_norm_rms_epsilon": EPS, "llama.context_length": CONTEXT,
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [1] * 257 + [3, 3], "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 257, "tokenizer.ggml.eos_token_id": END, "tokenizer.chat_template": TEMPLATE,
}
MATRICES = {"attn_q": (HEADS * HEAD_DIM, WIDTH), "attn_k": (KV_HEADS * HEAD_DIM, WIDTH),
            "attn_v": (KV_HEADS * HEAD_DIM, WIDTH), "attn_output": (WIDTH, HEADS * HEAD_DIM),
            "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}


class TinyLlama:
    """tensors: what goes into the file, name -> (type, logical shape, bytes); floats: what they mean, float64."""

    def __init__(self, seed: int = 0, tied: bool = True):
        self.rng, self.metadata, self.tensors, self.floats = np.random.default_rng(seed), dict(METADATA), {}, {}
        self.matrix("token_embd.weight", (VOCABULARY, WIDTH), Q8_0)
        for layer in range(LAYERS):
            for name, shape in MATRICES.items():
                self.matrix(f"blk.{layer}.{name}.weight", shape, Q4_1)
            for name in "attn_norm", "ffn_norm":
                self.vector(f"blk.{layer}.{name}.weight")
        self.vector("output_norm.weight")
        if not tied:
            self.matrix("output.weight", (VOCABULARY, WIDTH), Q4_1)

    def matrix(self, name, shape, kind):
        pack, unpack = {Q4_1: (random_q4_1, numpy_q4_1), Q8_0: (random_q8_0, numpy_q8_0)}[kind]
        packed = pack(self.rng, *shape)
        self.tensors[name] = (kind, shape, packed.tobytes())
        self.floats[name] = unpack(packed).astype(np.float64)

    def vector(self, name):
        values = self.rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)
        self.tensors[name] = (F32, (WIDTH,), values.tobytes())
        self.floats[name] = values.astype(np.float64)

    def save(self, path):
        path.write_bytes(gguf_bytes(self.metadata, self.tensors))
        return path

    def logits(self, ids) -> np.ndarray:
        """(tokens, vocabulary) float64, after each of the ids."""
        x = self.floats["token_embd.weight"][list(ids)]
        for layer in range(LAYERS):
            w = {name: self.floats[f"blk.{layer}.{name}.weight"] for name in [*MATRICES, "attn_norm", "ffn_norm"]}
            x = x + attention(norm(x, w["attn_norm"]), w)
            h = norm(x, w["ffn_norm"])
            gate = h @ w["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
        head = self.floats.get("output.weight", self.floats["token_embd.weight"])
        return norm(x, self.floats["output_norm.weight"]) @ head.T

    def greedy(self, ids, count) -> list[int]:
        ids = list(ids)
        for _ in range(count):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids[-count:]


def norm(x, weight):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + EPS) * weight


def rotate(x):
    """(tokens, head_dim): adjacent pairs as complex numbers, turned by position · theta^(-2i/head_dim)."""
    turns = np.arange(len(x))[:, None] * THETA ** (-np.arange(HEAD_DIM // 2) * 2 / HEAD_DIM)
    return np.ascontiguousarray((x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * turns)).view(np.float64)


def attention(x, w):
    heads = []
    for head in range(HEADS):
        own = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        shared = head // (HEADS // KV_HEADS)
        kv = slice(shared * HEAD_DIM, (shared + 1) * HEAD_DIM)
        q, k, v = rotate(x @ w["attn_q"][own].T), rotate(x @ w["attn_k"][kv].T), x @ w["attn_v"][kv].T
        scores = np.exp(q @ k.T / HEAD_DIM ** 0.5) * np.tri(len(x))
        heads.append(scores / scores.sum(-1, keepdims=True) @ v)
    return np.concatenate(heads, -1) @ w["attn_output"].T
