"""The GGUF reader: what a good file means, and that no bad file raises anything but LoadError."""
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gguf_files import (F16, F32, Q4_1, Q8_0, gguf_bytes, header, numpy_q8_0, pad, random_q4_1, random_q8_0, string,
                        tensor_info, value)
from minivt.errors import LoadError
from minivt.models.gguf import HEADER_LIMIT, open_gguf

METADATA = {
    "general.architecture": "llama", "llama.block_count": 2, "eps": 1.5, "flag": True,
    "words": ["a", "", "ünï"], "numbers": [1, 2, 3], "flags": [True, False], "nested": [[1, 2], [3]], "empty": [],
}


def tensors(rng):
    return {
        "embedding": (Q8_0, (3, 64), random_q8_0(rng, 3, 64).tobytes()),
        "weight": (Q4_1, (2, 32), random_q4_1(rng, 2, 32).tobytes()),
        "norm": (F32, (5,), np.arange(5, dtype="<f4").tobytes()),
        "half": (F16, (2, 3, 4), np.arange(24, dtype="<f2").tobytes()),
    }


@pytest.fixture
def good():
    return gguf_bytes(METADATA, tensors(np.random.default_rng(0)))


@pytest.fixture
def save(tmp_path):
    def save(data):
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return path
    return save


def refuse(save, data, *words):
    with pytest.raises(LoadError) as caught:
        open_gguf(save(data))
    message = str(caught.value)
    assert "model.gguf" in message and "\n" not in message
    for word in words:
        assert word in message


def test_metadata(save, good):
    read = open_gguf(save(good)).metadata
    assert list(read) == list(METADATA)
    for key, item in METADATA.items():
        got = read[key]
        assert [list(each) for each in got] == item if key == "nested" else np.array_equal(got, item)
    assert type(read["llama.block_count"]) is int and type(read["flag"]) is bool and type(read["eps"]) is float


@pytest.mark.parametrize("kind, code, item", [
    (0, "B", 255), (1, "b", -128), (2, "H", 65535), (3, "h", -32768), (4, "I", 2**32 - 1), (5, "i", -2**31),
    (6, "f", 0.5), (7, "?", True), (10, "Q", 2**64 - 1), (11, "q", -2**63), (12, "d", 0.1)])
def test_every_scalar_type_alone_and_in_an_array(save, kind, code, item):
    alone = string("one") + struct.pack("<I" + code, kind, item)
    array = string("many") + struct.pack("<IIQ" + 2 * code, 9, kind, 2, item, item)
    read = open_gguf(save(header(0, 2) + alone + array)).metadata
    assert read["one"] == item and type(read["one"]) is type(item)
    assert read["many"].tolist() == [item, item]


@pytest.mark.parametrize("version", [2, 3])
def test_versions(save, version):
    assert open_gguf(save(header(0, 0, version))).version == version


def test_tensors_are_packed_views_of_the_file(save, good):
    file = open_gguf(save(good))
    shapes = {"embedding": (3, 2, 34), "weight": (2, 1, 20), "norm": (5,), "half": (2, 3, 4)}
    for name, (_, shape, data) in tensors(np.random.default_rng(0)).items():
        tensor = file.tensors[name]
        assert tensor.shape == shape and tensor.data.shape == shapes[name] and tensor.data.tobytes() == data
        assert not tensor.data.flags.writeable and not tensor.data.flags.owndata
    assert [t.format for t in file.tensors.values()] == ["Q8_0", "Q4_1", "F32", "F16"]
    assert [t.data.dtype.str for t in file.tensors.values()] == ["|u1", "|u1", "<f4", "<f2"]
    assert file.nbytes == 3 * 2 * 34 + 2 * 20 + 5 * 4 + 24 * 2
    assert numpy_q8_0(file.tensors["embedding"].data).shape == file.tensors["embedding"].shape


def test_alignment_of_the_file_is_used(save):
    body = header(1, 1) + string("general.alignment") + value(256) + tensor_info("t", (2,), F32, 256)
    file = open_gguf(save(pad(body, 256) + bytes(256) + np.float32([3, 4]).tobytes()))
    assert file.tensors["t"].data.tolist() == [3, 4]


@pytest.mark.parametrize("bad", [0, 7, 24, 2**21, "32"])
def test_bad_alignment(save, bad):
    refuse(save, header(0, 1) + string("general.alignment") + value(bad), "general.alignment")


def test_fields(save, good):
    file = open_gguf(save(good))
    assert file.field("llama.block_count", int) == 2 and file.field("absent", int, 7) == 7
    assert file.field("llama.block_count", float) == 2.0
    for key, kind in ("absent", int), ("eps", int), ("flag", int), ("words", str):
        with pytest.raises(LoadError, match=key):
            file.field(key, kind)


