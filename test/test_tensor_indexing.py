"""Reading and assigning parts of a Tensor against NumPy."""
import numpy as np
import pytest

import minivt
from comparison import check
from minivt import Tensor, Variable, arange, realize, zeros
from minivt.errors import BoundsError, DTypeError, ShapeError

X = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
S = np.s_
INDICES = [
    S[0], S[-1], S[1, 2, 3], S[..., -2], S[1, ..., 0], S[:], S[...], S[()], S[None], S[:, None, 1], S[..., None],
    S[1:3], S[:-1, 1:], S[2:2], S[3:1], S[10:], S[-100:100], S[::2], S[1::3], S[::-1], S[::-2, ::-1], S[3:0:-1],
    S[-2::-3], S[:0:-1], S[2:2:-1], S[:, ::2, ::5], S[None, ::-1, None, 2, 1:5:2], S[np.int64(1)], S[3, 4:1:-2]]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_basic_indexing(index):
    check(Tensor(X)[index], X[index])


def test_random_slices():
    rng = np.random.default_rng(1)
    for _ in range(200):
        size = int(rng.integers(0, 9))
        x = np.arange(size)
        start, stop = (None if rng.integers(4) == 0 else int(rng.integers(-12, 12)) for _ in range(2))
        step = int(rng.choice([-4, -3, -2, -1, 1, 2, 3, 4]))
        check(Tensor(x)[start:stop:step], x[start:stop:step])


@pytest.mark.parametrize("index", [
    S[[0, 2]], S[:, [4, -1, 0]], S[..., np.array([[0, -6], [5, 1]])], S[1, [2, 2]], S[:, np.array(3)], S[[]],
    S[None, [1], ..., ::2], S[::-1, [0, 1]]], ids=str)
def test_integer_arrays(index):
    check(Tensor(X)[index], X[index])
    as_tensors = tuple(Tensor(np.asarray(i, np.int64)) if isinstance(i, (list, np.ndarray)) else i
                       for i in (index if isinstance(index, tuple) else (index,)))
    check(Tensor(X)[as_tensors], X[index])


def test_integer_tensors_out_of_range_select_zero():
    table = Tensor(np.float32([[1, 2], [3, 4]]))
    check(table[Tensor([0, 2, -2, -3])], np.float32([[1, 2], [0, 0], [1, 2], [0, 0]]))
    check(table[Tensor(np.uint8([1, 255]))], np.float32([[3, 4], [0, 0]]))


def test_variables_as_indices():
    start = Variable("start", 0, 2)
    t = Tensor(X)
    for value in (0, 2):
        start.bind(value)
        check(t[start], X[value])
        check(t[start:start + 2, 1], X[value:value + 2, 1])
        check(t[:, start + 1:start + 3], X[:, value + 1:value + 3])
        np.testing.assert_array_equal(t[:start + 1].numpy(), X[:value + 1])
        np.testing.assert_array_equal(t[start:].numpy(), X[value:])
        np.testing.assert_array_equal((t[:start + 1] * 2).sum(0).numpy(), X[:value + 1].sum(0) * 2)
    assert t[:start + 1].shape == (start + 1, 5, 6) and t[start:start + 2].shape == (2, 5, 6)


@pytest.mark.parametrize("index, value", [
    (S[1], 7), (S[..., -1], np.arange(5)), (S[1:3, 2], np.float32(1.9)), (S[:], X[::-1]), (S[0, 0, 0], -1),
    (S[2:2], 5), (S[:, 1:4, :2], np.arange(2)), (S[...], 0)], ids=str)
def test_assignment(index, value):
    expected = X.copy()
    expected[index] = value
    t = Tensor(X)
    before, view = t + 0, t[0]
    t[index] = Tensor(value.copy()) if isinstance(value, np.ndarray) else value
    check(t, expected)
    check(before, X)
    check(view, X[0])


def test_assignments_follow_each_other():
    t = zeros((4,))
    t[1:3] = 1
    early = t * 10
    t[2] = t[1] + 5
    t[:2] += 1
    check(t, np.float32([1, 2, 6, 0]))
    check(early, np.float32([0, 10, 10, 0]))
    t.assign(arange(4))
    check(t, np.float32([0, 1, 2, 3]))


