"""Encoding, decoding and streaming against what transformers gives for the same file (goldens/smollm2)."""
import json
from pathlib import Path

import numpy as np
import pytest

from gguf_files import gguf_bytes
from minivt.errors import BoundsError, LoadError
from minivt.models.gguf import open_gguf
from minivt.models.tokenizer import BYTE_OF_LETTER, StreamDecoder, Tokenizer

GOLDEN = json.loads((Path(__file__).parents[2] / "goldens/smollm2/encodings.json").read_text())
LETTERS = list(BYTE_OF_LETTER)


@pytest.fixture(scope="module")
def tokenizer(small_model):
    return Tokenizer(small_model)


@pytest.fixture
def made(tmp_path):
    """A tokenizer from metadata: 256 byte letters, "ab", a user-defined and a control token, changed as asked."""
    def made(**changes):
        tokens = [*LETTERS, "ab", "[tool]", "<end>"]
        fields = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": ["a b"], "bos_token_id": 258,
                  "token_type": [1] * 257 + [4, 3], "eos_token_id": 258, **changes}
        path = tmp_path / "made.gguf"
        path.write_bytes(gguf_bytes({f"tokenizer.ggml.{k}": v for k, v in fields.items() if v is not None}, {}))
        return Tokenizer(open_gguf(path))
    return made


def without_control(tokenizer, text):
    for id in tokenizer.control:
        text = text.replace(tokenizer.tokens[id], "")
    return text


@pytest.mark.parametrize("case", GOLDEN["encodings"], ids=lambda case: ascii(case["text"][:20]))
def test_encodings_equal_the_golden(tokenizer, case):
    assert tokenizer.encode(case["text"]) == case["ids"]
    assert tokenizer.decode(case["ids"]) == without_control(tokenizer, case["decoded"])


@pytest.mark.parametrize("case", GOLDEN["partial_decodings"])
def test_unfinished_characters_decode_as_in_the_golden(tokenizer, case):
    assert tokenizer.decode(case["ids"]) == case["decoded"]


@pytest.mark.parametrize("case", GOLDEN["conversations"])
def test_conversations_encode_as_in_the_golden(tokenizer, case):
    assert tokenizer.encode(case["text"]) == case["ids"]


def test_streaming_holds_back_unfinished_characters(tokenizer):
    for case in GOLDEN["encodings"]:
        stream = StreamDecoder(tokenizer)
        pieces = [stream.push(id) for id in case["ids"]]
        if "\ufffd" not in case["text"]:
            assert not any("\ufffd" in piece for piece in pieces) and stream.finish() == ""
        assert "".join(pieces) == without_control(tokenizer, case["decoded"])


def test_streaming_shows_a_character_with_its_last_token(tokenizer):
    ids = tokenizer.encode("日🙂")
    stream = StreamDecoder(tokenizer)
    texts = [stream.push(id) for id in ids]
    assert len(ids) > 2 and "" in texts and "".join(texts) == "日🙂"
    stream.push(ids[0])
    assert stream.finish() == ("\ufffd" if texts[0] == "" else "")


def test_every_token_of_the_vocabulary_has_bytes(tokenizer):
    lengths = [len(tokenizer.token_bytes(id)) for id in range(tokenizer.size)]
    assert [id for id, length in enumerate(lengths) if length == 0] == sorted(tokenizer.control)
    assert tokenizer.size == 49152 and (tokenizer.bos, tokenizer.eos) == (1, 2)


def test_ids_outside_the_vocabulary(tokenizer):
    for id in -1, tokenizer.size:
        with pytest.raises(BoundsError, match=str(id)):
            tokenizer.decode([id])


def test_pre_tokenizers_differ_in_digits(made):
    digits = {"tokens": [*LETTERS, "12", "[tool]", "<end>"], "merges": ["1 2"]}
    letter = {text: id for id, text in enumerate(LETTERS)}
    assert made(**digits).encode("12") == [256]
    assert made(pre="smollm", **digits).encode("12") == [letter["1"], letter["2"]]


def test_user_defined_and_control_tokens(made):
    tokenizer = made()
    assert tokenizer.encode("ab[tool]ab<end>") == [256, 257, 256, 258]
    assert tokenizer.decode([256, 257, 256, 258]) == "ab[tool]ab"


def test_bos_is_added_where_the_file_says_so(made):
    assert made().encode("ab") == [256]
    assert made(add_bos_token=True).encode("ab") == [258, 256]
    assert made(add_bos_token=True, bos_token_id=None).encode("ab") == [256]


@pytest.mark.parametrize("changes, word", [
    ({"model": "llama"}, '"llama" is not supported'), ({"model": None}, "model"), ({"tokens": None}, "tokens"),
    ({"pre": "qwen2"}, '"qwen2" is not supported'), ({"pre": None}, '"default" is not supported'),
    ({"merges": ["a bc"]}, '"a bc"'), ({"merges": ["ab"]}, '"ab"'), ({"merges": ["b a"]}, '"b a"'),
    ({"merges": [1]}, "merges"), ({"tokens": [*LETTERS, "a", "b b", "x"]}, "appears twice"),
    ({"tokens": [*LETTERS, "ab", "[tool]", "a b"], "token_type": [1] * 259}, "byte-level letters"),
    ({"token_type": [1]}, "token_type"), ({"eos_token_id": 259}, "eos_token_id"), ({"bos_token_id": "x"}, "bos"),
])
def test_bad_vocabularies(made, changes, word):
    with pytest.raises(LoadError) as caught:
        made(**changes)
    assert word in str(caught.value) and "made.gguf" in str(caught.value)


def test_all_bytes_round_trip(made):
    tokenizer = made()
    text = "".join(map(chr, np.r_[0:0xD800:7, 0xE000:0x110000:997]))
    assert tokenizer.decode(tokenizer.encode(text)) == text
