"""Prints what each deliberate defect of a llama implementation costs; run it like generate.py, after it.

Columns: the relative error max |logits - golden| / max |golden| of a row, smallest and largest over the prompts of more
than one token at their last position; the largest at the later decode steps; the prompts whose greedy tokens change.
The first rows are no defects: they say how far correct and rounded arithmetic stray.
"""
import copy
from pathlib import Path

import torch
from reference import halves_from_pairs, load_model, parameter_name, raw_weights
from safetensors.torch import load_file
from transformers.models.llama import modeling_llama

HERE = Path(__file__).parent
GROUP = 32                                 # elements of a Q4_1 or Q8_0 block


def layers(model) -> list:
    return list(model.model.layers)


def norms(model) -> list:
    return [module for module in model.modules() if isinstance(module, modeling_llama.LlamaRMSNorm)]


def float64(model) -> None:
    """Everything but the rotary table in float64: transformers' RMSNorm would go through float32."""
    model.double()
    for norm in norms(model):
        norm.forward = lambda x, n=norm: n.weight * x * (x.square().mean(-1, keepdim=True) + n.variance_epsilon).rsqrt()


def eager_attention(model) -> None:
    model.set_attn_implementation("eager")


def round_activations(rounding):
    """Round the inputs of every matrix product inside the blocks."""
    def apply(model) -> None:
        for module in model.model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_pre_hook(lambda _, args: (rounding(args[0]),))
    return apply


def to_bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def to_q8(x: torch.Tensor) -> torch.Tensor:
    groups = x.unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
    return ((groups / scale).round() * scale).flatten(-2)


def replace(model, change) -> None:
    """Set each matrix of the blocks to change(name, GGUF's float32 matrix), in transformers' row order."""
    parameters = dict(model.named_parameters())
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    for name, weight in raw_weights().items():
        kind = name.split(".")[-2]
        if name.startswith("blk.") and weight.ndim == 2:
            weight = change(kind, weight)
            ordered = halves_from_pairs(weight, heads[kind]) if kind in heads else weight
            parameters[parameter_name(name)].copy_(torch.from_numpy(ordered.copy()))


def round_weights(dtype: torch.dtype):
    def apply(model) -> None:
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype).float())
    return apply


def half_split_rotary(model) -> None:
    """Rotate rows (i, i + 32) of GGUF's q and k as they lie in the file."""
    parameters = dict(model.named_parameters())
    for name, weight in raw_weights().items():
        if name.split(".")[-2] in ("attn_q", "attn_k"):
            parameters[parameter_name(name)].copy_(torch.from_numpy(weight))


def rotary_base(model) -> None:
    """Base 10,000 in place of 100,000."""
    model.model.rotary_emb.inv_freq = 10_000.0 ** (-torch.arange(0, 64, 2) / 64)


