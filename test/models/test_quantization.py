"""Packed weights mean what their format says, alone, through a row lookup, and inside a product."""
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from gguf_files import numpy_q4_1, numpy_q8_0, random_q4_1, random_q8_0
from minivt import Tensor, jit, stats
from minivt.errors import LoadError
from minivt.models import quantization_tables
from minivt.models.quantization import FORMATS, dequantise

GOLDEN = load_file(Path(__file__).parents[2] / "goldens/gguf_formats/formats.safetensors")
PACKED = [name for name, row in FORMATS.items() if row.block > 1]
PLAIN = [name for name in FORMATS if name not in PACKED]
WITH_OFFSET = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")        # d·q + m, which may be one rounding instead of two


def weights(name, rows=6, columns=1024, seed=0):
    """Packed rows made of the golden's usual blocks, and the float32 they mean."""
    row = FORMATS[name]
    usual = np.flatnonzero(np.abs(GOLDEN[f"{name}.values"]).max(1) < 1e4)          # NaN is not
    picks = np.random.default_rng(seed).choice(usual, (rows, columns // row.block))
    return GOLDEN[f"{name}.blocks"][picks], GOLDEN[f"{name}.values"][picks].reshape(rows, columns)


def close(name, got, expected):
    assert got.dtype == np.float32 and got.shape == expected.shape
    if name not in WITH_OFFSET:
        np.testing.assert_array_equal(got, expected)
    else:                                     # the terms of a sum are at most twice the largest value of their block
        with np.errstate(all="ignore"):
            usual = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        np.testing.assert_allclose(got, expected, rtol=2e-7, atol=min(usual, 1e4) * 2.4e-7)


def test_every_format_is_in_the_golden():
    assert set(PACKED) == {key.split(".")[0] for key in GOLDEN}
    for name in PACKED:
        blocks = GOLDEN[f"{name}.blocks"]
        assert blocks.shape[1] == FORMATS[name].block_bytes and np.abs(GOLDEN[f"{name}.values"][:4]).max() > 0


def test_storage_shapes():
    assert FORMATS["F32"].storage_shape((3, 64)) == FORMATS["BF16"].storage_shape((3, 64)) == (3, 64)
    assert FORMATS["Q4_1"].storage_shape((3, 64)) == (3, 2, 20)
    assert FORMATS["IQ1_S"].storage_shape((2, 3, 512)) == (2, 3, 2, 50)
    assert FORMATS["Q6_K"].nbytes(512) == 420 and FORMATS["F16"].nbytes(5) == 10


@pytest.mark.parametrize("name", PLAIN)
def test_plain_elements(name):
    values = np.random.default_rng(0).normal(0, 50, (3, 5))
    if name == "BF16":
        stored = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        expected = (stored.astype(np.uint32) << 16).view(np.float32)
    else:
        stored = values.astype(FORMATS[name].storage)
        expected = stored.astype(np.float32)
    result = dequantise(Tensor(stored), name).numpy()
    assert result.dtype == np.float32 and np.array_equal(result, expected) and np.abs(expected).max() > 20


@pytest.mark.parametrize("name", PACKED)
def test_blocks_equal_the_golden(name):
    blocks = GOLDEN[f"{name}.blocks"]
    got = dequantise(Tensor(blocks[:, None]), name).numpy()
    usual = np.abs(GOLDEN[f"{name}.values"]).max(1) < 1e4
    close(name, got[usual], GOLDEN[f"{name}.values"][usual])
    huge = GOLDEN[f"{name}.values"][~usual]
    if name in WITH_OFFSET:                          # huge terms cancel, and overflow sooner in two roundings
        assert (np.isfinite(got[~usual]) | ~np.isfinite(huge) | (np.abs(huge) > 1e30)).all()
    else:
        np.testing.assert_array_equal(got[~usual], huge)


@pytest.mark.parametrize("name", PACKED)
def test_inside_a_product(name):
    """One kernel, which reads the packed bytes once and the tables of the format."""
    data, meaning = weights(name, rows=256)
    x = np.random.default_rng(1).normal(size=meaning.shape[1]).astype(np.float32)
    with stats() as s:
        result = (dequantise(Tensor(data), name) @ Tensor(x)).numpy()
    expected = meaning.astype(np.float64) @ x
    bound = np.abs(meaning.astype(np.float64)) @ np.abs(x)
    assert s.kernels == 1 and (np.abs(result - expected) <= 1e-6 * bound).all()
    assert data.nbytes <= s.bytes_read <= 1.02 * data.nbytes + x.nbytes + 24 * 1024


@pytest.mark.parametrize("name", ["Q4_0", "Q3_K", "TQ1_0", "NVFP4", "IQ2_XS", "IQ1_M", "IQ4_XS", "BF16"])
def test_rows_by_index(name):
    if name == "BF16":
        data = np.arange(6 * 1024, dtype=np.uint16).reshape(6, 1024) + 0x3F00
        meaning = (data.astype(np.uint32) << 16).view(np.float32)
    else:
        data, meaning = weights(name)
    ids = np.array([5, 0, 5, 2], np.int32)
    close(name, dequantise(Tensor(data)[Tensor(ids)], name).numpy(), meaning[ids])


def test_inside_a_captured_function():
    """Tables that are first needed while a function is traced are there at each replay."""
    quantization_tables.table.cache_clear()
    data, meaning = weights("IQ3_XXS")
    packed = Tensor(data)
    product = jit(lambda x: dequantise(packed, "IQ3_XXS") @ x)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=meaning.shape[1]).astype(np.float32)
        np.testing.assert_allclose(product(Tensor(x)).numpy(), meaning @ x, rtol=0, atol=1e-4 * np.abs(meaning).max())


def test_tables_need_their_package(monkeypatch):
    quantization_tables.table.cache_clear()
    monkeypatch.setitem(sys.modules, "gguf", None)
    data, _ = weights("IQ2_S", rows=1)
    with pytest.raises(LoadError, match=r"IQ2_S .* pip install 'minivt\[models\]'"):
        dequantise(Tensor(data), "IQ2_S")
    assert np.isfinite(dequantise(Tensor(weights("Q6_K")[0]), "Q6_K").numpy()).all()      # needs none


# --- two formats element by element, as their text defines them ---

@pytest.mark.parametrize("name, make, meaning", [("Q4_1", random_q4_1, numpy_q4_1), ("Q8_0", random_q8_0, numpy_q8_0)])
def test_every_element(name, make, meaning):
    data = make(np.random.default_rng(0), 6, 96)
    expected = meaning(data)
    result = dequantise(Tensor(data), name).numpy()
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-7 * np.abs(expected).max())      # fused d·q + m


def test_every_code_of_a_block():
    scale = np.array([0.5, -8], "<f2").view(np.uint8)
    codes = np.arange(16, dtype=np.uint8)
    block = np.concatenate([scale, codes | (15 - codes) << 4])[None, None]           # (1, 1, 20)
    expected = np.concatenate([codes, 15 - codes]) * 0.5 - 8
    assert dequantise(Tensor(block), "Q4_1").numpy()[0].tolist() == expected.tolist()
    for first in range(0, 256, 32):
        block = np.concatenate([scale[:2], np.arange(first, first + 32, dtype=np.uint8)])[None, None]
        expected = np.arange(first, first + 32, dtype=np.uint8).view(np.int8) * 0.5
        assert dequantise(Tensor(block), "Q8_0").numpy()[0].tolist() == expected.tolist()


@pytest.mark.parametrize("bits", [0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00])
def test_scales_of_every_kind(bits):
    """Zero, subnormal, smallest normal, largest and negative float16 scales."""
    block = np.concatenate([np.array([bits], "<u2").view(np.uint8), np.full(32, 3, np.uint8)])[None, None]
    assert dequantise(Tensor(block), "Q8_0").numpy()[0].tolist() == numpy_q8_0(block)[0].tolist()
