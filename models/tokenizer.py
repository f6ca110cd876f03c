"""Text to token ids and back, from a GGUF file's vocabulary: byte-level BPE as in GPT-2, run by `tokenizers`.

For: encoding whole texts, decoding whole answers, and streaming an answer token by token without broken characters.
Not for: chat markup (chat.py), nor other kinds of vocabulary (SentencePiece, WordPiece), which are refused by name.

Meanings follow llama.cpp, which defines the `tokenizer.ggml.*` metadata: `tokenizer.ggml.pre` names how text is cut
before merging, token type 3 is control and 4 user-defined text, both matched whole before anything else.
"""
from __future__ import annotations

import codecs
from typing import Iterable

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer as Engine, models, pre_tokenizers

from minivt.errors import BoundsError, LoadError
from minivt.models.gguf import GGUF

CONTROL, USER_DEFINED = 3, 4                    # values of tokenizer.ggml.token_type


def gpt2_words() -> pre_tokenizers.PreTokenizer:
    """GPT-2's cut into contractions, words, numbers, symbols and spaces, and its letters for bytes."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")


# tokenizer.ggml.pre -> the cuts, one after the other.
PRE_TOKENIZERS = {
    "gpt-2": lambda: gpt2_words(),
    "smollm": lambda: pre_tokenizers.Sequence([single_digits(), gpt2_words()]),
}


def byte_letters() -> dict[str, int]:
    """The printable letter that stands for each byte in a byte-level vocabulary (GPT-2, Radford et al. 2019).

    Printable Latin-1 bytes stand for themselves, the 68 others for U+0100 onwards in order.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_LETTER = byte_letters()


class Tokenizer:
    """A vocabulary of `size` tokens; ids are positions in the file's token list.

    bos, eos: the ids that begin a text and end an answer, None where the file names none.
    """

    def __init__(self, file: GGUF):
        """Errors: LoadError where the vocabulary is of another kind, inconsistent or incomplete."""
        self.file_name = file.path.name
        kind = file.field("tokenizer.ggml.model", str)
        if kind != "gpt2":
            raise LoadError(f'{self.file_name}: vocabulary kind "{kind}" is not supported, "gpt2" (byte-level BPE) is')
        self.tokens = strings(file, "tokenizer.ggml.tokens")
        self.size = len(self.tokens)
        self.bos = self.special_id(file, "tokenizer.ggml.bos_token_id")
        self.eos = self.special_id(file, "tokenizer.ggml.eos_token_id")
        self.add_bos = file.field("tokenizer.ggml.add_bos_token", bool, False) and self.bos is not None
        types = self.token_types(file)
        self.control = frozenset(np.flatnonzero(types == CONTROL).tolist())
        self.plain = self.control | frozenset(np.flatnonzero(types == USER_DEFINED).tolist())  # no byte letters
        self.engine = self.build(file)

    def encode(self, text: str) -> list[int]:
        """Ids of a text; control tokens written out in it, such as <|im_start|>, become their ids."""
        ids = self.engine.encode(text, add_special_tokens=False).ids
        return [self.bos, *ids] if self.add_bos else ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids without control tokens; bytes that are no UTF-8 become U+FFFD."""
        stream = StreamDecoder(self)
        return "".join(map(stream.push, ids)) + stream.finish()

    def token_bytes(self, id: int) -> bytes:
        """The bytes that a token adds to a text, none for a control token.  Errors: BoundsError."""
        if not 0 <= id < self.size:
            raise BoundsError(f"token id {id} is outside the vocabulary of {self.size}")
        if id in self.control:
            return b""
        if id in self.plain:
            return self.tokens[id].encode()
        return bytes(BYTE_OF_LETTER[letter] for letter in self.tokens[id])

    def special_id(self, file: GGUF, key: str) -> int | None:
        if key not in file.metadata:
            return None
        id = file.field(key, int)
        if not 0 <= id < self.size:
            raise LoadError(f'{self.file_name}: metadata "{key}" is {id}, the vocabulary has {self.size} tokens')
        return id

    def token_types(self, file: GGUF) -> np.ndarray:
        types = file.field("tokenizer.ggml.token_type", np.ndarray, np.ones(self.size, np.int32))
        if len(types) != self.size:
            raise LoadError(f'{self.file_name}: metadata "tokenizer.ggml.token_type" has {len(types)} entries, '
                            f"the vocabulary has {self.size} tokens")
        return types

    def build(self, file: GGUF) -> Engine:
        cut = file.field("tokenizer.ggml.pre", str, "default")
        if cut not in PRE_TOKENIZERS:
            raise LoadError(f'{self.file_name}: pre-tokenizer "{cut}" is not supported, '
                            f'{", ".join(PRE_TOKENIZERS)} are')
        engine = Engine(models.BPE(vocab=self.vocabulary(), merges=self.merges(file)))
        engine.pre_tokenizer = PRE_TOKENIZERS[cut]()
        engine.add_tokens([AddedToken(self.tokens[id], normalized=False, special=id in self.control)
                           for id in sorted(self.plain)])
        return engine

    def vocabulary(self) -> dict[str, int]:
        vocabulary = {token: id for id, token in enumerate(self.tokens)}
        if len(vocabulary) != self.size:
            twice = next(token for id, token in enumerate(self.tokens) if vocabulary[token] != id)
            raise LoadError(f'{self.file_name}: token "{twice}" appears twice in the vocabulary')
        for id, token in enumerate(self.tokens):
            if id not in self.plain and not BYTE_OF_LETTER.keys() >= set(token):
                raise LoadError(f'{self.file_name}: token {id} "{token}" is not written in byte-level letters')
        return vocabulary

    def merges(self, file: GGUF) -> list[tuple[str, str]]:
        """Pairs to join, first ones first; both halves and the whole must be tokens."""
        known, pairs = set(self.tokens), []
        for merge in strings(file, "tokenizer.ggml.merges"):
            left, _, right = merge.partition(" ")
            if not {left, right, left + right} <= known:
                raise LoadError(f'{self.file_name}: merge "{merge}" is not of the form "left right" with tokens')
            pairs.append((left, right))
        return pairs


def strings(file: GGUF, key: str) -> list[str]:
    items = file.field(key, list)
    if not all(type(item) is str for item in items):
        raise LoadError(f'{file.path.name}: metadata "{key}" holds something other than strings')
    return items


class StreamDecoder:
    """Turns ids into text one at a time, holding back the bytes of a character until it is complete."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that is complete once this token came, possibly none."""
        return self.utf8.decode(self.tokenizer.token_bytes(id))

    def finish(self) -> str:
        """What was held back, as U+FFFD."""
        return self.utf8.decode(b"", True)
