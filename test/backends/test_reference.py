"""Sources, movement, scans, indices and effects, and whole graphs, against loops over elements or NumPy's indexing."""
import warnings

import ml_dtypes
import numpy as np
import pytest
from reference_arrays import Memory, run, same

from minivt import dtypes, ops
from minivt.backends.reference import MEANING
from minivt.errors import BoundsError
from minivt.graph import const, node
from minivt.scan import scan
from minivt.symbolic import add, idiv, mul, variable


@pytest.fixture(autouse=True)
def quiet():
    """No meaning may leak a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_every_primitive_has_a_meaning():
    assert set(MEANING) == set(ops.PRIMITIVES.values())


# --- source and movement ----------------------------------------------------------------------------------------------

def test_sources():
    n = variable("n", 1, 9)
    memory = Memory()
    value, half, count, ramp, ramp16 = memory.run(
        const(-0.0, dtypes.float32), const(1.00390625, dtypes.bfloat16), n, node(ops.ARANGE, (), n, dtypes.int32),
        node(ops.ARANGE, (), 300, dtypes.bfloat16), n=5)
    same(value, np.array(-0.0, np.float32))
    same(half, np.array(0x3F80, np.uint16))  # a tie goes to even
    same(count, np.array(5, np.int64))
    same(ramp, np.arange(5, dtype=np.int32))
    same(ramp16, np.arange(300, dtype=np.float32).astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("values", [{}, {"n": 0}, {"n": 10}])
def test_a_variable_without_value_or_out_of_bounds_raises(values):
    with pytest.raises(BoundsError, match="n "):
        Memory().run(variable("n", 1, 9), **values)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
def test_movement(dtype):
    x = np.arange(30).reshape(2, 3, 5).astype(dtype.storage)
    same(run(ops.RESHAPE, x, arg=(5, 6), types=[dtype]), np.array(x.ravel().tolist(), x.dtype).reshape(5, 6))
    same(run(ops.PERMUTE, x, arg=(2, 0, 1), types=[dtype]),
         np.array([[[x[a, b, c] for b in range(3)] for a in range(2)] for c in range(5)], x.dtype))
    same(run(ops.EXPAND, x[:, :1], arg=(2, 4, 5), types=[dtype]), np.stack([x[:, 0]] * 4, 1))
    padded = np.zeros((2, 6, 5), x.dtype)
    padded[:, 1:4] = x
    same(run(ops.PAD, x, arg=((0, 0), (1, 2), (0, 0)), types=[dtype]), padded)
    same(run(ops.SHRINK, x, arg=((1, 1), (0, 2), (3, 2)), types=[dtype]), x[1:2, 0:2, 3:5])
    same(run(ops.FLIP, x, arg=(0, 2), types=[dtype]), x[::-1, :, ::-1])


def test_movement_of_scalars_and_empty_arrays():
    scalar, empty = np.array(3.0), np.zeros((0, 4))
    same(run(ops.RESHAPE, scalar, arg=(1, 1)), np.array([[3.0]]))
    same(run(ops.PAD, scalar, arg=()), scalar)
    same(run(ops.SHRINK, scalar, arg=()), scalar)
    same(run(ops.FLIP, scalar, arg=()), scalar)
    same(run(ops.EXPAND, np.zeros((1, 1)), arg=(0, 4)), empty)
    same(run(ops.PAD, empty, arg=((1, 1), (0, 0))), np.zeros((2, 4)))
    same(run(ops.RESHAPE, empty, arg=(2, 0)), np.zeros((2, 0)))


@pytest.mark.parametrize("op, arg", [(ops.SHRINK, ((2, 3),)), (ops.SHRINK, ((-1, 2),))])
def test_a_region_outside_raises(op, arg):
    with pytest.raises(BoundsError, match="axis of size 4"):
        run(op, np.zeros(4), arg=arg)


def test_symbolic_sizes():
    n = variable("n", 1, 8)
    memory = Memory()
    x = memory(np.arange(8.0))
    head = node(ops.SHRINK, (x,), ((0, n),))
    tail = node(ops.SHRINK, (x,), ((add(mul(n, -1), 8), n),))
    total = node(ops.SUM, (node(ops.MUL, (head, tail)),), (0,))
    for count in (1, 5, 8):
        got, = memory.run(total, n=count)
        assert got == sum(i * (8 - count + i) for i in range(count))
    wide = node(ops.EXPAND, (node(ops.RESHAPE, (head,), (n, 1)),), (n, idiv(add(n, 1), 2)))
    same(memory.run(wide, n=3)[0], np.array([[0.0, 0], [1, 1], [2, 2]]))


# --- scan -------------------------------------------------------------------------------------------------------------

def test_scan_is_a_loop_over_axis_0():
    rng = np.random.default_rng(9)
    a, h, x = rng.random(4), rng.random(4), rng.random((6, 4))
    memory = Memory()
    factor = memory(a)

    def step(carry, rows):
        following = node(ops.ADD, (node(ops.MUL, (factor, carry[0])), rows[0]))
        return (following,), (node(ops.SUM, (following,), (0,)),)

    (last,), (sums,) = scan(step, (memory(h),), (memory(x),))
    got_last, got_sums = memory.run(last, sums)
    want = []
    for t in range(6):
        h = a * h + x[t]
        want.append(h.sum())
    np.testing.assert_allclose(got_last, h)
    np.testing.assert_allclose(got_sums, want)


def test_scan_of_several_carries_over_a_symbolic_length_and_no_steps():
    n = variable("n", 0, 9)
    memory = Memory()
    one = const(1, dtypes.int64)

    def fibonacci(carry, rows):
        a, b = carry
        return (b, node(ops.ADD, (a, b))), (a, rows[0])

    carries, ys = scan(fibonacci, (memory(np.int64(0)), one), (node(ops.ARANGE, (), n, dtypes.int64),))
    got = memory.run(*carries, *ys, n=7)
    assert [g.tolist() for g in got] == [13, 21, [0, 1, 1, 2, 3, 5, 8], list(range(7))]
    assert [g.tolist() for g in memory.run(*carries, *ys, n=0)] == [0, 1, [], []]


def test_nested_scans_capture_what_the_outer_step_holds():
    x = np.arange(12.0).reshape(3, 4)
    memory = Memory()

    def outer(carry, rows):
        def inner(total, item):
            return (node(ops.ADD, (total[0], node(ops.MUL, (item[0], carry[0])))),), ()
        (total,), _ = scan(inner, (const(0.0, dtypes.float64),), (rows[0],))
        return (node(ops.ADD, (carry[0], const(1.0, dtypes.float64))),), (total,)

    _, (totals,) = scan(outer, (const(1.0, dtypes.float64),), (memory(x),))
    same(memory.run(totals)[0], x.sum(1) * [1, 2, 3])


def test_scan_stacks_bfloat16():
    bits = np.array([0x3F80, 0x4000, 0x4040], np.uint16)
    memory = Memory()
    (last,), (ys,) = scan(lambda c, r: ((node(ops.ADD, (c[0], r[0])),), (c[0],)),
                          (const(0.0, dtypes.bfloat16),), (memory(bits, dtypes.bfloat16),))
    got, stacked = memory.run(last, ys)
    same(got, np.array(0x40C0, np.uint16))
    same(stacked, np.array([0, 0x3F80, 0x4040], np.uint16))


# --- index ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("index_type", [np.int8, np.int64, np.uint8, np.uint64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(axis, index_type):
    x = np.arange(1.0, 25.0).reshape(2, 3, 4)
    index = np.array([[0, 1, 3], [2, 100, np.iinfo(index_type).max]], index_type)
    if np.iinfo(index_type).min:
        index[:, 0] = -1, -2
    got = run(ops.GATHER, x, index, arg=axis)
    for place in np.ndindex(*got.shape):
        row = int(index[place[axis:axis + 2]])
        want = x[(*place[:axis], row, *place[axis + 2:])] if 0 <= row < x.shape[axis] else 0
        assert got[place] == want


def test_gather_from_nothing_by_a_scalar_and_of_bfloat16():
    same(run(ops.GATHER, np.zeros((0, 3)), np.array([0, 5]), arg=0), np.zeros((2, 3)))
    same(run(ops.GATHER, np.arange(6.0).reshape(2, 3), np.array(2), arg=1), np.array([2.0, 5.0]))
    same(run(ops.GATHER, np.array([1, 2], np.uint16), np.array([1, 9]), arg=0, types=[dtypes.bfloat16, dtypes.int64]),
         np.array([2, 0], np.uint16))
    same(run(ops.GATHER, np.arange(6.0).reshape(2, 3), np.zeros((0,), np.int32), arg=1), np.zeros((2, 0)))


@pytest.mark.parametrize("how", ["store", "add"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter(axis, how):
    rng = np.random.default_rng(10)
    base = rng.random((5, 6, 7))
    index = np.array([[4, 0], [-1, 100]])
    updates = rng.random((*base.shape[:axis], 2, 2, *base.shape[axis + 1:]))
    want = base.copy()
    for place in np.ndindex(*updates.shape):
        row = index[place[axis:axis + 2]]
        if 0 <= row < base.shape[axis]:
            at = (*place[:axis], row, *place[axis + 2:])
            want[at] = updates[place] + (want[at] if how == "add" else 0)
    given = base.copy()
    same(run(ops.SCATTER, base, index, updates, arg=(axis, how)), want)
    same(base, given)


def test_scatter_with_duplicates():
    base, index, updates = np.zeros(3), np.array([1, 1, 9, 9]), np.array([1.0, 2.0, 3.0, 4.0])
    same(run(ops.SCATTER, base, index, updates, arg=(0, "add")), np.array([0.0, 3.0, 0.0]))
    with pytest.raises(BoundsError, match="index 1 is stored twice"):
        run(ops.SCATTER, base, index, updates, arg=(0, "store"))
    big, tiny = 2.0 ** 60, 1.0
    order = np.array([big, tiny, -big])
    same(run(ops.SCATTER, np.zeros(1), np.zeros(3, int), order, arg=(0, "add")), np.array([0.0]))  # in index order
    same(run(ops.SCATTER, np.zeros(1), np.zeros(3, int), order[[0, 2, 1]], arg=(0, "add")), np.array([1.0]))


def test_scatter_of_nothing_and_into_nothing():
    same(run(ops.SCATTER, np.ones((2, 3)), np.zeros((0,), int), np.zeros((0, 3)), arg=(0, "store")), np.ones((2, 3)))
    same(run(ops.SCATTER, np.zeros((0, 3)), np.array([0, 0]), np.ones((2, 3)), arg=(0, "store")), np.zeros((0, 3)))


# --- effect -----------------------------------------------------------------------------------------------------------

def test_assign_yields_the_next_version_and_leaves_the_one_before():
    n = variable("n", 0, 3)
    memory = Memory()
    first = memory(np.zeros((4, 2)))
    second = node(ops.ASSIGN, (first, memory(np.ones((1, 2)))), ((n, 1), (0, 2)))
    third = node(ops.ASSIGN, (second, memory(np.full((2, 2), 7.0))), ((0, 2), (0, 2)))
    a, b, c = memory.run(first, second, third, n=1)
    same(a, np.zeros((4, 2)))
    same(b, np.array([[0, 0], [1, 1], [0, 0], [0, 0.0]]))
    same(c, np.array([[7, 7], [7, 7], [0, 0], [0, 0.0]]))
    beyond = node(ops.ASSIGN, (first, memory(np.ones((2, 2)))), ((3, 2), (0, 2)))
    with pytest.raises(BoundsError, match="axis of size 4"):
        memory.run(beyond)


def test_copy_and_contiguous_are_the_same_elements():
    x = np.arange(6.0).reshape(2, 3)
    same(run(ops.COPY, x, arg="cuda:0"), x)
    same(run(ops.CONTIGUOUS, x), x)


def test_custom_runs_the_kernels_meaning_once_for_all_outputs():
    class DivMod:
        output_shapes, output_dtypes = ((3,), (3,)), (dtypes.int32, dtypes.int32)
        calls = 0

        def meaning(self, x, y):
            self.calls += 1
            return x // y, x % y

    kernel, memory = DivMod(), Memory()
    inputs = memory(np.array([7, 8, 9], np.int32)), memory(np.array([2, 3, 4], np.int32))
    quotient, rest = memory.run(*(node(ops.CUSTOM, inputs, (kernel, i)) for i in range(2)))
    assert quotient.tolist() == [3, 2, 2] and rest.tolist() == [1, 2, 1] and kernel.calls == 1


# --- graphs -----------------------------------------------------------------------------------------------------------

def test_deep_and_shared_graphs():
    memory = Memory()
    chain = doubled = memory(np.array(1.0))
    one = const(1.0, dtypes.float64)
    for _ in range(100_000):
        chain = node(ops.ADD, (chain, one))
    for _ in range(200):
        doubled = node(ops.ADD, (doubled, doubled))
    got_chain, got_doubled = memory.run(chain, doubled)
    assert got_chain == 100_001 and got_doubled == 2.0 ** 200


def test_a_buffer_of_the_wrong_size_raises():
    memory = Memory()
    x = memory(np.zeros(3))
    memory.arrays[x.arg] = np.zeros(4)
    with pytest.raises(BoundsError, match="4 elements"):
        memory.run(x)
