"""Writes smollm2.safetensors: greedy tokens, their margins and logits of LlamaForCausalLM in float32.

Run from anywhere with the reference environment of goldens/README.md: python generate.py (about a minute).
The keys, and what ran, are in README.md beside this file.
"""
import json
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from reference import gguf_path, load_model, load_tokenizer
from safetensors.torch import save_file

HERE = Path(__file__).parent
NEW_TOKENS, END, PAD = 64, 2, -1           # END is the file's eos_token_id, <|im_end|>
STEPS = (1, 8, 32)                         # decode steps whose logits rows are kept, for DETAILED prompts
DETAILED = ("factorial", "long")
LEAST_MARGIN = 0.04                        # a smaller gap between the two best logits would make equality luck
CACHE_TOLERANCE = 1e-5                     # largest relative difference allowed between cached and uncached logits


def prompt_ids(tokenizer, prompt: dict) -> list[int]:
    """Token ids of a plain text, or of a conversation in the chat template, ready for the assistant's turn."""
    if "text" in prompt:
        return tokenizer(prompt["text"])["input_ids"]
    text = tokenizer.apply_chat_template(prompt["messages"], tokenize=False, add_generation_prompt=True)
    return tokenizer(text)["input_ids"]


@torch.no_grad()
def greedy(model, ids: list[int]) -> tuple[list[int], torch.Tensor]:
    """Cached greedy decoding: new ids, END included and last, and the logits row (vocabulary,) that chose each."""
    fed, cache, new, rows = torch.tensor([ids]), None, [], []
    while len(new) < NEW_TOKENS and END not in new:
        out = model(fed, past_key_values=cache, use_cache=True)
        cache, row = out.past_key_values, out.logits[0, -1]
        rows.append(row)
        new.append(int(row.argmax()))
        fed = torch.tensor([new[-1:]])
    return new, torch.stack(rows)


@torch.no_grad()
def check_uncached(model, ids: list[int], new: list[int], rows: torch.Tensor) -> float:
    """Largest relative difference between the cached rows and one forward pass over the whole sequence."""
    whole = model(torch.tensor([ids + new]), use_cache=False).logits[0, len(ids) - 1:-1]
    error = float((whole - rows).abs().max() / rows.abs().max())
    if whole.argmax(-1).tolist() != new or error > CACHE_TOLERANCE:
        raise SystemExit(f"cached and uncached decoding differ by {error:.1e} relative")
    return error


def check_generate(model, ids: list[int], new: list[int]) -> None:
    """transformers' own generate must give the same ids."""
    out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False,
                         max_new_tokens=NEW_TOKENS, eos_token_id=END, pad_token_id=END)
    if out[0, len(ids):].tolist() != new:
        raise SystemExit("generate() gives other ids than the greedy loop")


def padded(values: list, fill: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(values + [fill] * (NEW_TOKENS - len(values)), dtype=dtype)


@torch.no_grad()
def hidden_states(model, ids: list[int]) -> torch.Tensor:
    """(layers + 1, hidden) at the last prompt position: embedding, blocks 0 to 28, final norm after block 29."""
    states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    return torch.stack([state[0, -1] for state in states])


def main() -> None:
    torch.set_num_threads(1)
    model, tokenizer = load_model(), load_tokenizer()
    tensors, generated, margins, logits = {}, [], [], []
    for number, prompt in enumerate(json.loads((HERE / "prompts.json").read_text())):
        ids = prompt_ids(tokenizer, prompt)
        new, rows = greedy(model, ids)
        best = rows.topk(2).values
        margin = (best[:, 0] - best[:, 1]).tolist()
        cache_error = check_uncached(model, ids, new, rows)
        check_generate(model, ids, new)
        if min(margin) < LEAST_MARGIN:
            raise SystemExit(f"prompt {prompt['name']}: smallest margin {min(margin):.4f}; choose another prompt")
        print(f"{number} | {prompt['name']} | {len(ids)} | {len(new)} | {min(margin):.4f} | {cache_error:.1e} | "
              f"{tokenizer.decode(new)[:60]!r}", flush=True)
        tensors[f"prompt.{number}"] = torch.tensor(ids, dtype=torch.int32)
        generated.append(padded(new, PAD, torch.int32))
        margins.append(padded(margin, float("inf"), torch.float32))
        logits.append(rows[0])
        if prompt["name"] in DETAILED:
            tensors[f"step_logits.{number}"] = rows[list(STEPS)]
            tensors[f"hidden.{number}"] = hidden_states(model, ids)
    tensors |= {"generated": torch.stack(generated), "margin": torch.stack(margins), "logits": torch.stack(logits),
                "steps": torch.tensor(STEPS, dtype=torch.int32)}
    source = f"transformers {transformers.__version__}, torch {torch.__version__}, gguf {version('gguf')}"
    save_file(tensors, HERE / "smollm2.safetensors", {"source": source, "weights": gguf_path().name})


if __name__ == "__main__":
    main()
