"""The llama decoder against its NumPy twin, in every way that a prompt can be cut; and what it refuses."""
import numpy as np
import pytest

from gguf_files import F32
from minivt.errors import BoundsError, LoadError
from minivt.models.decoder import CHUNKS, Config, Decoder, capacity, chunk_sizes, common_prefix
from minivt.models.gguf import open_gguf
from minivt.models.sampling import Sampler
from tiny_llama import CONTEXT, END, VOCABULARY, WIDTH, TinyLlama

# Measured 1e-7 in NumPy float32.  Rotary over halves, not adjacent pairs: 2e-1; rotated the other way: 2e-1; theta
# 1e4: 2e-1; eps 1e-5: 1e-2; head groups interleaved, not consecutive: 5e-1; one position too many seen: 3e-2; scores
# not scaled: 3e-1; no residual: 8e-1; all zeros: 1.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def tiny():
    return TinyLlama()


@pytest.fixture(scope="module")
def decoder(tiny, tmp_path_factory):
    return Decoder(open_gguf(tiny.save(tmp_path_factory.mktemp("tiny") / "tiny.gguf")), CONTEXT, cache="float32")


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(1).integers(0, VOCABULARY, CONTEXT).tolist()


@pytest.fixture(scope="module")
def expected(tiny, ids):
    return tiny.logits(ids)


@pytest.fixture(autouse=True)
def forget(request):
    if "decoder" in request.fixturenames:
        request.getfixturevalue("decoder").forget()


def assert_equal(logits, expected):
    assert logits.shape == expected.shape and logits.dtype == np.float32
    assert np.abs(logits - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 37, 127, 128, 129, 150, 299, 300])
def test_prompts_of_any_length(decoder, ids, expected, count):
    assert_equal(decoder.logits(ids[:count]), expected[count - 1])


def test_one_token_at_a_time(decoder, ids, expected):
    for count in range(1, 20):
        assert_equal(decoder.logits(ids[:count]), expected[count - 1])


def test_padding_leaves_no_trace(decoder, ids, expected):
    for count in 3, 5, 21, 22, 40, 170:                       # each goes on where padding was written
        assert_equal(decoder.logits(ids[:count]), expected[count - 1])


def test_a_longer_rerun_and_another_beginning(decoder, tiny, ids, expected):
    assert_equal(decoder.logits(ids[:40]), expected[39])
    other = ids[:25] + ids[100:110]
    assert_equal(decoder.logits(other), tiny.logits(other)[-1])
    assert decoder.cached == [other]
    assert_equal(decoder.logits(ids[:30]), expected[29])
    assert_equal(decoder.logits(ids[:30]), expected[29])      # all but the last token is known
    assert_equal(decoder.logits(ids[:10]), expected[9])       # shorter than the cache


def test_compiling_ahead_changes_nothing(decoder, ids, expected):
    decoder.logits(ids[:20])
    for size in CHUNKS:
        decoder.compile(size)
    assert_equal(decoder.logits(ids[:20]), expected[19])


def test_untied_head(tmp_path, ids):
    tiny = TinyLlama(seed=3, tied=False)
    decoder = Decoder(open_gguf(tiny.save(tmp_path / "untied.gguf")), 64, cache="float32")
    assert_equal(decoder.logits(ids[:7]), tiny.logits(ids[:7])[-1])


def test_greedy_answers(decoder, tiny, ids):
    expected = tiny.greedy(ids[:21], 12)
    assert list(decoder.generate(ids[:21], Sampler(), 12)) == expected
    assert list(decoder.generate(ids[:21], Sampler(), 12, frozenset({expected[5]}))) == \
        expected[:expected.index(expected[5])]


def test_answers_end_where_the_context_is_full(decoder, ids):
    answer = list(decoder.generate(ids[:CONTEXT - 2], Sampler(), 50))
    assert len(answer) == 3                                   # two fit; the third follows the last and needs no place


@pytest.mark.parametrize("tokens, word", [
    ([], "0 came"), ([0] * (CONTEXT + 1), "301 came"), ([0, VOCABULARY], str(VOCABULARY)), ([-1], "-1")])
def test_bad_tokens(decoder, tokens, word):
    with pytest.raises(BoundsError, match=word):
        decoder.logits(tokens)


@pytest.mark.parametrize("context", [0, -1, CONTEXT + 1])
def test_bad_context(tiny, tmp_path, context):
    with pytest.raises(BoundsError, match=f"{context} tokens were asked for, the model allows 1 to {CONTEXT}"):
        Decoder(open_gguf(tiny.save(tmp_path / "tiny.gguf")), context)


