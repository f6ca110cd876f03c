"""Loops are clipped to where masks can hold: exact intervals, and values that do not change."""
import numpy as np
import pytest

from minivt import dtypes, ops, where
from minivt.graph import const, node
from minivt.schedule.clipping import clip, is_masked_out
from minivt.symbolic import add, axis, evaluate, lt, le, mul
from scheduled import NEVER, agree, floats

BLOCK, ROW, KEY = axis("block", 10, "loop"), axis("row", 4, "tile"), axis("key", 8, "tile")
KEYS = add(mul(BLOCK, 8), KEY)       # keys 0 to 79 in ten blocks of eight


def intervals(*conditions):
    return [(evaluate(i.start, {}), evaluate(i.stop, {}), bool(i.holds)) for i in clip(BLOCK, list(conditions))]


@pytest.mark.parametrize("limit", range(0, 81))
def test_upper_limit_is_exact(limit):
    got = intervals(lt(KEYS, limit)) if 0 < limit < 80 else []
    touched = [b for start, stop, _ in got for b in range(start, stop)]
    whole = [b for start, stop, holds in got if holds for b in range(start, stop)]
    if got:
        assert touched == [b for b in range(10) if 8 * b < limit]
        assert whole == [b for b in range(10) if 8 * b + 7 < limit]


@pytest.mark.parametrize("limit", range(1, 80))
def test_lower_limit_is_exact(limit):
    got = intervals(le(limit, KEYS))
    assert [b for start, stop, _ in got for b in range(start, stop)] == [b for b in range(10) if 8 * b + 7 >= limit]
    inside = [b for start, stop, holds in got if holds for b in range(start, stop)]
    assert inside == [b for b in range(10) if 8 * b >= limit]


@pytest.mark.parametrize("first", range(0, 70, 3))
def test_causal_window_over_a_tile_of_rows(first):
    query = add(ROW, first)
    got = intervals(le(KEYS, query), lt(query, add(KEYS, 20)))
    rows = range(first, first + 4)

    def holds(b, quantifier):
        return quantifier(k <= q < k + 20 for q in rows for k in range(8 * b, 8 * b + 8))
    touched = [b for start, stop, _ in got for b in range(start, stop)]
    assert set(touched) >= {b for b in range(10) if holds(b, any)} and len(touched) <= 4
    assert [b for start, stop, h in got if h for b in range(start, stop)] == [b for b in range(10) if holds(b, all)]


def test_conditions_on_other_counters_clip_nothing():
    assert clip(BLOCK, [lt(ROW, 2)]) is None


def test_floats_do_not_clip():
    place = node(ops.CAST, (KEYS,), dtypes.float32)
    assert clip(BLOCK, [node(ops.LT, (place, const(3.5, dtypes.float32)))]) is None


def test_only_identities_are_masked_out():
    mask, x = lt(KEYS, 40), const(3.0, dtypes.float32)
    masked = node(ops.WHERE, (mask, x, const(NEVER, dtypes.float32)))
    assert is_masked_out(masked, mask, ops.MAX) and not is_masked_out(masked, mask, ops.SUM)
    assert is_masked_out(node(ops.EXP2, (masked,)), mask, ops.SUM)
    assert not is_masked_out(node(ops.WHERE, (mask, x, const(1.0, dtypes.float32))), mask, ops.SUM)
    assert not is_masked_out(node(ops.EXP2, (node(ops.NEG, (masked,)),)), mask, ops.SUM)


@pytest.mark.parametrize("outside", [0.0, 1.0, NEVER])
def test_sum_keeps_what_lies_outside_a_mask(outside, device):
    x = floats(4, 300)
    expected = np.where(np.arange(300) < 100, x, outside).sum(-1)
    agree(lambda tensor, count: where(count(300) < 100, tensor(x), outside).sum(-1), expected, device, 1,
          tolerance=1e-4)


def test_comparison_of_floats_in_a_mask(small_tiles):
    x, limits = floats(6, 30), np.array([3.5, -1, 29.5, 0, 100, 12], np.float32)
    expected = np.where(np.arange(30) < limits[:, None], x, 0).sum(-1)
    agree(lambda tensor, count: where(count(30).cast("float32") < tensor(limits).unsqueeze(1), tensor(x), 0.0).sum(-1),
          expected, "interpret")


def test_comparison_of_int32_from_memory(small_tiles):
    x, limits = floats(6, 30), np.array([3, -1, 29, 0, 100, 12], np.int32)
    expected = np.where(np.arange(30) < limits[:, None], x, 0).sum(-1)
    agree(lambda tensor, count: where(count(30).cast("int32") < tensor(limits).unsqueeze(1), tensor(x), 0.0).sum(-1),
          expected, "interpret")
