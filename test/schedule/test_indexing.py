"""Movement and gathers become index arithmetic that means the same as the graph, also where integers wrap around."""
import numpy as np
import pytest

from minivt import Tensor, Variable, dtypes, ops
from minivt.graph import const, node
from minivt.schedule.indexing import flatten, to_index, unflatten
from minivt.symbolic import axis, evaluate, bounds
from scheduled import agree, floats

X = floats(4, 6, 5)
MOVES = [
    lambda x: x.reshape(6, 20), lambda x: x.transpose(0, 2).reshape(10, 12), lambda x: x[1:3, ::2, ::-1],
    lambda x: x[:, 1:5].flip(1).reshape(8, 10)[3:, 2:9],
]
MOVES_ARRAY = [
    lambda x: x.reshape(6, 20), lambda x: x.swapaxes(0, 2).reshape(10, 12), lambda x: x[1:3, ::2, ::-1],
    lambda x: x[:, 1:5][:, ::-1].reshape(8, 10)[3:, 2:9],
]


@pytest.mark.parametrize("number", range(len(MOVES)))
def test_moves_are_one_kernel_that_reads_what_is_kept(number, device):
    expected = MOVES_ARRAY[number](X)
    agree(lambda tensor, _: MOVES[number](tensor(X)) * 1.5, expected * np.float32(1.5), device, 1, expected.size * 4)


def test_padding_of_a_reshaped_padding(device):
    x = floats(3, 4)
    expected = np.pad(np.pad(x, ((1, 0), (0, 2))).reshape(12, 2), ((0, 1), (1, 0)))
    agree(lambda tensor, _: tensor(x).pad(((1, 0), (0, 2))).reshape(12, 2).pad(((0, 1), (1, 0))), expected, device, 1)


def test_padding_of_what_is_not_zero_at_zero(device):
    x = floats(5)
    agree(lambda tensor, _: tensor(x).exp2().pad(((1, 2),)), np.pad(np.exp2(x), (1, 2)), device, 1)


def test_gather_outside_the_axis_is_zero(device):
    x, index = floats(9, 3), np.array([3, 9, 5000, -1, -9, -10])
    expected = np.stack([x[3], 0 * x[0], 0 * x[0], x[8], x[0], 0 * x[0]])
    agree(lambda tensor, _: tensor(x)[tensor(index)], expected, device, 1)


def test_gather_of_a_gather(device):
    x, a, b = floats(9, 3), np.array([8, 1, 4, 4]), np.array([3, 0])
    agree(lambda tensor, _: tensor(x)[tensor(a)[tensor(b)]].softmax(-1),
          np.exp(x[a[b]]) / np.exp(x[a[b]]).sum(-1, keepdims=True), device, 1)


@pytest.mark.parametrize("dtype, add, expected", [("int8", 300, 44), ("uint8", 255, 4), ("int16", 70000, 4469)])
def test_narrow_indices_wrap(dtype, add, expected, device):
    table = np.arange(5000, dtype=np.int64)
    start = np.array([5]) if dtype == "uint8" else np.array([0]) if dtype == "int8" else np.array([5])
    place = Tensor(start, device=device) + add
    got = Tensor(table, device=device)[place.cast(dtype).cast("int64")]
    assert got.tolist() == [expected]


def test_to_index_keeps_what_may_wrap():
    place = axis("i", 300, "tile")
    assert to_index(node(ops.CAST, (place,), dtypes.int16)) is place
    assert to_index(node(ops.CAST, (place,), dtypes.int8)) is not place
    byte = node(ops.CAST, (axis("j", 200, "tile"),), dtypes.uint8)
    assert bounds(to_index(node(ops.ADD, (byte, const(100, dtypes.uint8)))))[1] <= 255


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (1, 5, 1), (2, 0, 3)])
def test_unflatten_undoes_flatten(shape):
    for index in np.ndindex(shape):
        places = unflatten(flatten(tuple(const(i, dtypes.index) for i in index), shape), shape)
        assert tuple(evaluate(p, {}) for p in places) == index


def test_division_by_a_value_that_is_zero(device):
    agree(lambda tensor, count: (count(6) // (count(6) - 2)) * 0 + count(6) // 0, np.zeros(6), device, 1)


def test_sizes_and_starts_of_variables(device):
    n, start = Variable("indexing_n", 1, 6), Variable("indexing_start", 0, 3)
    x = floats(6, 6)
    for size, first in ((1, 3), (6, 0), (4, 2)):
        n.bind(size), start.bind(first)
        agree(lambda tensor, _: tensor(x)[:n, start:start + 3].T.reshape(3 * n) + 1,
              x[:size, first:first + 3].T.reshape(-1) + 1, device, 1)
