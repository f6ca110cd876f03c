"""Making tensors: functions of creation.py and the constructor."""
import subprocess
import sys

import numpy as np
import pytest

import minivt
from comparison import check, on_host
from minivt import Tensor, Variable, arange, eye, from_numpy, full, linspace, ones, zeros
from minivt.errors import DTypeError, ShapeError


def test_constants():
    check(zeros((2, 3)), np.zeros((2, 3), np.float32))
    check(ones([0, 3], "int8"), np.ones((0, 3), np.int8))
    check(ones(4, "bool"), np.ones(4, bool))
    check(full((2,), 7), np.array([7, 7]))
    check(full((), 0.5, "float16"), np.float16(0.5))
    check(full((1,), True), [True])
    check(Tensor(np.float32([[1, 2]])).full_like(3), np.float32([[3, 3]]))
    check(Tensor(np.int8([1])).zeros_like(), np.int8([0]))


@pytest.mark.parametrize("arguments", [(5,), (0,), (2, 7), (7, 2), (2, 9, 3), (9, 2, -3), (-3, 3, 2)])
def test_arange(arguments):
    check(arange(*arguments), np.arange(*arguments))
    check(arange(*arguments, dtype="float32"), np.arange(*arguments, dtype=np.float32))
    check(arange(*arguments, dtype="int8"), np.arange(*arguments, dtype=np.int8))


def test_arange_of_floats_and_variables():
    check(arange(0.5, 3.0, 0.5), np.arange(0.5, 3.0, 0.5, dtype=np.float32))
    check(arange(2.5), np.arange(2.5, dtype=np.float32))
    n = Variable("n", 1, 9).bind(4)
    np.testing.assert_array_equal(arange(n).numpy(), np.arange(4))
    np.testing.assert_array_equal(arange(n, n + 3).numpy(), np.arange(4, 7))
    np.testing.assert_array_equal(arange(0, n, 2).numpy(), np.arange(0, 4, 2))
    np.testing.assert_array_equal(arange(n, 0, -3).numpy(), [4, 1])
    assert arange(n, n + 3).shape == (3,)


def test_eye_and_linspace():
    check(eye(3), np.eye(3, dtype=np.float32))
    check(eye(2, 4, "int32"), np.eye(2, 4, dtype=np.int32))
    check(linspace(-1, 2, 7), np.linspace(-1, 2, 7, dtype=np.float32), atol=2e-7)
    check(linspace(3, 5, 1), np.float32([3]))


def test_from_python():
    check(Tensor([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))
    check(Tensor([0.5, 1]), np.float32([0.5, 1]))
    check(Tensor([]), np.zeros(0, np.float32))
    check(Tensor(3), np.array(3))
    check(Tensor(2.5), np.float32(2.5))
    check(Tensor([True, False]), [True, False])
    check(Tensor([1, 2], "float16"), np.float16([1, 2]))
    check(Tensor(range(3)), np.arange(3))
    check(Tensor(Variable("n", 0, 5).bind(4)) + 1, np.array(5))
    assert Tensor(1.5, "bfloat16").dtype.name == "bfloat16" and Tensor(1.5, "bfloat16").item() == 1.5
    check(Tensor([1.0, 2.0 ** -9 + 1], "bfloat16").float(), np.float32([1, 1]))


@pytest.mark.parametrize("array", [
    np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3).T, np.arange(9)[::-2], np.zeros((0, 3), np.int8),
    np.array(5, np.uint8), np.broadcast_to(np.float32(1), (2, 2)), np.float64(2.0), np.bool_(True)], ids=str)
def test_from_arrays(array):
    check(Tensor(array) if not isinstance(array, float) else Tensor(np.array(array)), array)


@on_host
def test_contiguous_arrays_are_not_copied():
    array = np.arange(6, dtype=np.float32)
    assert np.shares_memory(from_numpy(array).numpy(), array)


@pytest.mark.parametrize("wrong, error, message", [
    (lambda: zeros((2, -1)), ShapeError, "full: the shape is (2, -1); sizes must not be negative"),
    (lambda: zeros((2, 0.5)), ShapeError, "full: the shape is (2, 0.5); every size must be an integer"),
    (lambda: full((2,), "x"), DTypeError, "full: value is 'x'; a Python number or a Variable is needed"),
    (lambda: full((2,), 300, "uint8"), DTypeError, "full: 300 does not fit uint8, which holds 0 to 255"),
    (lambda: arange(0, 5, 0), DTypeError, "arange: start, stop and step are 0, 5 and 0; numbers are needed, and a step "
                                          "that is not 0"),
    (lambda: linspace(0, 1, 0), ShapeError, "linspace: count is 0; a positive integer is needed"),
    (lambda: arange(Variable("n", 0, 3), 2), ShapeError, "arange: from n to 2 by 1 may have a negative length"),
    (lambda: Tensor([[1], [1, 2]]), ShapeError, "Tensor: data is a ragged list"),
    (lambda: Tensor(["a"]), DTypeError, "Tensor: data has elements of type <U1; numbers or bools are needed"),
    (lambda: Tensor([Tensor(1)]), DTypeError, "Tensor: data is a list of Tensors; join them with stack or cat"),
    (lambda: Tensor(Tensor(1)), DTypeError, "Tensor: data is a Tensor already; use cast, to or contiguous"),
    (lambda: Tensor(np.zeros(1, np.complex64)), DTypeError, "dtype: complex64 is not supported; choose one of")])
def test_errors(wrong, error, message):
    with pytest.raises(error) as caught:
        wrong()
    assert str(caught.value).startswith(message)


def test_public_names_exist_and_import_is_light():
    for name in minivt.__all__:
        assert getattr(minivt, name) is not None
    with pytest.raises(AttributeError):
        minivt.no_such_name
    code = "import sys, minivt; minivt.Tensor; print([m for m in ('llvmlite', 'safetensors') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
