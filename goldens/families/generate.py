"""Writes one golden an architecture: weights, tokens, hidden states and logits of transformers' own models in float32.

Run from anywhere with the reference environment of goldens/README.md: python generate.py [architecture ...]
Every parameter is drawn anew, so that a missing norm, bias or gate shows.  The keys are in README.md beside this file.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HERE = Path(__file__).parent
PROMPT, STEPS, VOCABULARY = 137, 6, 61          # longer than a chunk of the delta rule, than a program, than a window
BASE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=160, rms_norm_eps=1e-3, rope_theta=500.0,
            tie_word_embeddings=False)
MOE = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=8, norm_topk_prob=True)
DELTA = dict(num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
             linear_value_head_dim=12, linear_conv_kernel_dim=4, partial_rotary_factor=0.25)
SHARED = dict(MOE, shared_expert_intermediate_size=12)
ROPE = dict(rope_theta=500.0)
LLAMA3 = dict(ROPE, rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(ROPE, rope_type="yarn", factor=4.0, original_max_position_embeddings=40, beta_fast=8.0, beta_slow=1.0)
CASES = {                                       # name: (model_type, class, changes of BASE)
    "llama": ("llama", "LlamaForCausalLM", {}),
    "llama_linear": ("llama", "LlamaForCausalLM", {"rope_parameters": dict(ROPE, rope_type="linear", factor=3.0)}),
    "llama_dynamic": ("llama", "LlamaForCausalLM", {
        "rope_parameters": dict(ROPE, rope_type="dynamic", factor=3.0), "max_position_embeddings": 100}),
    "llama_llama3": ("llama", "LlamaForCausalLM", {"rope_parameters": LLAMA3}),
    "llama_yarn": ("llama", "LlamaForCausalLM", {"rope_parameters": YARN}),
    "mistral": ("mistral", "MistralForCausalLM", {"sliding_window": 19}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {
        "use_sliding_window": True, "sliding_window": 21, "max_window_layers": 1, "head_dim": 8}),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {"tie_word_embeddings": True}),
    "qwen3_moe": ("qwen3_moe", "Qwen3MoeForCausalLM", dict(MOE)),
    "qwen3_next": ("qwen3_next", "Qwen3NextForCausalLM", dict(SHARED, **DELTA)),
    "qwen3_5": ("qwen3_5_text", "Qwen3_5ForCausalLM", dict(DELTA, tie_word_embeddings=True)),
    "qwen3_5_moe": ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", {
        key: value for key, value in dict(SHARED, **DELTA).items() if key != "norm_topk_prob"}),
}


def redraw(model) -> None:
    """Normal values of a size that keeps activations near 1; norms, decays and steps around values of their own."""
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim == 1:
            centre = 0.0 if name.endswith(("bias", "A_log")) or parameter.abs().max() == 0 else 1.0
            parameter.copy_(centre + 0.3 * noise)
        elif "conv1d" in name:
            parameter.copy_(0.5 * noise)
        else:
            parameter.copy_(noise * 1.5 / parameter.shape[-1] ** 0.5)


@torch.no_grad()
def run(name: str) -> None:
    kind, cls, changes = CASES[name]
    values = {**BASE, **changes}
    config = CONFIG_MAPPING[kind](**values)
    config._attn_implementation = "eager"
    model = getattr(transformers, cls)(config).eval()
    redraw(model)
    ids = torch.randint(VOCABULARY, (PROMPT + STEPS,), generator=torch.Generator().manual_seed(11))
    whole = model(ids[None], output_hidden_states=True, use_cache=False)
    tensors = {f"weight.{key}": value.clone() for key, value in model.state_dict().items()
               if not (config.tie_word_embeddings and key == "lm_head.weight")}
    tensors |= {"ids": ids.int(), "logits": whole.logits[0, -STEPS - 1:],
                "hidden": torch.stack([state[0, -1] for state in whole.hidden_states])}
    if name != "llama_dynamic":                 # its frequencies change with every cached step
        out = model(ids[None, :PROMPT], use_cache=True)
        rows, cache = [out.logits[0, -1]], out.past_key_values
        for id in ids[PROMPT:]:
            out = model(id.reshape(1, 1), past_key_values=cache, use_cache=True)
            rows.append(out.logits[0, -1])
        error = float((torch.stack(rows) - tensors["logits"]).abs().max() / tensors["logits"].abs().max())
        if error > 1e-5:
            raise SystemExit(f"{name}: cached and uncached logits differ by {error:.1e} relative")
    file = HERE / f"{name}.safetensors"
    notes = {"config": json.dumps({**values, "model_type": kind}), "source": f"transformers {transformers.__version__}"}
    save_file({key: value.contiguous() for key, value in tensors.items()}, file, notes)
    print(name, file.stat().st_size, float(whole.logits.abs().max()), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for one in sys.argv[1:] or CASES:
        run(one)
