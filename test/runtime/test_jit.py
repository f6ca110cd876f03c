"""Capture and replay: every rule of minivt.jit, one by one."""
import gc
from collections import namedtuple

import numpy as np
import pytest

import minivt
from minivt import Tensor, Variable, arange, graph, zeros
from minivt.errors import BoundsError, CaptureError
from minivt.runtime import realize as runtime
from scheduled import DEVICES, floats, softmax


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def tensor(device):
    return lambda *values: Tensor(np.array(values, np.float32), device=device)


@pytest.fixture
def state(device):
    return lambda *values: Tensor(np.array(values, np.float32), device=device).contiguous().realize()


def test_replays_compute(device):
    step = minivt.jit(lambda x, y: (x @ y).softmax(-1))
    for _ in range(4):
        a, b = floats(3, 4), floats(4, 5)
        got = step(Tensor(a, device=device), Tensor(b, device=device)).numpy()
        np.testing.assert_allclose(got, softmax(a @ b), rtol=1e-5)


def test_earlier_results_stay(tensor):
    step = minivt.jit(lambda x: x * 2 + 1)
    assert [r.item() for r in [step(tensor(i)) for i in range(5)]] == [1, 3, 5, 7, 9]


def test_a_result_feeds_the_next_call(tensor):
    step, x, expected = minivt.jit(lambda x: x * 2 + x.sum()), tensor(1, 2), np.array([1., 2.])
    for _ in range(4):
        x, expected = step(x), expected * 2 + expected.sum()
    assert x.tolist() == expected.tolist()


def test_lazy_arguments_are_computed(tensor):
    step = minivt.jit(lambda x: x * 2)
    assert [step(tensor(i) + 1).item() for i in range(3)] == [2, 4, 6]


def test_one_tensor_as_two_arguments(tensor):
    step, x = minivt.jit(lambda x, y: x * 10 + y), tensor(1)
    assert step(x, x).item() == 11 and step(tensor(2), tensor(3)).item() == 23


# --- states ----------------------------------------------------------------------------------------------------------

def test_a_state_advances(device, tensor):
    cache, place = zeros((4,), device=device), Variable("jit_place", 0, 3)

    @minivt.jit
    def step(x, i):
        cache[i:i + 1] = x
        return cache.sum()
    assert [step(tensor(i + 1), place.bind(i)).item() for i in range(4)] == [1, 3, 6, 10]
    assert cache.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("hold", [lambda c: c + 0, lambda c: c[0:1], lambda c: c.numpy(), lambda c: c.reshape(2, 1)],
                         ids=["lazy", "slice", "array", "view"])
def test_who_holds_a_state_keeps_its_version(state, tensor, hold):
    cache = state(0, 0)

    @minivt.jit
    def step(x):
        cache[0:1] = x
        return cache + 0
    results, held = [], []
    for i in range(1, 5):
        results.append(step(tensor(i)))
        held.append(hold(cache))
    assert [r.tolist() for r in results] == [[n, 0] for n in (1, 2, 3, 4)]
    assert [np.asarray(h).flat[0] for h in held] == [1, 2, 3, 4]


def test_a_returned_state_is_a_value(state, tensor):
    cache = state(0, 0)

    @minivt.jit
    def step(x):
        cache[:] = cache + x
        return cache
    assert [r.tolist() for r in [step(tensor(1, 2)) for _ in range(3)]] == [[1, 2], [2, 4], [3, 6]]


def test_assignments_between_replays_are_seen(state, tensor):
    cache = state(0, 0)

    @minivt.jit
    def step(x):
        cache[:] = cache + x
        return cache * 1
    step(tensor(1, 1))
    cache[0:1] = 10.0
    assert step(tensor(1, 1)).tolist() == [11, 2] and cache.tolist() == [11, 2]


def test_an_assignment_pending_at_capture_happens_once(device, tensor):
    cache = zeros((2,), device=device) + 1
    cache[0:1] = 5.0

    @minivt.jit
    def step(x):
        cache[:] = cache + x
        return cache * 1
    assert [step(tensor(1, 1)).tolist() for _ in range(2)] == [[6, 2], [7, 3]]


def test_two_states_that_need_each_other(state):
    a, b = state(1), state(1)

    @minivt.jit
    def step():
        total = a + b
        a[:] = b
        b[:] = total
        return a * 1
    assert [step().item() for _ in range(6)] == [1, 2, 3, 5, 8, 13] and (a.item(), b.item()) == (13, 21)


def test_a_state_assigned_from_itself(state):
    x = state(0, 1, 2, 3)

    @minivt.jit
    def step():
        x[1:] = x[:-1]
        return x.sum()
    assert [step().item() for _ in range(3)] == [3, 1, 0] and x.tolist() == [0] * 4


def test_a_state_that_is_an_argument_too(state):
    x = state(1, 1)

    @minivt.jit
    def step(y):
        x[:] = x + y
        return x * 1
    assert [step(x).tolist() for _ in range(3)] == [[2, 2], [4, 4], [8, 8]]


def test_parameters_are_read_as_they_are_now(state, tensor):
    weight = state(1, 2)
    step = minivt.jit(lambda x: x * weight)
    assert step(tensor(1, 1)).tolist() == [1, 2]
    weight[0:1] = 10.0
    assert step(tensor(1, 1)).tolist() == [10, 2]


# --- structure -------------------------------------------------------------------------------------------------------