# --- files that do not fit the architecture ---

def refuse(tiny, tmp_path, *words):
    with pytest.raises(LoadError) as caught:
        Decoder(open_gguf(tiny.save(tmp_path / "bent.gguf")), 64)
    for word in "bent.gguf", *words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.attn_k.weight", "blk.0.ffn_norm.weight",
                                  "output_norm.weight"])
def test_a_tensor_missing_of_wrong_shape_or_dtype(tmp_path, name):
    tiny = TinyLlama()
    kind, shape, data = tiny.tensors.pop(name)
    refuse(tiny, tmp_path, f'"{name}" is missing', str(shape))

    half = data[:len(data) // 2]
    tiny.tensors[name] = (kind, (shape[0] // 2, *shape[1:]), half)
    refuse(tiny, tmp_path, f'"{name}" has shape', str(shape), str((shape[0] // 2, *shape[1:])))


def test_a_tensor_of_wrong_dtype(tmp_path):
    tiny = TinyLlama()
    tiny.tensors["output_norm.weight"] = (8, (WIDTH,), bytes(34 * WIDTH // 32))
    refuse(tiny, tmp_path, '"output_norm.weight" has dtype Q8_0', "F32")


@pytest.mark.parametrize("name", ["blk.0.attn_q.bias", "rope_freqs.weight", "blk.2.attn_norm.weight"])
def test_a_tensor_unaccounted_for(tmp_path, name):
    tiny = TinyLlama()
    tiny.tensors[name] = (F32, (WIDTH,), bytes(4 * WIDTH))
    refuse(tiny, tmp_path, f'"{name}" is unaccounted')


@pytest.mark.parametrize("key, value, word", [
    ("general.architecture", "gemma3", '"gemma3" is not supported'), ("general.architecture", None, "architecture"),
    ("llama.block_count", None, "block_count"), ("llama.block_count", 0, "block_count"),
    ("llama.block_count", 3, "blk.2"), ("llama.block_count", 1, "blk.1"),
    ("llama.embedding_length", 32, "dimension_count"),
    ("llama.feed_forward_length", 64, "ffn_gate"),
    ("llama.attention.head_count", 5, "head_count"), ("llama.attention.head_count", "4", "head_count"),
    ("llama.attention.head_count_kv", 3, "head_count_kv"), ("llama.attention.head_count_kv", 4, "attn_k"),
    ("llama.rope.dimension_count", 8, "dimension_count"), ("llama.rope.scaling.type", "yarn", "scaling"),
    ("llama.attention.layer_norm_rms_epsilon", None, "epsilon"), ("llama.context_length", None, "context_length"),
    ("tokenizer.ggml.tokens", ["a"], "token_embd"),
])
def test_metadata_that_does_not_fit(tmp_path, key, value, word):
    tiny = TinyLlama()
    tiny.metadata.pop(key, None)
    if value is not None:
        tiny.metadata[key] = value
    refuse(tiny, tmp_path, word)


# --- arithmetic of sizes ---

def test_chunks_cover_every_length():
    for count in range(1, 600):
        sizes = chunk_sizes(count)
        assert set(sizes) <= set(CHUNKS) and sum(sizes) - sizes[-1] < count <= sum(sizes)
    assert chunk_sizes(1) == [1] and chunk_sizes(37) == [16, 16, 16] and chunk_sizes(129) == [128, 1]


def test_the_cache_has_room_for_padding():
    for context in 1, 16, 300:
        for known in range(context):
            end = known + sum(chunk_sizes(context - known))
            assert end <= capacity(context)


def test_cache_bytes(tiny, tmp_path, decoder):
    caches = [cache for block in decoder.blocks for cache in vars(block.attention.cache).values()]
    assert decoder.config.cache_bytes(CONTEXT, 4) == sum(4 * int(np.prod(cache.shape)) for cache in caches)


def test_config(decoder):
    assert decoder.config == Config(vocabulary=VOCABULARY, width=WIDTH, hidden=96, layers=2, heads=4, kv_heads=2,
                                    head_dim=16, context=CONTEXT, rope_theta=500.0, eps=0.03125,
                                    kinds=("full_attention",) * 2, sparse=(False,) * 2, rotary_dim=16, adjacent=True,
                                    tied=True)


def test_common_prefix():
    assert [common_prefix(a, b) for a, b in [("", "a"), ("ab", "ab"), ("ab", "abc"), ("axc", "abc")]] == [0, 2, 2, 1]
