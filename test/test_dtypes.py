"""Element types, and bfloat16 code by code against ml_dtypes."""
import ml_dtypes
import numpy as np
import pytest

from minivt import dtypes
from minivt.dtypes import as_dtype, bfloat16_to_float, float_to_bfloat16
from minivt.errors import DTypeError

CODES = np.arange(1 << 16, dtype=np.uint16)


def rounded(values):
    """bfloat16 bits by ml_dtypes."""
    with np.errstate(invalid="ignore"):
        return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)


def test_every_bfloat16_code_widens_exactly():
    np.testing.assert_array_equal(bfloat16_to_float(CODES).view(np.uint32),
                                  CODES.view(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32))


def test_every_bfloat16_code_survives_the_way_there_and_back():
    back = float_to_bfloat16(bfloat16_to_float(CODES))
    nan = np.isnan(bfloat16_to_float(CODES))
    np.testing.assert_array_equal(back[~nan], CODES[~nan])
    np.testing.assert_array_equal(back[nan], CODES[nan] | 0x40)  # a signalling NaN becomes quiet


def test_rounding_to_bfloat16_at_and_around_every_tie():
    bits = CODES.astype(np.uint32) << 16
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        values = (bits | np.uint32(low)).view(np.float32)
        number = ~np.isnan(values)
        np.testing.assert_array_equal(float_to_bfloat16(values)[number], rounded(values)[number])
        assert np.isnan(bfloat16_to_float(float_to_bfloat16(values)[~number])).all()


def test_rounding_random_floats():
    bits = np.random.default_rng(0).integers(0, 1 << 32, 200_000, np.uint32)
    values = bits.view(np.float32)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(float_to_bfloat16(values)[number], rounded(values)[number])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4)], ids=str)
def test_conversions_keep_shapes(shape):
    values = np.full(shape, 1.5, np.float32)
    bits = float_to_bfloat16(values)
    assert bits.shape == shape and bits.dtype == np.uint16
    back = bfloat16_to_float(bits)
    assert back.shape == shape and back.dtype == np.float32


def test_conversions_take_any_strides():
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(float_to_bfloat16(values), rounded(values))
    np.testing.assert_array_equal(bfloat16_to_float(CODES.reshape(256, 256).T).view(np.uint32),
                                  bfloat16_to_float(CODES).reshape(256, 256).T.view(np.uint32))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
def test_sizes_kinds_and_storage(dtype):
    assert dtype.storage.itemsize == dtype.itemsize
    assert dtype.is_int == (dtype.kind in "iu") and dtype.is_float == (dtype.kind == "f")
    assert repr(dtype) == dtype.name and dtypes.BY_NAME[dtype.name] is dtype
    if dtype.numpy is not None:
        assert dtype.numpy.kind == dtype.kind


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
def test_as_dtype_by_name_and_numpy_type(dtype):
    assert as_dtype(dtype) is dtype and as_dtype(dtype.name) is dtype
    if dtype.numpy is not None:
        assert as_dtype(dtype.numpy) is dtype and as_dtype(dtype.numpy.type) is dtype


def test_as_dtype_by_python_type():
    assert as_dtype(bool) is dtypes.bool_ and as_dtype(int) is dtypes.int64 and as_dtype(float) is dtypes.float32


@pytest.mark.parametrize("value", ["complex64", "float8", np.complex128, "f4", object, None, 3], ids=str)
def test_other_types_are_refused_by_name(value):
    with pytest.raises(DTypeError, match="choose one of"):
        as_dtype(value)
