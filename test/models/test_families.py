"""What holds for every architecture of the decoder: any cut of a prompt, batches, half precision, what loading refuses,
what a mixture reads; and deliberate defects, each of which the goldens must reject."""
from dataclasses import replace

import numpy as np
import pytest

from families import TOLERANCE, Golden, error
from minivt import Tensor, stats
from minivt.errors import BoundsError, LoadError
from minivt.models import attention, gated_delta, moe

# --- other ways through the same computation ---

@pytest.mark.parametrize("name", ["mistral", "qwen3_moe", "qwen3_next", "qwen3_5"])
def test_any_cut_of_the_prompt_and_rows_of_different_lengths(name):
    """Rows of a batch begin, pause and end at different lengths; each equals the golden, which ran alone."""
    golden = Golden(name)
    decoder = golden.decoder(batch=2)
    ids, at = golden.ids, golden.prompt
    decoder.next_logits({0: ids[:3]})
    decoder.next_logits({0: ids[:20], 1: ids[:77]})                # row 0 waits while row 1 goes on
    got = decoder.next_logits({0: ids[:at + 1], 1: ids[:at]})
    assert error(got[0], golden.logits[1]) <= TOLERANCE and error(got[1], golden.logits[0]) <= TOLERANCE
    assert error(decoder.next_logits({1: ids[:at + 1]})[1], golden.logits[1]) <= TOLERANCE
    assert error(decoder.next_logits({0: ids[:at]})[0], golden.logits[0]) <= TOLERANCE        # back by one token
    with pytest.raises(BoundsError, match="row 2 came"):
        decoder.next_logits({2: ids})


def test_a_half_cache_is_half_the_bytes_and_near():
    golden = Golden("qwen3")
    decoder = golden.decoder(cache="float16")
    caches = [c for b in decoder.blocks for c in (b.attention.cache.keys, b.attention.cache.values)]
    assert golden.config.cache_bytes(golden.context) == sum(2 * int(np.prod(c.shape)) for c in caches)
    assert TOLERANCE < error(decoder.logits(golden.ids), golden.logits[-1]) < 2e-3


# --- defects ---

def without(value):
    return lambda golden: {"config": replace(golden.config, **value)}


def bent(module, name, change):
    """A defect in the code: `change` of a function."""
    return lambda golden, patch: patch.setattr(module, name, change(getattr(module, name)))


def shifted(method):
    return lambda self, k, v, rows: method(self, k, v, replace(rows, starts=tuple(
        start + (0 if k.shape[1] > 1 else 1) for start in rows.starts)))


def reversed_kernel(golden, patch):
    for key in golden.weights:
        if "conv1d" in key:
            golden.weights[key] = np.ascontiguousarray(golden.weights[key][..., ::-1])


def growing(method):
    return lambda q, k, v, decay, beta, state: method(q, k, v, decay * -1, beta, state)


def unsolved(method):
    return lambda a: method(a * 0)


def smallest(method):
    return lambda scores, k: method(scores * -1, k)


