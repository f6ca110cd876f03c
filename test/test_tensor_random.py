"""Random tensors: known answers of the generator, its position, and the shapes of the distributions."""
import numpy as np
import pytest

from minivt import Tensor, jit, manual_seed, random
from minivt.errors import BoundsError, CaptureError, DTypeError
from minivt.runtime.seam import default_device

COUNT = 100_000


def words(values):
    return tuple(Tensor(np.uint32([v])) for v in values)


@pytest.mark.parametrize("counter, key, expected", [  # the known answers that the authors of Threefry publish
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0))])
def test_known_answers(counter, key, expected):
    assert tuple(w.item() for w in random.threefry(words(key), words(counter))) == expected


def test_the_stream_is_a_function_of_seed_and_position():
    manual_seed(5)
    first, second = random.uniform((6,)).numpy(), random.uniform((2, 2)).numpy()
    manual_seed(5)
    np.testing.assert_array_equal(random.uniform((10,)).numpy(), np.concatenate([first, second.ravel()]))
    manual_seed(6)
    assert not np.isin(random.uniform((6,)).numpy(), first).any()


def test_draws_differ_also_when_realised_late_and_in_any_order():
    manual_seed(1)
    a, b = random.uniform((4,)), random.uniform((4,))
    late, early = b.numpy(), a.numpy()
    manual_seed(1)
    np.testing.assert_array_equal(random.uniform((8,)).numpy(), np.concatenate([early, late]))


@pytest.mark.skipif(default_device() == "reference", reason="the reference backend captures nothing")
def test_replays_of_a_captured_function_draw_on(monkeypatch):
    @jit
    def draw(x):
        return x + random.uniform((2,))

    zero = Tensor(np.zeros(2, np.float32))
    monkeypatch.setattr(random, "_STATE", {})
    with pytest.raises(CaptureError) as caught:
        draw(zero)
    assert "call manual_seed or draw one before" in str(caught.value)
    manual_seed(1)
    drawn = [draw(zero).numpy().copy() for _ in range(3)]
    drawn.append(random.uniform((2,)).numpy())
    manual_seed(1)
    np.testing.assert_array_equal(np.concatenate(drawn), random.uniform((8,)).numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform(dtype):
    manual_seed(2)
    x = random.uniform((COUNT,), dtype=dtype)
    assert x.dtype.name == dtype
    x = x.numpy().astype(np.float64)
    assert 0 <= x.min() and x.max() < 1
    assert abs(x.mean() - 0.5) < 0.005 and abs(x.var() - 1 / 12) < 0.002
    bits = 8 if dtype == "bfloat16" else 11
    assert len(np.unique(np.floor(x * 2 ** bits))) == 2 ** bits
    y = random.uniform((1000,), -3, 5).numpy()
    assert -3 <= y.min() < -2.9 and 4.9 < y.max() <= 5


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_normal(dtype):
    manual_seed(3)
    x = random.normal((COUNT,), 2.0, 3.0, dtype).cast("float64").numpy()
    z = (x - 2) / 3
    assert abs(z.mean()) < 0.015 and abs(z.std() - 1) < 0.01
    assert abs((z ** 3).mean()) < 0.05 and abs((z ** 4).mean() - 3) < 0.1 and np.isfinite(z).all()
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.01


def test_normal_is_finite_for_all_bits(monkeypatch):
    for bits in (0, 0xFFFFFFFF):
        monkeypatch.setattr(random, "random_bits", lambda shape, device: words((bits, bits)))
        assert np.isfinite(random.normal((1,)).item())


def test_randint():
    manual_seed(4)
    x = random.randint(-3, 4, (70_000,), "int8")
    values, counts = np.unique(x.numpy(), return_counts=True)
    assert x.dtype.name == "int8" and values.tolist() == [-3, -2, -1, 0, 1, 2, 3] and abs(counts - 10_000).max() < 400
    assert random.randint(5, 6, (3,)).tolist() == [5, 5, 5]


@pytest.mark.parametrize("wrong, error, message", [
    (lambda: manual_seed(-1), BoundsError, "manual_seed: seed is -1; it must be from 0 to 2^64 - 1"),
    (lambda: random.randint(3, 3, (1,)), BoundsError, "randint: low is 3 and high is 3; low must be below high"),
    (lambda: random.randint(0, 3, (1,), "float32"), DTypeError,
     "randint: dtype is float32; an integer dtype is needed"),
    (lambda: random.uniform((1,), dtype="int8"), DTypeError, "uniform: dtype is int8; a float dtype is needed")])
def test_errors(wrong, error, message):
    with pytest.raises(error) as caught:
        wrong()
    assert str(caught.value) == message
