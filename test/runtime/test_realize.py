"""Values are values: assigned states, versions, shared memory of temporaries, and devices."""
import gc

import numpy as np
import pytest

import minivt
from minivt import Tensor, Variable, arange, graph, zeros
from minivt.errors import MinivtError
from scheduled import DEVICES, floats


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def state(device):
    """state(array): a tensor with memory of its own."""
    return lambda array: Tensor(np.asarray(array, np.float32), device=device).contiguous().realize()


def test_a_slice_does_not_alias(state):
    x = state(range(6))
    part, view = x[1:4], x.reshape(2, 3)
    x[0:3] = 0.0
    assert x.tolist() == [0, 0, 0, 3, 4, 5] and part.tolist() == [1, 2, 3] and view.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_arrays_of_a_user_stay(device):
    array = np.arange(4, dtype=np.float32)
    x = Tensor(array, device=device)
    x[0:2] = 9.0
    assert x.tolist() == [9, 9, 2, 3] and array.tolist() == [0, 1, 2, 3]


def test_an_array_that_was_read_stays(state):
    x = state(range(4))
    seen = x.numpy()
    x[0:1] = 5.0
    x.realize()
    assert seen.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("first", ["old", "new", "both"])
def test_an_old_version_is_still_read(state, first):
    x = state(range(4))
    old = x + 1
    x[0:2] = 9.0
    minivt.realize(*{"old": (old,), "new": (x,), "both": (x, old)}[first])
    assert old.tolist() == [1, 2, 3, 4] and x.tolist() == [9, 9, 2, 3]


def test_many_versions(state):
    x, expected, old = state(range(4)), [np.arange(4.0)], []
    for i in range(4):
        old.append(x * 2)
        x[i:i + 1] = -1.0
        expected.append(np.where(np.arange(4) <= i, -1.0, np.arange(4)))
    minivt.realize(x, *old)
    assert x.tolist() == expected[4].tolist()
    assert [o.tolist() for o in old] == [(2 * e).tolist() for e in expected[:4]]


def test_a_version_between_two_assignments_is_a_result(state):
    x = state([0, 0, 0])
    x[0:1] = 1.0
    between = x[:]
    x[1:2] = 2.0
    assert between is not x
    minivt.realize(x, between)
    assert x.tolist() == [1, 2, 0] and between.tolist() == [1, 0, 0]


def test_double_assignment(state):
    x = state([0] * 4)
    x[0:2] = 1.0
    x[1:3] = 2.0
    assert x.tolist() == [1, 2, 2, 0]


@pytest.mark.parametrize("size", [6, 30000])
@pytest.mark.parametrize("change, expected", [
    (lambda x: x.__setitem__(slice(1, None), x[:-1]), lambda a: np.concatenate([a[:1], a[:-1]])),
    (lambda x: x.__setitem__(slice(None, -1), x[1:]), lambda a: np.concatenate([a[1:], a[-1:]])),
    (lambda x: x.__setitem__(slice(None), x.flip(0)), lambda a: a[::-1]),
    (lambda x: x.__setitem__(slice(None), x + 1), lambda a: a + 1),
    (lambda x: x.__setitem__(slice(0, 1), x.max(keepdims=True)), lambda a: np.concatenate([a[-1:], a[1:]])),
], ids=["right", "left", "flip", "add", "reduce"])
def test_assigning_from_itself(state, size, change, expected):
    array = np.arange(size, dtype=np.float32)
    x = state(array)
    change(x)
    assert np.array_equal(x.numpy(), expected(array))


@pytest.mark.parametrize("order", [1, -1])
def test_exchange(state, order):
    a, b = state([0, 1, 2]), state([0, 10, 20])
    old = a + 0
    a[:] = b
    b[:] = old
    minivt.realize(*(a, b)[::order])
    assert a.tolist() == [0, 10, 20] and b.tolist() == [0, 1, 2]


def test_two_states_that_need_each_other(state):
    a, b = state([1]), state([1])
    for _ in range(6):
        total = a + b
        a[:] = b
        b[:] = total
    minivt.realize(a, b)
    assert (a.item(), b.item()) == (13, 21)


def test_what_is_realised_after_a_bind_sees_it(device):
    v, x = Variable("realize_v", 0, 9).bind(1), Tensor(np.zeros(2, np.float32), device=device)
    first, second = x + v, x + v
    assert first.tolist() == [1, 1]
    v.bind(2)
    assert second.tolist() == [2, 2]


@pytest.mark.parametrize("place", ["interpret", "reference", "cpu"])
def test_constants_are_made_on_their_device(place):
    counter = arange(3, device=place)
    assert counter.tolist() == [0, 1, 2]
    assert (counter + Tensor(np.ones(3, np.int64), device=place)).tolist() == [1, 2, 3]


def test_results_and_temporaries_do_not_share_memory(device):
    """Chains of cut values whose lives overlap in every way."""
    rng = np.random.default_rng(0)
    for _ in range(15):
        arrays = [rng.integers(-3, 4, int(rng.integers(1, 40))).astype(np.float32) for _ in range(3)]
        pool = [(Tensor(a, device=device), a) for a in arrays]
        for _ in range(25):
            (t, a), (u, b) = (pool[int(rng.integers(len(pool)))] for _ in range(2))
            size = min(a.size, b.size)
            pool.append(((t[:size] - u[:size]).clip(-9, 9).contiguous(), np.clip(a[:size] - b[:size], -9, 9)))
        kept = [pool[int(n)] for n in rng.choice(len(pool), 6, replace=False)]
        minivt.realize(*(t for t, _ in kept))
        for t, a in kept:
            assert np.array_equal(t.numpy(), a)


def test_realising_leaks_nothing():
    array = floats(64)

    def run():
        (Tensor(array, device="interpret") + 1).softmax(-1).numpy()
    for _ in range(20):
        run()
    gc.collect()
    objects, nodes = len(gc.get_objects()), len(graph._TABLE)
    for _ in range(100):
        run()
    gc.collect()
    assert len(gc.get_objects()) - objects < 20 and len(graph._TABLE) - nodes < 20


def test_a_result_of_symbolic_size_is_not_read_at_another(device):
    n, x = Variable("realize_n", 1, 8).bind(2), Tensor(np.arange(8, dtype=np.float32), device=device)
    doubled = (x[:n] * 2).realize()
    n.bind(5)
    with pytest.raises(MinivtError):
        doubled.numpy()
    n.bind(2)
    assert doubled.tolist() == [0, 2]


@pytest.mark.parametrize("same", [
    lambda x: x[:], lambda x: x[...], lambda x: x.reshape(3), lambda x: x.cast("float32"), lambda x: x.to(x.device),
    lambda x: x.expand(3), lambda x: x.permute(0), lambda x: x.flatten(), lambda x: x.pad(((0, 0),)),
    lambda x: x.roll(0, 0), lambda x: x.bitcast("float32"), lambda x: x.sum(()), lambda x: x.contiguous()])
def test_what_changes_nothing_is_another_tensor(state, same):
    x = state([0, 0, 0])
    before = same(x)
    x[0:1] = 1.0
    assert before.tolist() == [0, 0, 0]
