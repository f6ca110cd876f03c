"""Windows of a contraction: which are shared, that the copies are small, and values on each instruction set."""
import numpy as np
import pytest
from cpu_kernels import TARGETS, check, each_level

from minivt import Tensor, dtypes, ops
from minivt.codegen.tile import Param, load
from minivt.codegen.vectorize import lower_cpu
from minivt.codegen.windows import shared_window
from minivt.graph import const, node
from minivt.schedule.schedule import make_schedule
from minivt.symbolic import add, axis, both, le, lt, mul

P = Param(0, dtypes.float32, 1 << 16)
T, C, K = axis("t", 56, "tile"), axis("c", 4, "tile"), axis("k", 3, "tile")


def test_a_sum_of_counters_becomes_one():
    value = load(P, add(mul(C, 60), T, K))
    window = shared_window(value, (C, K))
    (u, total), = window.sums
    assert u.arg[1] == 58 and total is add(T, K)
    assert window.axes == (C, u)
    assert window.value is load(P, add(mul(C, 60), u))
    assert window.moves_by_one(T) and not window.moves_by_one(C)


def test_strides_and_dilations_share_by_their_greatest_common_divisor():
    k = axis("k", 9, "tile")
    (u, total), = shared_window(load(P, add(mul(T, 6), mul(k, 4))), (k,)).sums
    assert total is add(mul(T, 3), mul(k, 2)) and u.arg[1] == 3 * 55 + 2 * 8 + 1


def test_a_difference_counts_from_its_lowest_value():
    value = node(ops.MUL, (load(P, add(T, mul(K, -1), 5)), const(2.0, dtypes.float32)))
    (u, total), = shared_window(value, (K,)).sums
    assert total is add(T, mul(K, -1), 2) and u.arg[1] == 58
    assert shared_window(value, (K,)).value is node(ops.MUL, (load(P, add(u, 3)), const(2.0, dtypes.float32)))


def test_masks_move_with_the_window():
    inside = both(le(1, add(T, K)), lt(add(T, K), 57))
    window = shared_window(load(P, add(T, K), inside), (K,))
    u = window.sums[0][0]
    assert window.value is load(P, u, both(le(1, u), lt(u, 57)))


def test_a_limit_of_the_kept_counter_becomes_the_limit_of_its_sums():
    grid = axis("g", 9, "grid")
    value = load(P, add(mul(grid, 56), T, K), lt(add(mul(grid, 56), T), 500))
    window = shared_window(value, (K,))
    u = window.sums[0][0]
    assert window.value is load(P, add(mul(grid, 56), u), lt(add(mul(grid, 56), u), 502))


@pytest.mark.parametrize("value", [
    load(P, add(mul(T, 3), K)),                                                    # windows side by side share nothing
    load(P, mul(C, 60)),                                                           # no window
    load(P, add(T, K), lt(K, 2)),                                                  # depends on the place alone too
    load(P, add(T, K), lt(add(T, mul(K, 2)), 50)),                                 # through two different sums
    node(ops.MUL, (load(P, add(T, K)), node(ops.CAST, (T,), dtypes.float32)))])    # and on the result's place alone
def test_what_is_not_shared(value):
    assert shared_window(value, (C, K)) is None


def programs(result, target):
    return [launch.program for launch in make_schedule([result.node], target, lambda buffer: False).launches]


def image(*shape):
    return Tensor(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32))


@each_level
@pytest.mark.parametrize("x, w, options", [
    ((1, 16, 14, 20), (24, 16, 3, 3), dict(padding=1)), ((2, 8, 9, 40), (8, 8, 3, 5), dict(stride=(1, 2))),
    ((1, 8, 13, 23), (16, 8, 3, 3), dict(padding=2, dilation=2)), ((1, 32, 300), (16, 32, 7), dict(padding=3)),
    ((1, 12, 19, 19), (12, 6, 3, 3), dict(stride=2, groups=2, padding=1))])
def test_convolutions(level, x, w, options):
    x, w = image(*x), image(*w)
    result = x.conv1d(w, **options) if x.ndim == 3 else x.conv2d(w, **options)
    program, = programs(result, TARGETS[level])
    arrays = [x.numpy().copy().ravel(), w.numpy().copy().ravel(), np.zeros(result.size, np.float32)]
    check(program, arrays, level=level, rtol=1e-4, atol=1e-4)


def test_a_window_is_copied_once_and_not_for_each_place():
    x, w = Tensor(np.zeros((1, 64, 56, 56), np.float32)), Tensor(np.zeros((64, 64, 3, 3), np.float32))
    program, = programs(x.conv2d(w, padding=1), TARGETS["avx512"])
    rows, patch = 4, 64 * 6 * 64  # rows of results of a block; its input: channels, rows + 2, columns padded to vectors
    results, weights = 64 * rows * 64, 64 * 576
    kernel = lower_cpu(program, TARGETS["avx512"])
    assert kernel.scratch_bytes <= 4 * (patch + results + weights) + 1024 < 4 * (576 * rows * 56 + results)