def test_states_that_begin_equal_stay_apart():
    a, b = zeros((3,)), zeros((3,))
    a[0], b[1] = 1, 2
    early = a + 0
    a[2] = 3
    realize(a, b, early)
    check(a, np.float32([1, 0, 3]))
    check(b, np.float32([0, 2, 0]))
    check(early, np.float32([1, 0, 0]))


def test_the_memory_of_an_array_is_not_assigned_to():
    array = np.zeros(3, np.float32)
    t, other = Tensor(array), Tensor(array)
    t[1] = 5
    check(t, np.float32([0, 5, 0]))
    assert not array.any() and not other.numpy().any()


def test_assigning_nothing_changes_nothing():
    t = Tensor(X)
    before = t.node
    t[2:2] = 5
    assert t.node is before


MIXED = [
    S[[0, 2], [1, -1]], S[[[0], [2]], :, [1, -1]], S[1, :, [2, 2]], S[:, 1, [2, 2]], S[:, [1, 2], 3],
    S[0, [1, 2], None], S[None, [1, 2], [0, 0]], S[[1, 2], None, [0, 0]], S[[0, 1], ..., [3, 4]],
    S[::2, [0, 4], ::-1], S[..., [1], [2], [3]],
    S[:, [[1, 2]], [[3], [4]]], S[1:3, [], [1]], S[[3, 1]], S[1, [0, 2], 3], S[[-4], ::-2, None, [5]]]
MASKS = [X > 50, X[:, :, 0] % 3 == 0, S[:, X[0] % 2 == 0], S[..., X[0, 0] > 3], S[1, X[0, :, 0] > 9, 2],
         X < 0, S[X[:, 0, 0] > 20, :, [1, 2, 0]], S[:, :, [True, False] * 3], S[None, X[:, :, 0] > 40],
         S[X[:, 0, 0] > 0, None]]


@pytest.mark.parametrize("index", MIXED + MASKS, ids=str)
def test_arrays_and_masks(index):
    """Reading and storing, with the axes where NumPy puts them; arrays and Tensors alike."""
    as_tensors = tuple(Tensor(np.asarray(i)) if isinstance(i, np.ndarray) or isinstance(i, list) and i else i
                       for i in (index if isinstance(index, tuple) else (index,)))
    value = (np.arange(X[index].size, dtype=np.int32) + 1000).reshape(X[index].shape)
    for given in (index, as_tensors):
        check(Tensor(X)[given], X[index])
    for given, stored in ((index, value), (as_tensors, 7), (index, value[..., -1:])):
        if stored is value or np.isscalar(stored) or stored.shape[-1]:
            expected, t = X.copy(), Tensor(X)
            expected[index] = stored
            before = t + 0
            t[given] = stored
            check(t, expected)
            check(before, X)


@pytest.mark.parametrize("index", [
    S[::2], S[::-1], S[3:0:-2, ::3], S[1, ::-1, 1::2], S[None, ::2, 1], S[..., ::-4], S[::3, [1, 2], ::2], S[::5, 0]],
    ids=str)
def test_steps_are_assigned(index):
    value = (np.arange(X[index].size, dtype=np.int32) + 1000).reshape(X[index].shape)
    for stored in (value, value[:1], 3):
        expected, t = X.copy(), Tensor(X)
        expected[index] = stored
        t[index] = stored
        check(t, expected)


def test_the_last_of_equal_places_stays():
    t, expected = zeros((4,)), np.zeros(4, np.float32)
    t[[1, 2, 1]] = expected[[1, 2, 1]] = np.float32([5, 6, 7])
    check(t, expected)


def test_tensor_places_outside_select_zero_and_store_nothing():
    t = Tensor(X)
    check(t[Tensor([0, 4, 1]), Tensor([0, 0, 5])], X[[0, 1, 1], [0, 0, 0]] * np.int32([[1], [0], [0]]))
    t[Tensor([4, 0, -5]), Tensor([0, 0, 1])] = -1
    expected = X.copy()
    expected[0, 0] = -1
    check(t, expected)


