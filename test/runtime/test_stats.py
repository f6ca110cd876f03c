"""What stats() counts: launches, distinct bytes, and operations that clipped loops really do."""
import numpy as np
import pytest

import scheduled
from minivt import Variable, where
from scheduled import attention, causal, causal_array, counted, floats


def test_nothing_ran():
    with scheduled.stats() as s:
        pass
    assert (s.kernels, s.bytes_read, s.bytes_written, s.flops) == (0, 0, 0, 0)


def test_counts_of_a_sum():
    a, b = floats(30, 7), floats(30, 7)
    _, s = counted(lambda tensor, _: tensor(a) + tensor(b), "interpret")
    assert (s.kernels, s.bytes_read, s.bytes_written, s.flops) == (1, 2 * a.nbytes, a.nbytes, a.size)


def test_broadcast_operand_counts_once():
    a, b = floats(30, 7), floats(7)
    _, s = counted(lambda tensor, _: tensor(a) + tensor(b), "interpret")
    assert s.bytes_read == a.nbytes + b.nbytes


def test_contexts_nest():
    a = floats(4)
    with scheduled.stats() as outer:
        counted(lambda tensor, _: tensor(a) + 1, "interpret")
        _, inner = counted(lambda tensor, _: tensor(a) + 1, "interpret")
    assert inner.kernels == 1 and outer.kernels == 2


@pytest.mark.parametrize("size", [256, 300])
def test_flops_of_a_product(size):
    a, b = floats(64, size), floats(size, 64)
    _, s = counted(lambda tensor, _: tensor(a) @ tensor(b), "interpret")
    assert 1 <= s.flops / (2 * 64 * 64 * size) < 1.1


def test_causal_attention_is_half_the_work():
    whole = counted(attention(queries=512, keys=512)[0], "interpret")[1]
    half = counted(attention(causal, causal_array, queries=512, keys=512)[0], "interpret")[1]
    assert 0.5 < half.flops / whole.flops < 0.62


def test_window_is_a_part_of_the_work():
    def window(s, i, j, _):
        return where((j <= i) & (j > i - 64), s, scheduled.NEVER)
    whole = counted(attention(queries=512, keys=512)[0], "interpret")[1]
    part = counted(attention(window, queries=512, keys=512)[0], "interpret")[1]
    assert part.flops / whole.flops < 0.4


def test_variables_size_the_traffic():
    n, x = Variable("stats_n", 1, 100), floats(100, 4)
    for size in (1, 60, 100):
        n.bind(size)
        _, s = counted(lambda tensor, _: tensor(x)[:n] * 2, "interpret")
        assert s.bytes_read == s.bytes_written == size * 16
