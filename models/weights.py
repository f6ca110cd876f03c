"""Weights by the names of published checkpoints, each taken once and in the shape that the sizes ask.

For: GGUF files, whose own names are translated, and arrays by name.  Weights stay packed; products unpack them.
Not for: reading files (gguf.py).
"""
from __future__ import annotations

import re
from typing import Mapping

import numpy as np

from minivt import Tensor, nn
from minivt.errors import LoadError
from minivt.models.gguf import GGUF, GGUFTensor
from minivt.models.quantization import FORMATS, dequantise

PLAIN = tuple(name for name, row in FORMATS.items() if row.block == 1)
GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")


def gguf_name(name: str) -> str:
    """before: model.layers.3.self_attn.q_proj.weight    after: blk.3.attn_q.weight"""
    stem, _, kind = name.rpartition(".")
    layer = LAYER.fullmatch(stem)
    return f"blk.{layer[1]}.{GGUF_NAMES[layer[2]]}.{kind}" if layer else f"{GGUF_NAMES[stem]}.{kind}"


class Weights:
    """A model's tensors, taken one by one; every one must be asked for once, in the shape that the sizes ask.

    source: an open GGUF file, or NumPy arrays of float32 or float16 by name.
    """

    def __init__(self, source: GGUF | Mapping[str, np.ndarray]):
        if isinstance(source, GGUF):
            self.file, self.left, self.rename = source.path.name, dict(source.tensors), gguf_name
        else:
            self.file, self.rename = "weights", str
            self.left = {name: GGUFTensor(name, f"F{8 * array.dtype.itemsize}", array.shape, array)
                         for name, array in source.items()}

    def __contains__(self, name: str) -> bool:
        return self.rename(name) in self.left

    def take(self, name: str, shape: tuple[int, ...], formats: tuple[str, ...] = tuple(FORMATS)) -> GGUFTensor:
        """Errors: LoadError for a tensor missing, of wrong shape, or of wrong format."""
        name = self.rename(name)
        if name not in self.left:
            raise LoadError(f'{self.file}: tensor "{name}" is missing, shape {shape} is needed')
        tensor = self.left.pop(name)
        if tensor.shape != shape:
            raise LoadError(f'{self.file}: tensor "{name}" has shape {tensor.shape}, the metadata asks {shape}')
        if tensor.format not in formats:
            raise LoadError(f'{self.file}: tensor "{name}" has dtype {tensor.format}, '
                            f"allowed are {', '.join(formats)}")
        return tensor

    def vector(self, name: str, *shape: int) -> Tensor:
        """A small tensor that is stored as plain floats, as float32."""
        tensor = self.take(name, shape, PLAIN)
        return dequantise(Tensor(tensor.data), tensor.format)

    def set_aside(self, prefixes: tuple[str, ...]) -> None:
        """Accept tensors that generating text does not use."""
        self.left = {name: tensor for name, tensor in self.left.items() if not name.startswith(prefixes)}

    def finish(self) -> None:
        """Errors: LoadError where a tensor was not asked for."""
        if self.left:
            raise LoadError(f'{self.file}: tensor "{next(iter(self.left))}" is unaccounted for: '
                            "this architecture has none of this name")


class Linear:
    """y = x Wᵀ + b with W packed as in the file: (..., columns) float32 to (..., rows)."""

    def __init__(self, weights: Weights, name: str, rows: int, columns: int, bias: bool = False):
        tensor = weights.take(f"{name}.weight", (rows, columns))
        self.weight, self.format = Tensor(tensor.data), tensor.format
        self.bias = weights.vector(f"{name}.bias", rows) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        y = x @ dequantise(self.weight, self.format).T
        return y if self.bias is None else y + self.bias

    def rows(self, ids: Tensor) -> Tensor:
        """W[ids]: (...) integers to (..., columns) float32; reads these rows only."""
        return dequantise(self.weight[ids], self.format)


class Stack:
    """One matrix an expert, packed: (experts, rows, columns); an index reads the experts that it names."""

    def __init__(self, weights: Weights, name: str, count: int, rows: int, columns: int):
        tensor = weights.take(name, (count, rows, columns))
        self.weight, self.format = Tensor(tensor.data), tensor.format

    def __getitem__(self, experts: Tensor) -> Tensor:
        return dequantise(self.weight[experts], self.format)


def rms_norm(weights: Weights, name: str, width: int, eps: float, zero_centred: bool = False) -> nn.RMSNorm:
    """A norm whose stored weight is w, or w - 1 where it is zero-centred."""
    norm = nn.RMSNorm(width, eps)
    stored = weights.vector(f"{name}.weight", width)
    norm.weight = stored + 1 if zero_centred else stored
    return norm