def adjacent_nibbles(model) -> None:
    """Byte j of a block as elements 2j and 2j + 1 in place of j and j + 16."""
    def change(_, weight):
        blocks = weight.reshape(weight.shape[0], -1, 2, GROUP // 2)
        return blocks.swapaxes(2, 3).reshape(weight.shape)
    replace(model, change)


def epsilon(value: float):
    def apply(model) -> None:
        for norm in norms(model):
            norm.variance_epsilon = value
    return apply


def no_scale(model) -> None:
    for layer in layers(model):
        layer.self_attn.scaling = 1.0


def tiled_heads(model) -> None:
    """Query head h reads key and value head h % 3 in place of h // 3."""
    order = torch.arange(9).reshape(3, 3).T.flatten()        # slot s of transformers takes the query head order[s]
    for layer in layers(model):
        attention = layer.self_attn
        attention.q_proj.weight.copy_(attention.q_proj.weight.unflatten(0, (9, 64))[order].flatten(0, 1))
        attention.o_proj.weight.copy_(attention.o_proj.weight.unflatten(1, (9, 64))[:, order].flatten(1, 2))


def no_causal_mask(model) -> None:
    """The prompt's positions see the whole prompt."""
    for layer in layers(model):
        layer.self_attn.register_forward_pre_hook(drop_mask, with_kwargs=True)


def drop_mask(attention, args, kwargs):
    if kwargs["past_key_values"].get_seq_length(attention.layer_idx) == 0:
        kwargs["attention_mask"] = torch.zeros(1, 1, *[kwargs["hidden_states"].shape[1]] * 2)
    return args, kwargs


def late_position(model) -> None:
    """Decoded tokens are rotated as if one position later; the prompt is right."""
    def shift(_, args, kwargs):
        kwargs["position_ids"] = kwargs["position_ids"] + (kwargs["position_ids"].min() > 0)
        return args, kwargs
    model.model.rotary_emb.register_forward_pre_hook(shift, with_kwargs=True)


def swapped_gate(model) -> None:
    for layer in layers(model):
        layer.mlp.gate_proj, layer.mlp.up_proj = layer.mlp.up_proj, layer.mlp.gate_proj


def gelu_gate(model) -> None:
    for layer in layers(model):
        layer.mlp.act_fn = torch.nn.GELU(approximate="tanh")


CASES = {
    "float64 arithmetic": float64,
    "attention written out (eager)": eager_attention,
    "weights rounded to float16": round_weights(torch.float16),
    "weights rounded to bfloat16": round_weights(torch.bfloat16),
    "activations rounded to bfloat16 before products": round_activations(to_bfloat16),
    "activations rounded to 8-bit blocks before products": round_activations(to_q8),
    "eps 1e-5 -> 1e-6": epsilon(1e-6),
    "eps 1e-5 -> 0": epsilon(0.0),
    "half-split in place of interleaved rotary": half_split_rotary,
    "rotary base 100000 -> 10000": rotary_base,
    "no 1/sqrt(head_dim)": no_scale,
    "no causal mask": no_causal_mask,
    "decoded tokens one position late": late_position,
    "query heads tiled over kv heads": tiled_heads,
    "gate and up swapped": swapped_gate,
    "SiLU -> GELU": gelu_gate,
    "Q4_1 nibbles adjacent": adjacent_nibbles,
}


def relative(row: torch.Tensor, golden: torch.Tensor) -> float:
    return float((row - golden).abs().max() / golden.abs().max())


def decode(model, prompt: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Logits (new, vocabulary) that choose each new token, the golden tokens being fed in place of the chosen ones."""
    first = model(prompt[None].long(), use_cache=True)
    rest = model(new[None, :-1].long(), past_key_values=first.past_key_values, use_cache=True)
    return torch.cat([first.logits[0, -1:], rest.logits[0]])


def costs(model, golden: dict, number: int) -> tuple[float, float, bool]:
    """Relative error at the last prompt position and at the later steps, and whether a greedy token changes."""
    new = golden["generated"][number]
    new = new[new >= 0]
    rows = decode(model, golden[f"prompt.{number}"], new)
    kept = golden.get(f"step_logits.{number}", torch.empty(0))
    later = max((relative(rows[step], row) for step, row in zip(golden["steps"], kept)), default=0.0)
    return relative(rows[0], golden["logits"][number]), later, rows.argmax(-1).tolist() != new.tolist()


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    correct, golden = load_model(), load_file(HERE / "smollm2.safetensors")
    prompts = range(len(golden["generated"]))
    for case, apply in CASES.items():
        model = copy.deepcopy(correct)
        apply(model)
        first, later, changed = zip(*(costs(model, golden, number) for number in prompts))
        several = [error for number, error in enumerate(first) if len(golden[f"prompt.{number}"]) > 1]
        print(f"| {case} | {min(several):.1e} | {max(several):.1e} | {max(later):.1e} | "
              f"{sum(changed)} of {len(prompts)} |", flush=True)


if __name__ == "__main__":
    main()
