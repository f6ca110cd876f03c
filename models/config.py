"""Config: the sizes and constants that tell the decoders of the llama and Qwen families apart.

For: reading them from a GGUF header or from the config.json of a published model, and refusing what is not supported.
Not for: weights (weights.py).  Source of the keys: llama.cpp for GGUF, transformers for config.json.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from minivt.errors import LoadError
from minivt.models.gguf import GGUF

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
SCALINGS = ("default", "linear", "dynamic", "llama3", "yarn")
# What an architecture has that no key says: biases of q, k, v; norms of each head; weights of norms stored less 1.
GGUF_TRAITS = {"llama": {}, "qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": True}}
HF_TRAITS = {
    "llama": {}, "mistral": {}, "qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": True}, "qwen3_moe": {"qk_norm": True},
    "qwen3_next": {"qk_norm": True, "zero_centred": True, "gated": True, "interleaved": True},
    "qwen3_5_text": {"qk_norm": True, "zero_centred": True, "gated": True},
    "qwen3_5_moe_text": {"qk_norm": True, "zero_centred": True, "gated": True},
}
HYBRIDS = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
MIXTURES = ("qwen3_moe", "qwen3_next", "qwen3_5_moe_text")


@dataclass(frozen=True)
class Experts:
    """A mixture's sizes; shared: hidden size of the expert that every token takes, 0 for none."""

    count: int
    chosen: int
    hidden: int
    shared: int
    renormalise: bool


@dataclass(frozen=True)
class DeltaNet:
    """Sizes of gated delta layers; interleaved: rows of the input projections are grouped by key head."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    window: int
    interleaved: bool


@dataclass(frozen=True)
class Config:
    """Sizes and constants of a decoder; `context` is the longest sequence it was trained for.

    kinds: what each layer mixes tokens with.  sparse: whether each layer's feed-forward is a mixture of experts.
    rotary_dim: elements of a head that rotate.  adjacent: pairs are neighbours, not halves.  scaling: (key, value)
    pairs of the rotary scaling, with "rope_type".  gated: attention's output is gated.  extras: prefixes of weights
    that generating text leaves out.
    """

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
    architecture: str = "llama"
    kinds: tuple[str, ...] = ()
    sparse: tuple[bool, ...] = ()
    window: int = 0
    rotary_dim: int = 0
    adjacent: bool = False
    scaling: tuple[tuple[str, Any], ...] = ()
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    zero_centred: bool = False
    gated: bool = False
    experts: Experts | None = None
    delta: DeltaNet | None = None
    extras: tuple[str, ...] = ()

    @classmethod
    def from_gguf(cls, file: GGUF) -> Config:
        """Errors: LoadError for another architecture, a key that is missing, or sizes that do not fit together."""
        name = file.field("general.architecture", str)
        if name not in GGUF_TRAITS:
            allowed = ", ".join(f'"{one}"' for one in GGUF_TRAITS)
            raise LoadError(f'{file.path.name}: architecture "{name}" is not supported, {allowed} are')
        width, heads = positive(file, f"{name}.embedding_length"), positive(file, f"{name}.attention.head_count")
        kv_heads = positive(file, f"{name}.attention.head_count_kv", heads)
        head_dim = positive(file, f"{name}.attention.key_length", width // heads)
        explicit = f"{name}.attention.key_length" in file.metadata
        refuse_unless(file, f"{name}.attention.head_count", explicit or width % heads == 0,
                      f"must divide the width {width}")
        refuse_unless(file, f"{name}.attention.head_count_kv", heads % kv_heads == 0, f"must divide the {heads} heads")
        rotary = positive(file, f"{name}.rope.dimension_count", head_dim)
        refuse_unless(file, f"{name}.rope.dimension_count", rotary == head_dim and head_dim % 2 == 0,
                      f"must be the head size {head_dim}, and even")
        scaling = file.field(f"{name}.rope.scaling.type", str, "none")
        refuse_unless(file, f"{name}.rope.scaling.type", scaling == "none", 'only "none" is supported')
        layers = positive(file, f"{name}.block_count")
        return cls(
            vocabulary=len(file.field("tokenizer.ggml.tokens", list)), width=width,
            hidden=positive(file, f"{name}.feed_forward_length"), layers=layers,
            heads=heads, kv_heads=kv_heads, head_dim=head_dim, context=positive(file, f"{name}.context_length"),
            rope_theta=file.field(f"{name}.rope.freq_base", float, 10000.0),
            eps=file.field(f"{name}.attention.layer_norm_rms_epsilon", float), architecture=name,
            kinds=(FULL,) * layers, sparse=(False,) * layers, rotary_dim=head_dim, adjacent=name == "llama",
            tied="output.weight" not in file.tensors, **GGUF_TRAITS[name])

    @classmethod
    def from_hf(cls, given: Mapping[str, Any]) -> Config:
        """From the object in a config.json; a model of several parts gives its text part.

        Errors: LoadError for another architecture, a key that is missing, or a value that is not supported.
        """
        keys = Keys({**given, **given.get("text_config", {})})
        name = keys("model_type", str)
        if name not in HF_TRAITS:
            raise LoadError(f'config.json: model_type "{name}" is not supported, {", ".join(HF_TRAITS)} are')
        layers, heads = keys("num_hidden_layers", int), keys("num_attention_heads", int)
        head_dim = keys("head_dim", int, keys("hidden_size", int) // heads)
        rope = {**keys("rope_scaling", dict, {}), **keys("rope_parameters", dict, {})}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in SCALINGS:
            raise LoadError(f'config.json: rope_type "{kind}" is not supported, {", ".join(SCALINGS)} are')
        if keys("hidden_act", str, "silu") != "silu" or keys("mlp_bias", bool, False):
            raise LoadError("config.json: hidden_act other than silu, and mlp_bias, are not supported")
        partial = rope.get("partial_rotary_factor", keys("partial_rotary_factor", float,
                                                         0.25 if name in HYBRIDS else 1.0))
        traits = dict(HF_TRAITS[name])
        interleaved = traits.pop("interleaved", False)
        biased = keys("attention_bias", bool, False)
        kinds, window = layer_kinds(keys, name, layers)
        return cls(
            vocabulary=keys("vocab_size", int), width=keys("hidden_size", int),
            hidden=keys("intermediate_size", int, 0), layers=layers, heads=heads,
            kv_heads=keys("num_key_value_heads", int, heads), head_dim=head_dim,
            context=keys("max_position_embeddings", int),
            rope_theta=float(rope.get("rope_theta", keys("rope_theta", float, 10000.0))),
            eps=keys("rms_norm_eps", float, 1e-6), architecture=name, kinds=kinds, window=window,
            sparse=sparse_layers(keys, name, layers), rotary_dim=int(head_dim * partial),
            scaling=tuple({**rope, "rope_type": kind}.items()) if kind != "default" else (),
            tied=keys("tie_word_embeddings", bool, False), output_bias=biased,
            experts=mixture(keys, name) if name in MIXTURES else None,
            delta=delta_net(keys, interleaved) if LINEAR in kinds else None,
            extras=("mtp.", "model.visual.") if name in HYBRIDS else (),
            **{**traits, "qkv_bias": traits.get("qkv_bias", False) or biased})

    @property
    def longest(self) -> int:
        """The longest sequence that may be asked for; dynamic scaling goes beyond what the model was trained for."""
        scaling = dict(self.scaling)
        return int(self.context * scaling["factor"]) if scaling.get("rope_type") == "dynamic" else self.context

    def cache_bytes(self, context: int, itemsize: int = 2) -> int:
        """Bytes of keys and values for one sequence of `context` tokens."""
        from minivt.models.attention import capacity
        layers = sum(kind != LINEAR for kind in self.kinds)
        return 2 * itemsize * layers * self.kv_heads * self.head_dim * capacity(context)


class Keys:
    """The keys of a config.json, each of the type that is asked for."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = values

    def __call__(self, key: str, kind: type, default: Any = None) -> Any:
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise LoadError(f'config.json: key "{key}" is missing')
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise LoadError(f'config.json: key "{key}" is {value!r}, of type {kind.__name__} is needed')
        return value


