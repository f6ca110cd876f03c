"""Packed weights mean what their format says, alone, through a row lookup, and inside a product."""
import numpy as np
import pytest

from gguf_files import numpy_q4_1, numpy_q8_0, random_q4_1, random_q8_0
from minivt import Tensor
from minivt.models.quantization import FORMATS, dequantise

PACKED = {"Q4_1": (random_q4_1, numpy_q4_1), "Q8_0": (random_q8_0, numpy_q8_0)}


@pytest.fixture(params=PACKED)
def packed(request):
    """A format's name, packed rows, and the float32 they mean."""
    make, meaning = PACKED[request.param]
    data = make(np.random.default_rng(0), 6, 96)
    return request.param, data, meaning(data)


def test_storage_shapes():
    shapes = {name: row.storage_shape((3, 64)) for name, row in FORMATS.items()}
    assert shapes == {"F32": (3, 64), "F16": (3, 64), "Q4_1": (3, 2, 20), "Q8_0": (3, 2, 34)}


@pytest.mark.parametrize("dtype, name", [(np.float32, "F32"), (np.float16, "F16")])
def test_plain_floats(dtype, name):
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)
    result = dequantise(Tensor(values), name).numpy()
    assert result.dtype == np.float32 and np.array_equal(result, values.astype(np.float32))


def test_every_element(packed):
    name, data, meaning = packed
    result = dequantise(Tensor(data), name).numpy()
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, meaning, rtol=0, atol=1e-7 * np.abs(meaning).max())   # fused d·q + m


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


def test_rows_by_index(packed):
    name, data, meaning = packed
    ids = np.array([5, 0, 5, 2], np.int32)
    result = dequantise(Tensor(data)[Tensor(ids)], name).numpy()
    np.testing.assert_allclose(result, meaning[ids], rtol=0, atol=1e-7 * np.abs(meaning).max())


def test_inside_a_product(packed):
    name, data, meaning = packed
    x = np.random.default_rng(1).normal(size=(4, 96)).astype(np.float32)
    result = (Tensor(x) @ dequantise(Tensor(data), name).T).numpy()
    np.testing.assert_allclose(result, x @ meaning.T, rtol=0, atol=1e-5 * np.abs(x @ meaning.T).max())
