"""Loops whose two products overlap, and dependences that forbid it."""
import numpy as np
import pytest

import tile_examples as ex
from minivt import dtypes, ops
from minivt.backends.reference_threads import run
from minivt.codegen import thread as t
from minivt.codegen.distribute import distribute
from minivt.codegen.overlap import overlap
from minivt.codegen.pipeline import feeds
from minivt.codegen.stage import products, statements
from minivt.codegen.target import SM_90A
from minivt.codegen.tile import LOOP, READ, Tile, read, set_tile
from minivt.graph import walk

ATTENTION = ex.attention(2, 1, 512, 64, (128, 64))


def parts_of(change=lambda body: body):
    """The overlap of the interior loop's statements after a change to them."""
    found = products(ATTENTION.body, SM_90A)
    feed = feeds(ATTENTION.body, found, SM_90A)
    loop = next(s for s in statements(ATTENTION.body) if s.op is LOOP)
    return overlap(tuple(change(list(loop.src[0].src))), found, feed)


def named(body, name):
    return next(s for s in body if s.arg.tile.name == name)


def test_attention_overlaps():
    parts = parts_of()
    assert (parts.first.arg.tile.name, parts.last.arg.tile.name) == ("s", "o")
    assert [s.arg.tile.name for s in parts.bound] == ["o"]          # the rescaling waits for the sum
    assert [s.arg.tile.name for s in parts.free] == ["x", "n", "n", "a", "p", "l", "l", "m"]


def insert_after(name, statement):
    def change(body):
        place = max(i for i, s in enumerate(body) if s.arg.tile.name == name)
        return [*body[:place + 1], statement(body), *body[place + 1:]]
    return change


def test_a_statistic_of_the_sum_forbids_it():
    """Something else reads the second product's sum in the loop."""
    total = next(n.arg for s in statements(ATTENTION.body) for n in walk(s) if n.op is READ and n.arg.name == "o")
    other = Tile("norm", total.axes, dtypes.float32)
    assert parts_of(insert_after("o", lambda body: set_tile(other, read(total)))) is None


def test_overwriting_what_the_rescaling_reads_forbids_it():
    """The rescaling would run after the statement that follows it, and read the new ratio."""
    def twice(body):
        ratio = named(body, "a").arg.tile
        return set_tile(ratio, ex.op(ops.MUL, read(ratio), ex.f32(2)))
    assert parts_of(insert_after("o", twice)) is None


def test_a_sum_of_scores_forbids_it():
    """The first product must start from nothing."""
    assert parts_of(lambda body: body[1:]) is None


@pytest.mark.parametrize("size, loops", [(64, 0), (200, 1)])
def test_one_and_several_iterations(size, loops):
    """The first iteration is outside the loop, the last product too; one iteration needs no loop at all."""
    random = np.random.default_rng(0)
    q, k, v = (dtypes.float_to_bfloat16(random.standard_normal((1, size, 64)).astype(np.float32)) for _ in range(3))
    out = np.full((1, size, 64), 0x7FFF, np.uint16)
    program = distribute(ex.attention(1, 1, size, 64, (64, 64)), SM_90A)
    assert sum(n.op is t.SETTLE and n.arg[0] == 1 for n in walk(program.body)) == loops
    run(program, [q, k, v, out], {}, seed=3)
    q, k, v, out = (dtypes.bfloat16_to_float(x[0]) for x in (q, k, v, out))
    scores = np.where(np.tri(size, dtype=bool), q @ k.T / 8, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v
    assert np.linalg.norm(out - want) < 5e-3 * np.linalg.norm(want)
