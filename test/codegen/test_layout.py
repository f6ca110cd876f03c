"""Layouts: fragments are bijections onto tiles, slices and conversions follow from modes, swizzles avoid conflicts."""
import pytest

from minivt.codegen.layout import (Fragment, Mode, SharedTile, Spread, bank_conflicts, coalesce, span_bytes, swizzled,
                                   wgmma_accumulator, wgmma_operand)


def held(fragment, *axes):
    return [tuple(fragment(thread, register)[x] for x in axes)
            for thread in range(fragment.group) for register in range(fragment.size)]


@pytest.mark.parametrize("n", [8, 64, 256])
def test_accumulator_holds_each_element_once(n):
    layout = wgmma_accumulator(n)
    assert layout.group == 128 and layout.size == n // 2
    assert sorted(held(layout, "m", "n")) == [(m, j) for m in range(64) for j in range(n)]


def test_accumulator_as_the_manual_draws_it():
    layout = wgmma_accumulator(16)
    assert [layout(0, r) for r in range(4)] == [dict(m=m, n=n) for m, n in ((0, 0), (0, 1), (8, 0), (8, 1))]
    assert layout(5, 6) == dict(m=9, n=10) and layout(127, 0) == dict(m=55, n=6)


def test_repeat_grows_by_threads_then_registers():
    layout = wgmma_accumulator(64).repeat("m", threads=2, registers=2).repeat("n", registers=3)
    assert (layout.group, layout.extent("m"), layout.extent("n")) == (256, 256, 192)
    assert sorted(held(layout, "m", "n")) == [(m, n) for m in range(256) for n in range(192)]
    assert layout(128, 0)["m"] == 64 and layout(0, 32)["m"] == 128 and layout(0, 64)["n"] == 64


def test_row_statistic_is_a_slice():
    rows = wgmma_accumulator(128).without("n")
    assert rows.size == 2 and rows.group == 128
    assert all(rows(thread, 0) == rows(thread ^ 1, 0) == rows(thread ^ 2, 0) for thread in range(128))
    assert {rows(thread, r)["m"] for thread in range(128) for r in range(2)} == set(range(64))


def test_coalesce():
    assert coalesce((Mode(2, "k", 8), Mode(4, "k", 16))) == (Mode(8, "k", 8),)
    assert coalesce((Mode(2, "k", 1), Mode(1, "m", 5), Mode(2, "k", 2))) == (Mode(4, "k", 1),)
    assert coalesce((Mode(2, "k", 1), Mode(2, "m", 2))) == (Mode(2, "k", 1), Mode(2, "m", 2))


@pytest.mark.parametrize("k", [16, 64, 128])
def test_accumulator_columns_are_operand_columns(k):
    """Scores become the next product's first operand without moving: the same thread, the same register order."""
    columns = wgmma_accumulator(k).rename({"n": "j"}).spread("j")
    assert columns.same_places(wgmma_operand(k).rename({"k": "j"}).spread("j"))
    assert wgmma_accumulator(k).spread("m").same_places(wgmma_operand(k).spread("m"))
    plain = Fragment((Mode(128, "m", 1),), (Mode(k, "j", 1),))
    assert not columns.same_places(plain.spread("j"))


def test_spreads_share_threads_or_not():
    layout = wgmma_accumulator(64)
    assert not layout.spread("m").threads_overlap(layout.spread("n"))
    assert layout.spread("m").threads_overlap(Spread(((16, 2, 1),)))
    assert not layout.spread("n").threads_overlap(Spread(((4, 2, 1),)))


def test_swizzle_permutes_chunks_of_a_line():
    assert [swizzled(128 * r + 16 * c, 128) for r, c in ((0, 3), (1, 3), (7, 0), (8, 5))] == [
        48, 128 + 32, 7 * 128 + 112, 8 * 128 + 80]
    for span in (32, 64, 128):
        assert sorted(swizzled(o, span) for o in range(0, 2048, 16)) == list(range(0, 2048, 16))


@pytest.mark.parametrize("span", [128, 64, 32])
def test_reading_a_column_of_chunks_has_no_bank_conflicts(span):
    """Eight rows, one 16-byte chunk of each: what a matrix unit reads at a time."""
    tile = SharedTile(64, 64, 2, span, (64, 64))
    assert bank_conflicts([tile.address(row, 0) for row in range(8)], 16) == 1
    assert bank_conflicts([tile.offset(row, 0) for row in range(8)], 16) == span // 16


def test_shared_tile_panels():
    tile = SharedTile(128, 256, 2, span_bytes(256, 2), (128, 256))
    assert (tile.span, tile.panels, tile.panel_columns, tile.nbytes) == (128, 4, 64, 65536)
    assert tile.offset(3, 70) == 128 * 128 + 3 * 128 + 12
    assert tile.descriptor("columns") == (16, 1024) and tile.descriptor("rows") == (128 * 128, 1024)
    assert [span_bytes(c, 2) for c in (32, 16, 80, 8, 20)] == [64, 32, 32, None, None]
    assert len({tile.address(r, c) for r in range(128) for c in range(256)}) == 128 * 256
