"""Variables: integer arithmetic on sizes, and their use as numbers."""
import pytest

from comparison import check
from minivt import Tensor, Variable
from minivt.errors import ShapeError

import numpy as np


def test_arithmetic_gives_sizes_and_ints():
    n = Variable("n", 2, 10).bind(5)
    for got, expected in ((n + 1, 6), (1 + n, 6), (n - 3, 2), (20 - n, 15), (n * 4, 20), (4 * n, 20), (-n, -5),
                          (n * n, 25), ((n + 1) // 4, 1), (n % 3, 2), ((n * 6) // 3, 10)):
        assert got.value == expected
    assert n - n == 0 and isinstance(n - n, int)
    assert (n * 4) // 4 == n and (n + 7) - n == 7 and n + 1 == 1 + n and n != n + 1 and hash(n + 1) == hash(1 + n)
    assert (n + 1).bounds == (3, 11) and repr(n * 2 + 1) == "((n * 2) + 1)"


def test_order_is_decided_by_bounds():
    n = Variable("n", 2, 10)
    assert n >= 2 and n < 11 and n > 1 and n <= 10 and n and not n > 10
    with pytest.raises(ShapeError) as caught:
        n < 5
    assert str(caught.value) == "the order of n and 5 depends on the values of variables; compare their bounds instead"
    with pytest.raises(TypeError):
        range(n)


def test_as_numbers_beside_tensors():
    n = Variable("n", 0, 9).bind(3)
    x = np.float32([1, 2])
    check(Tensor(x) * n, x * 3)
    check(n + Tensor(x), x + 3)
    check(n - Tensor(np.int8([1, 2])), np.int8([2, 1]))
    check(Tensor([2, 3, 4]) <= n, [True, True, False])
    check(n < Tensor([2, 3, 4]), [False, False, True])
    check(Tensor([True, False]).where(n, 0), np.array([3, 0]))


def test_a_later_value_is_seen():
    n = Variable("n", 0, 9).bind(1)
    t = Tensor([10]) + n
    n.bind(7)
    assert t.item() == 17