def test_a_mask_with_one_value_is_not_read():
    t = Tensor(X)
    with minivt.stats() as s:
        t[t > 50] = 0
    assert s.kernels == 0
    t.realize()
    check(t, np.where(X > 50, 0, X))


def test_assignment_at_variables():
    start = Variable("start", 0, 6)
    cache = zeros((8, 2)).realize()
    expected = np.zeros((8, 2), np.float32)
    for value in (0, 6, 3):
        start.bind(value)
        cache[start:start + 2] = Tensor(np.full((2, 2), value + 1, np.float32))
        cache.realize()
        expected[value:value + 2] = value + 1
        check(cache, expected)
    cache[start, 1] = 9
    expected[3, 1] = 9
    check(cache, expected)


@pytest.mark.parametrize("wrong, error, message", [
    (lambda t: t[4], BoundsError, "getitem: index 4 is not certainly inside axis 0 of size 4; keep it from 0 to the "
                                  "size - 1"),
    (lambda t: t[0, 0, -7], BoundsError, "getitem: index -1 is not certainly inside axis 2 of size 6"),
    (lambda t: t[0, 0, 0, 0], ShapeError, "getitem: 4 axes are indexed with 0 Ellipsis, the tensor has shape (4, 5, "
                                          "6); index at most 3 axes, with one Ellipsis"),
    (lambda t: t[..., ...], ShapeError, "getitem: 0 axes are indexed with 2 Ellipsis"),
    (lambda t: t[::0], ShapeError, "getitem: axis 0 is sliced with step 0; the step must not be 0"),
    (lambda t: t[1.5], DTypeError, "getitem: 1.5 is not an index; use integers, slices, None, Ellipsis or an integer "
                                   "tensor"),
    (lambda t: t[1.5:], DTypeError, "getitem: axis 0 is sliced by 1.5; bounds of slices are integers or Variables"),
    (lambda t: t[np.True_], DTypeError, "getitem: a single bool is not an index; use where, or an array of bools"),
    (lambda t: t[[True, False]], ShapeError, "getitem: the boolean mask has shape (2,), the axes it stands for (4,); "
                                             "they must be equal"),
    (lambda t: t.__setitem__(t[0] > 1, 0), ShapeError, "setitem: the boolean mask has shape (5, 6), the axes it stands "
                                                       "for (4, 5)"),
    (lambda t: t[[["a"]]], DTypeError, "getitem: the index array has dtype <U1; an integer dtype is needed"),
    (lambda t: t[[0, 4]], BoundsError, "getitem: the index array holds 0 to 4, axis 0 has size 4; places must be from "
                                       "-4 to 3"),
    (lambda t: t[Tensor([0.5])], DTypeError, "getitem: the index tensor has dtype float32; an integer dtype is needed"),
    (lambda t: t[[0, 1], [1, 2, 3]], ShapeError, "getitem: shapes (2,) and (3,) do not broadcast"),
    (lambda t: t[:Variable("n", 0, 9)], BoundsError, "getitem: the slice 0 to n (0 to 9) is not certainly inside axis "
                                                     "0 of size 4; tighten the bounds of its Variables"),
    (lambda t: t[Variable("n", 0, 9)], BoundsError,
     "getitem: index n (0 to 9) is not certainly inside axis 0 of size 4"),
    (lambda t: t.__setitem__(0, [1, 2]), ShapeError, "setitem: shapes (2,) and (5, 6) do not broadcast"),
    (lambda t: t.__setitem__(S[0, 0, 0], [1, 2]), ShapeError, "setitem: the value has shape (2,), the region () of (4, "
                                                              "5, 6); the value must broadcast to it"),
    (lambda t: t.assign(t[None].expand(2, -1, -1, -1)), ShapeError, "assign: the value has shape (2, 4, 5, 6), the "
                                                                    "region (4, 5, 6) of (4, 5, 6)")])
def test_errors(wrong, error, message):
    with pytest.raises(error) as caught:
        wrong(Tensor(X))
    assert str(caught.value).startswith(message)


def test_take():
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    places = np.array([[2, 0], [-1, 1]])
    for axis in (1, -2):
        np.testing.assert_array_equal(Tensor(x).take(places, axis).numpy(), np.take(x, places, axis))