def test_nested_arguments_and_results(tensor):
    step = minivt.jit(lambda d, pair, *, k: {"s": d["a"] + pair[0], "t": [pair[1][0] * k, None, 5]})
    for i in range(3):
        result = step({"a": tensor(i)}, [tensor(2), (tensor(i + 3),)], k=tensor(2))
        assert result["s"].item() == i + 2 and result["t"][0].item() == 2 * (i + 3) and result["t"][1:] == [None, 5]


def test_named_tuples(tensor):
    Pair = namedtuple("Pair", "a b")
    step = minivt.jit(lambda p: Pair(p.a + p.b, p.b * 2))
    for i in range(2):
        result = step(Pair(tensor(i), tensor(2)))
        assert (result.a.item(), result.b.item()) == (i + 2, 4)


def test_constant_and_repeated_results(tensor, device):
    step = minivt.jit(lambda x: (x, arange(2, device=device))[1:] + (x + 1,) * 2)
    for i in range(2):
        counter, a, b = step(tensor(i))
        assert counter.tolist() == [0, 1] and a.item() == b.item() == i + 1


def test_no_result(tensor):
    step = minivt.jit(lambda x: None)
    assert step(tensor(1)) is None and step(tensor(1)) is None


# --- variables -------------------------------------------------------------------------------------------------------

def test_variables_at_their_bounds(device):
    n, x = Variable("jit_n", 1, 8), Tensor(np.arange(8, dtype=np.float32), device=device)
    total, double = minivt.jit(lambda x, n: x[:n].sum()), minivt.jit(lambda x, n: x[:n] * 2)
    for size in (3, 1, 8, 5):
        n.bind(size)
        assert total(x, n).item() == sum(range(size))
        assert double(x, n).tolist() == [2 * i for i in range(size)]


def test_temporaries_have_room_for_the_highest_bound(device):
    n, array = Variable("jit_rows", 1, 20), floats(20, 300)
    step = minivt.jit(lambda x, n: ((x[:n].softmax(-1) * 3).contiguous() @ x.T).contiguous().sum(0))
    for size in (1, 20, 7):
        expected = (3 * softmax(array[:size]) @ array.T).sum(0)
        got = step(Tensor(array, device=device), n.bind(size)).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_a_variable_outside_its_bounds_is_refused(tensor):
    with pytest.raises(BoundsError, match="jit_outside"):
        Variable("jit_outside", 1, 8).bind(9)


# --- what cannot be captured -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("function", [
    lambda x: x + x.sum().item(), lambda x: x + 1 if x.sum() > 0 else x - 1, lambda x: (x + 1).realize() * 2,
    lambda x: x + float(x.sum()), lambda x: x * len(x.tolist()), lambda x: (x.numpy(), x + 1)[1], lambda x: (x, x + 1)],
    ids=["item", "bool", "realize", "float", "tolist", "numpy", "argument returned"])
def test_refused_inside(function, tensor):
    with pytest.raises(CaptureError):
        minivt.jit(function)(tensor(1, 2))
    assert (tensor(1, 2) + 1).tolist() == [2, 3]  # nothing is left half captured


def test_the_line_is_named(tensor):
    with pytest.raises(CaptureError, match=r"test_jit\.py:\d+"):
        minivt.jit(lambda x: x.sum().item())(tensor(1))


def test_other_calls_than_the_first_are_refused(tensor, device):
    step = minivt.jit(lambda x, k=1: x + k)
    step(tensor(1, 2), 3)
    integers = Tensor(np.zeros(2, np.int32), device=device)
    for args in [(tensor(1, 2, 3), 3), (integers, 3), (tensor(1, 2), 4), (tensor(1, 2),)]:
        with pytest.raises(CaptureError):
            step(*args)
    assert step(tensor(1, 2), 3).tolist() == [4, 5]


@pytest.mark.parametrize("argument", [np.ones(2), {1, 2}], ids=["array", "set"])
def test_arguments_that_cannot_be_compared_are_refused(tensor, argument):
    with pytest.raises(CaptureError, match=type(argument).__name__):
        minivt.jit(lambda x, y: x + 1)(tensor(1), argument)


def test_another_variable_is_refused(tensor):
    n, m = Variable("jit_first", 0, 8).bind(3), Variable("jit_second", 0, 8).bind(4)
    step = minivt.jit(lambda x, n: x + n)
    step(tensor(1), n)
    with pytest.raises(CaptureError):
        step(tensor(1), m)


def test_an_error_inside_leaves_nothing(tensor):
    def broken(x):
        raise KeyError("mine")
    with pytest.raises(KeyError):
        minivt.jit(broken)(tensor(1))
    assert (tensor(1) + 1).item() == 2


def test_a_thousand_replays_leak_nothing():
    cache, place = zeros((8,), device="interpret"), Variable("jit_leak", 0, 7)

    @minivt.jit
    def step(x, i):
        cache[i:i + 1] = x
        return {"sum": cache.sum(), "pair": [x + 1]}
    x = Tensor(np.ones(1, np.float32), device="interpret")

    def replay(times):
        for i in range(times):
            step(x, place.bind(i % 8))["sum"].item()
        gc.collect()
        return len(gc.get_objects()), len(graph._TABLE), len(runtime.LIVE)
    before, after = replay(50), replay(1000)
    assert all(b - a < 10 for a, b in zip(before, after))