# --- damaged files ---

def test_every_truncation(save, good):
    for length in range(len(good) - 32):          # the last 32 bytes hold some padding, which may be absent
        with pytest.raises(LoadError):
            open_gguf(save(good[:length]))


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_bytes(tmp_path_factory, flips):
    data = bytearray(gguf_bytes(METADATA, tensors(np.random.default_rng(0))))
    for position, byte in flips:
        data[position % len(data)] = byte
    path = tmp_path_factory.getbasetemp() / "flipped.gguf"
    path.write_bytes(data)
    try:
        file = open_gguf(path)
    except LoadError:
        return
    for tensor in file.tensors.values():          # whatever was accepted lies inside the file
        tensor.data.tobytes()


@pytest.mark.parametrize("count", [2**63, 2**40, 10**5, 2**64 - 1])
@pytest.mark.parametrize("what, make", [
    ("tensor count", lambda n: header(n, 0)),
    ("metadata count", lambda n: header(0, n)),
    ("metadata key 0", lambda n: header(0, 1) + struct.pack("<Q", n)),
    ("its length", lambda n: header(0, 1) + string("k") + struct.pack("<IIQ", 9, 12, n)),
    ("its length", lambda n: header(0, 1) + string("k") + struct.pack("<IIQ", 9, 8, n)),
    ('tensor "t"', lambda n: header(1, 0) + tensor_info("t", (32, n), Q4_1, 0)),
    ('tensor "t"', lambda n: header(1, 0) + tensor_info("t", (n, n, n, n), F32, 0)),
    ('tensor "t"', lambda n: header(1, 0) + tensor_info("t", (2,), F32, n // 32 * 32)),
])
def test_huge_counts(save, count, what, make):
    refuse(save, make(count) + bytes(256), what)


def test_header_limit(save):
    path = save(header(0, 1) + struct.pack("<Q", HEADER_LIMIT))
    os.truncate(path, 2 * HEADER_LIMIT)           # sparse: the bytes are there, yet no header is that long
    with pytest.raises(LoadError, match="metadata key 0"):
        open_gguf(path)


@pytest.mark.parametrize("words, data", [
    (["twice", '"k"'], header(0, 2) + 2 * (string("k") + value(1))),
    (["twice", '"t"'], header(2, 0) + 2 * tensor_info("t", (2,), F32, 0)),
    (["overlaps", '"a"', '"b"'], header(2, 0) + tensor_info("a", (9,), F32, 0) + tensor_info("b", (2,), F32, 32)),
    (["overlaps"], header(2, 0) + tensor_info("a", (2,), F32, 32) + tensor_info("b", (2,), F32, 32)),
    (["offset 4"], header(1, 0) + tensor_info("t", (2,), F32, 4)),
    (["Q8_1", "supported are"], header(1, 0) + tensor_info("t", (32,), 9, 0)),
    (["number 999"], header(1, 0) + tensor_info("t", (32,), 999, 0)),
    (["rows of 33", "blocks of 32"], header(1, 0) + tensor_info("t", (33, 2), Q8_0, 0)),
    (["at least 1"], header(1, 0) + tensor_info("t", (2, 0), F32, 0)),
    (["0 dimensions"], header(1, 0) + tensor_info("t", (), F32, 0)),
    (["5 dimensions"], header(1, 0) + tensor_info("t", (1,) * 5, F32, 0)),
    (["value type 13"], header(0, 1) + string("k") + struct.pack("<I", 13)),
    (["value type 99"], header(0, 1) + string("k") + struct.pack("<IIQ", 9, 99, 0)),
    (["bool"], header(0, 1) + string("k") + struct.pack("<IB", 7, 2)),
    (["nests"], header(0, 1) + string("k") + struct.pack("<I", 9) + 9 * struct.pack("<IQ", 9, 1)),
    (["not UTF-8"], header(0, 1) + struct.pack("<Q", 2) + b"\xff\xfe" + value(1)),
    (["not a GGUF file"], header(0, 0, magic=b"PK\3\4")),
    (["version 1"], header(0, 0, version=1)),
    (["big-endian"], header(0, 0, version=3 << 24)),
    (["magic"], b""),
])
def test_defects_are_named(save, words, data):
    refuse(save, data + bytes(512 if data else 0), *words)


@pytest.mark.parametrize("path", ["absent.gguf", ".", "a\0b", "/dev/zero"])
def test_unusable_paths(path):
    with pytest.raises(LoadError):
        open_gguf(path)
