"""Token choice: exact where it is determined, by frequency where it is random; every seed is fixed."""
import numpy as np
import pytest

from minivt.models.sampling import Sampler

DRAWS = 8_000


def frequencies(logits, seed=0, **options):
    choose = Sampler(seed=seed, **{"temperature": 1.0, **options})
    return np.bincount([choose(logits) for _ in range(DRAWS)], minlength=len(logits)) / DRAWS


def assert_close(observed, expected):
    """Within five standard deviations of a binomial count, and exactly where nothing may fall."""
    expected = np.asarray(expected)
    assert (np.abs(observed - expected) <= 5 * np.sqrt(expected * (1 - expected) / DRAWS)).all(), observed


PROBABILITIES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
LOGITS = np.log(PROBABILITIES).astype(np.float32)


def test_greedy_takes_the_largest_and_the_lower_id_of_equals():
    assert Sampler()(LOGITS) == 1
    assert Sampler()(np.float32([0, 2, 2, 1])) == 1
    assert Sampler(top_k=1, top_p=0.1, seed=5)(LOGITS) == 1


def test_temperature():
    assert_close(frequencies(LOGITS), PROBABILITIES)
    for temperature in 0.5, 2.0:
        scaled = PROBABILITIES ** (1 / temperature)
        assert_close(frequencies(LOGITS, temperature=temperature), scaled / scaled.sum())
    assert Sampler(temperature=1e-308, seed=0)(LOGITS) == 1


@pytest.mark.parametrize("top_k, kept", [(1, [1]), (2, [1, 3]), (4, [1, 3, 4, 0]), (5, range(5)), (99, range(5))])
def test_top_k(top_k, kept):
    expected = np.where(np.isin(np.arange(5), list(kept)), PROBABILITIES, 0)
    assert_close(frequencies(LOGITS, top_k=top_k), expected / expected.sum())


@pytest.mark.parametrize("top_p, kept", [
    (1e-9, [1]), (0.39, [1]), (0.41, [1, 3]), (0.64, [1, 3]), (0.66, [1, 3, 4]),
    (0.94, [1, 3, 4, 0]), (1.0, range(5))])
def test_top_p_keeps_the_token_that_reaches_it(top_p, kept):
    expected = np.where(np.isin(np.arange(5), list(kept)), PROBABILITIES, 0)
    assert_close(frequencies(LOGITS, top_p=top_p), expected / expected.sum())


def test_top_p_at_an_exact_share_keeps_no_more():
    assert_close(frequencies(np.zeros(4), top_p=0.5), [0.5, 0.5, 0, 0])


def test_top_p_counts_shares_of_what_top_k_left():
    # 0.4 and 0.25 stay of five; of their sum 0.4 is 0.615
    assert_close(frequencies(LOGITS, top_k=2, top_p=0.6), [0, 1, 0, 0, 0])
    assert_close(frequencies(LOGITS, top_k=2, top_p=0.63), [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0])


def test_ties_at_the_edge_of_top_k_keep_exactly_k():
    assert_close(frequencies(np.float32([1, 2, 1, 1, 0]), top_k=2), [1 / (1 + np.e), np.e / (1 + np.e), 0, 0, 0])
    assert_close(frequencies(np.zeros(6), top_k=3), [1 / 3, 1 / 3, 1 / 3, 0, 0, 0])


def test_nan_and_infinities():
    assert Sampler()(np.float32([np.nan, 1, 2, np.nan])) == 2
    assert_close(frequencies(np.float32([np.nan, 0, -np.inf, 0])), [0, 0.5, 0, 0.5])
    assert_close(frequencies(np.float32([0, np.inf, 5, np.inf])), [0, 0.5, 0, 0.5])
    assert_close(frequencies(np.float32([np.nan, 0, -np.inf, 0]), top_k=4, top_p=0.999), [0, 0.5, 0, 0.5])
    for bad in [np.nan, np.nan], [-np.inf, np.nan], [-np.inf, -np.inf]:
        for temperature in 0.0, 1.0:
            with pytest.raises(ValueError, match="logits"):
                Sampler(temperature)(np.float32(bad))


class Fixed:
    """A generator that gives one number."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


@pytest.mark.parametrize("number, logits, id", [
    (0.0, [0, 0], 0), (np.nextafter(0.5, 0), [0, 0], 0), (0.5, [0, 0], 1),        # each token owns [from, to)
    (np.nextafter(1.0, 0), [3, -np.inf, -np.inf], 0), (np.nextafter(1.0, 0), [0, 1, -np.inf], 0),
    *((np.nextafter(1.0, 0), [1.0, t, -np.inf], 1) for t in np.linspace(-3, 1, 40))])
def test_ends_of_the_random_range(number, logits, id):
    choose = Sampler(temperature=1.0)
    choose.rng = Fixed(number)
    assert choose(np.array(logits)) == id


def test_seeds_repeat_and_differ():
    def draws(seed):
        choose = Sampler(temperature=1.0, seed=seed)
        return [choose(np.zeros(1000)) for _ in range(20)]
    assert draws(1) == draws(1) != draws(2)
    assert draws(None) != draws(None)


def test_large_vocabulary_partial_selection_equals_a_full_sort():
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 50, 5000).astype(np.float32)     # many ties
    for top_k in 1, 7, 100, 4999, 5000:
        ids, _ = Sampler(1.0, top_k=top_k).candidates(logits.astype(np.float64))
        assert ids.tolist() == sorted(range(5000), key=lambda i: (-logits[i], i))[:top_k]


@pytest.mark.parametrize("options", [
    {"temperature": -1}, {"temperature": np.nan}, {"temperature": np.inf}, {"top_k": -1}, {"top_p": 0},
    {"top_p": 1.1}, {"top_p": np.nan}, {"seed": -1}])
def test_parameters_outside_their_range(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Sampler(**options)