DEFECTS = {
    "pairs are neighbours": ("qwen3", without({"adjacent": True})),
    "epsilon": ("qwen2", without({"eps": 1e-6})),
    "theta": ("llama", without({"rope_theta": 10000.0})),
    "window one longer": ("mistral", without({"window": 20})),
    "no window": ("qwen2", without({"kinds": ("full_attention",) * 2})),
    "scaling left out": ("llama_yarn", without({"scaling": ()})),
    "another scaling": ("llama_llama3", lambda golden: {"config": replace(
        golden.config, scaling=(("rope_type", "linear"), ("factor", 4.0)))}),
    "router not renormalised": ("qwen3_moe", lambda golden: {"config": replace(
        golden.config, experts=replace(golden.config.experts, renormalise=False))}),
    "one expert fewer": ("qwen3_moe", lambda golden: {"config": replace(
        golden.config, experts=replace(golden.config.experts, chosen=2))}),
    "the worst experts": ("qwen3_moe", bent(moe, "choose", smallest)),
    "norms not zero-centred": ("qwen3_5", without({"zero_centred": False})),
    "rotary of the whole head": ("qwen3_5", without({"rotary_dim": 16})),
    "convolution reversed": ("qwen3_5", reversed_kernel),
    "decay grows": ("qwen3_5", bent(gated_delta, "delta_chunk", growing)),
    "corrections not solved": ("qwen3_next", bent(gated_delta, "lower_inverse", unsolved)),
    "cache one place late": ("qwen3", bent(attention.KVCache, "append", shifted)),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_rejected(defect, monkeypatch):
    name, change = DEFECTS[defect]
    golden, clean = Golden(name), Golden(name)
    takes_patch = change.__code__.co_argcount == 2
    options = (change(golden, monkeypatch) or {}) if takes_patch else change(golden)
    assert takes_patch or options["config"] != golden.config       # it applied
    decoder = golden.decoder(**options)
    decoder.logits(golden.ids[:-1])
    cost = error(decoder.logits(golden.ids), clean.logits[-1])
    print(f"\n{defect}: {cost:.1e}")
    assert not cost <= 50 * TOLERANCE                              # a NaN is rejected too


# --- what loading refuses ---

@pytest.mark.parametrize("change, words", [
    (lambda w: w.pop("model.layers.1.self_attn.q_norm.weight"), "q_norm.weight\" is missing"),
    (lambda w: w.update(extra=w["model.norm.weight"]), "\"extra\" is unaccounted"),
    (lambda w: w.update({"model.norm.weight": np.ones(31, np.float32)}), "model.norm.weight\" has shape")])
def test_weights_that_do_not_fit(change, words):
    golden = Golden("qwen3")
    change(golden.weights)
    with pytest.raises(LoadError, match=words):
        golden.decoder()


def test_weights_for_prediction_ahead_are_known_to_the_hybrids_only():
    for name, known in ("qwen3_5", True), ("qwen3", False):
        golden = Golden(name)
        golden.weights["mtp.norm.weight"] = np.ones(32, np.float32)
        if known:
            golden.decoder()
        else:
            with pytest.raises(LoadError, match="mtp.norm.weight"):
                golden.decoder()


# --- mixtures read what they choose ---

def mixture(rng, count, width, hidden):
    from minivt.models.config import Experts
    from minivt.models.weights import Weights
    arrays = {"m.gate.weight": rng.normal(size=(count, width)),
              "m.experts.gate_up_proj": rng.normal(size=(count, 2 * hidden, width)),
              "m.experts.down_proj": rng.normal(size=(count, width, hidden))}
    weights = Weights({name: value.astype(np.float32) for name, value in arrays.items()})
    return moe.Mixture(weights, "m", width, Experts(count, 2, hidden, 0, True), None)


def test_one_token_reads_only_its_experts():
    made = mixture(np.random.default_rng(0), 16, 64, 32)
    x = Tensor(np.random.default_rng(1).normal(size=(1, 1, 64)).astype(np.float32)).realize()
    with stats() as s:
        made(x).numpy()
    own = 2 * (3 * 32 * 64) * 4
    assert own <= s.bytes_read <= 1.1 * own + 16 * 64 * 4


def test_blocks_of_rows_equal_single_rows():
    rng = np.random.default_rng(2)
    chosen = Tensor(rng.integers(0, 5, (40, 3)))
    rows, expert, slots = (t.numpy() for t in vars(moe.grouped(chosen, 5, 8)).values())
    for pair, slot in enumerate(slots.flatten()):
        assert rows.flatten()[slot] == pair // 3 and expert[slot // 8] == chosen.numpy().flatten()[pair]
    assert np.sum(rows < 40) == 120 and len(set(slots.flatten())) == 120
    assert np.sum(expert < 5) == sum(-(-np.sum(chosen.numpy() == e) // 8) for e in range(5))
