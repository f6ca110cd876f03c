"""Running one computation on the devices that schedule it, and what tests of the schedule count. No tests are here."""
import numpy as np

import minivt
from minivt import Tensor, arange, where
from minivt.runtime.stats import stats
from minivt.schedule import schedule, tile_sizes

DEVICES = ("interpret", "cpu")
RNG = np.random.default_rng(0)
NEVER = -float("inf")


def floats(*shape) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def counted(make, device: str):
    """The values of make(tensor, count) on a device, where tensor(array) and count(n) make operands, and the stats."""
    made: dict[int, Tensor] = {}  # one operand an array, so that what is used twice is read once

    def tensor(array):
        return made.setdefault(id(array), Tensor(np.asarray(array), device=device))
    result = make(tensor, lambda n: arange(n, device=device))
    with stats() as s:
        values = result.numpy()
    return values, s


def agree(make, expected, device: str, kernels: int | None = None, read: int | None = None, tolerance: float = 2e-5):
    """Values equal up to the tolerance, NaN where expected; kernels equal, bytes read at most `read`."""
    values, s = counted(make, device)
    expected = np.asarray(expected)
    assert values.shape == expected.shape
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if kernels is not None:
        assert s.kernels == kernels
    if read is not None:
        assert s.bytes_read <= read
    return s


def softmax(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


def attention(change=None, change_array=None, heads=(4, 2), queries=70, keys=70, size=16, weigh=None,
              weigh_array=softmax):
    """(make, expected) of an attention whose scores s at query i and key j pass through change(s, i, j, tensor).

    heads: of queries and of keys. change_array and weigh_array say the same of NumPy arrays.
    """
    (many, few), group = heads, heads[0] // heads[1]
    q, k, v = floats(many, queries, size), floats(few, keys, size), floats(few, keys, size)
    scores = q @ np.repeat(k, group, 0).swapaxes(1, 2) * np.float32(size ** -0.5)
    i, j = np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None]
    if change_array:
        scores = change_array(scores, i, j)
    expected = weigh_array(scores) @ np.repeat(v, group, 0)

    def make(tensor, count):
        s = tensor(q).reshape(few, group, queries, size) @ tensor(k).reshape(few, 1, keys, size).mT * size ** -0.5
        rows, columns = (count(queries) + (keys - queries)).reshape(queries, 1), count(keys).reshape(1, keys)
        s = change(s, rows, columns, tensor) if change else s
        p = weigh(s, tensor) if weigh else s.softmax(-1)
        return (p @ tensor(v).reshape(few, 1, keys, size)).reshape(many, queries, size)
    return make, expected


def causal(s, i, j, tensor):
    return where(j <= i, s, NEVER)


def causal_array(s, i, j):
    return np.where(j <= i, s, NEVER)


def forget_kernels():
    """Empty what the schedule keeps by structure, after the sizes of tiles were changed."""
    for kept in (schedule.lower_kernel, schedule._verdict, schedule.program_of):
        kept.cache_clear()


def small_tiles(monkeypatch, row: int, block: int, step: int, products: int, accumulator: tuple[int, int]):
    """Tiles so small that every loop, clip and overhang of a kernel happens on arrays of a few elements."""
    monkeypatch.setitem(tile_sizes.ROW_ELEMENTS, "cpu", row)
    monkeypatch.setitem(tile_sizes.MAP_ELEMENTS, "cpu", block)
    monkeypatch.setitem(tile_sizes.PASS_TILE, "cpu", step)
    monkeypatch.setitem(tile_sizes.REDUCE_TILE, "cpu", products)
    monkeypatch.setattr(tile_sizes, "_accumulator", lambda *_: accumulator)
    forget_kernels()


__all__ = [name for name in dir() if not name.startswith("_") and name != "minivt"]