def layer_kinds(keys: Keys, name: str, layers: int) -> tuple[tuple[str, ...], int]:
    """What each layer mixes tokens with, and the sliding window, 0 for none."""
    window = keys("sliding_window", int, 0)
    if name not in ("mistral", *HYBRIDS) and not keys("use_sliding_window", bool, False):
        window = 0
    if name in HYBRIDS:
        every = keys("full_attention_interval", int, 4)
        default = [LINEAR if (i + 1) % every else FULL for i in range(layers)]
    else:
        first = keys("max_window_layers", int, 28) if name in ("qwen2", "qwen3") else 0
        default = [SLIDING if window and i >= first else FULL for i in range(layers)]
    kinds = tuple(keys("layer_types", list, default))
    if len(kinds) != layers or not set(kinds) <= {FULL, SLIDING, LINEAR if name in HYBRIDS else FULL}:
        raise LoadError(f'config.json: key "layer_types" is {list(kinds)}, {layers} kinds of layers are needed')
    return kinds, window


def sparse_layers(keys: Keys, name: str, layers: int) -> tuple[bool, ...]:
    step, dense = keys("decoder_sparse_step", int, 1), keys("mlp_only_layers", list, [])
    return tuple(name in MIXTURES and i not in dense and (i + 1) % step == 0 for i in range(layers))


def mixture(keys: Keys, name: str) -> Experts:
    """norm_topk_prob absent means False to qwen3_moe and True to qwen3_next; qwen3_5_moe always renormalises."""
    renormalise = keys("norm_topk_prob", bool, name != "qwen3_moe") or name == "qwen3_5_moe_text"
    shared = 0 if name == "qwen3_moe" else keys("shared_expert_intermediate_size", int)
    return Experts(keys("num_experts", int), keys("num_experts_per_tok", int), keys("moe_intermediate_size", int),
                   shared, renormalise)


def delta_net(keys: Keys, interleaved: bool) -> DeltaNet:
    return DeltaNet(keys("linear_num_key_heads", int), keys("linear_num_value_heads", int),
                    keys("linear_key_head_dim", int), keys("linear_value_head_dim", int),
                    keys("linear_conv_kernel_dim", int, 4), interleaved)


def positive(file: GGUF, key: str, default: int | None = None) -> int:
    value = file.field(key, int, default)
    if value < 1:
        raise LoadError(f'{file.path.name}: metadata "{key}" is {value}, at least 1 is needed')
    return value


def refuse_unless(file: GGUF, key: str, holds: bool, rule: str) -> None:
    if not holds:
        raise LoadError(f'{file.path.name}: metadata "{key}" is {file.metadata.get(key)!r}, {rule}')
