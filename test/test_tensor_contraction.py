"""matmul and einsum against NumPy."""
import numpy as np
import pytest

from comparison import check, random_array
from minivt import Tensor, Variable, arange, einsum
from minivt.errors import DTypeError, ShapeError


@pytest.mark.parametrize("a, b", [
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((7, 1, 3, 4), (2, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((3, 0), (0, 5)), ((0, 4), (4, 5)),
    ((1, 1), (1, 1))])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_matmul(a, b, dtype):
    rng = np.random.default_rng(1)
    x, y = random_array(rng, a, dtype), random_array(rng, b, dtype)
    check(Tensor(x) @ Tensor(y), x @ y, rtol=1e-5, atol=1e-5)
    check(Tensor(x) @ y, x @ y, rtol=1e-5, atol=1e-5)
    check(x @ Tensor(y), x @ y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_products_are_summed_in_float32(dtype):
    rng = np.random.default_rng(2)
    a, b = (Tensor(rng.normal(size=s).astype(np.float32)).cast(dtype) for s in ((8, 4096), (4096, 8)))
    exact = a.float().numpy().astype(np.float64) @ b.float().numpy()
    got = a @ b
    assert got.dtype.name == dtype
    np.testing.assert_allclose(got.float().numpy(), exact, rtol=2.0 ** -8, atol=1e-4)


@pytest.mark.parametrize("subscripts, shapes", [
    ("ij,jk->ik", [(3, 4), (4, 5)]), ("ij->ji", [(3, 4)]), ("ij->", [(3, 4)]), ("ij->j", [(3, 4)]),
    ("i,j->ij", [(3,), (4,)]), ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]), ("tgrd,gsd->grts", [(3, 2, 2, 4), (2, 5, 4)]),
    ("grts,gsd->tgrd", [(2, 2, 3, 5), (2, 5, 4)]), ("i,i,i->", [(6,), (6,), (6,)]),
    ("a b, b c -> c a", [(2, 3), (3, 4)]),
    ("...ij,...jk->...ik", [(7, 2, 3, 4), (2, 4, 5)]), ("...i->...", [(2, 3, 4)]), ("i...,i->...", [(3, 2, 4), (3,)]),
    ("ij,jk->ik", [(2, 1), (3, 4)]), (",->", [(), ()]), ("ij,k->ik", [(2, 3), (4,)])])
def test_einsum(subscripts, shapes):
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    check(einsum(subscripts, *map(Tensor, arrays)), np.einsum(subscripts, *arrays).astype(np.float32), rtol=1e-5,
          atol=1e-5)


def test_over_symbolic_sizes():
    n = Variable("n", 1, 8).bind(3)
    k = arange(n * 2).cast("float32").reshape(n, 2)
    q = Tensor(np.float32([[1, 2], [3, 4]]))
    expected = q.numpy() @ k.numpy().T
    np.testing.assert_allclose((q @ k.T).numpy(), expected)
    np.testing.assert_allclose(einsum("id,jd->ij", q, k).numpy(), expected)
    np.testing.assert_allclose(((q @ k.T) @ k).numpy(), expected @ k.numpy())


@pytest.mark.parametrize("wrong, error, message", [
    (lambda a, b: a @ b, ShapeError,
     "matmul: inner sizes differ, a is (4, 8) and b is (9, 3): a's last must equal b's second to last"),
    (lambda a, b: a @ b[:, 0], ShapeError, "matmul: inner sizes differ, a is (4, 8) and b is (9,)"),
    (lambda a, b: a @ 3, ShapeError,
     "matmul: shapes are (4, 8) and (); each needs at least one axis: use * for scalars"),
    (lambda a, b: (a > 0) @ (b[:8] > 0), DTypeError, "matmul: the operands have dtype bool; a number is needed: cast "
                                                     "first"),
    (lambda a, b: einsum("ij,jk", a, b), ShapeError,
     "einsum: the subscripts are 'ij,jk'; write inputs and output, like 'ij,jk->ik'"),
    (lambda a, b: einsum("ij,jk->ik", a, b), ShapeError,
     "einsum: label 'j' of 'ij,jk->ik' has sizes 8 and 9; they must be equal"),
    (lambda a, b: einsum("ij->ij", a, b), ShapeError, "einsum: 'ij->ij' names 1 inputs, 2 were given; name each"),
    (lambda a, b: einsum("ii->i", a), ShapeError, "einsum: 'ii' in 'ii->i' does not fit 2 axes; give each axis its own "
                                                  "letter, or use one Ellipsis"),
    (lambda a, b: einsum("ij->ik", a), ShapeError,
     "einsum: the output of 'ij->ik' must take its labels, and the Ellipsis, from the inputs")])
def test_errors(wrong, error, message):
    with pytest.raises(error) as caught:
        wrong(Tensor(np.zeros((4, 8), np.float32)), Tensor(np.zeros((9, 3), np.float32)))
    assert str(caught.value).startswith(message)
