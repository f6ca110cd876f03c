"""Cascades of reductions become one pass: attention and its variants are one kernel with NumPy's values."""
import numpy as np
import pytest

from minivt import where
from scheduled import NEVER, agree, attention, causal, causal_array, floats, softmax

LENGTHS = np.array([70, 3, 0, 64])
SLOPES = np.exp2(-np.arange(1, 5)).astype(np.float32)
KEPT = np.random.default_rng(1).random(70) < 0.7
DOCUMENT = np.sort(np.random.default_rng(2).integers(0, 4, 70))
BIAS = np.where(np.random.default_rng(3).random((70, 70)) < 0.3, NEVER, 0.5).astype(np.float32)


def window(s, i, j, tensor):
    return where((j <= i) & (j > i - 20), s, NEVER)


def window_array(s, i, j):
    return np.where((j <= i) & (j > i - 20), s, NEVER)


VARIANTS = {
    "no mask": (None, None),
    "causal": (causal, causal_array),
    "strictly causal: the first row is empty": (lambda s, i, j, _: where(j < i, s, NEVER),
                                                lambda s, i, j: np.where(j < i, s, NEVER)),
    "masked the other way": (lambda s, i, j, _: where(j > i, NEVER, s), causal_array),
    "sliding window": (window, window_array),
    "two masks": (lambda s, i, j, _: where(j > i - 20, where(j <= i, s, NEVER), NEVER), window_array),
    "softcap": (lambda s, i, j, _: causal((s / 5.0).tanh() * 5.0, i, j, _),
                lambda s, i, j: causal_array(np.tanh(s / 5) * 5, i, j)),
    "ALiBi": (lambda s, i, j, tensor: causal(s + tensor(SLOPES).reshape(2, 2, 1, 1) * (j - i).cast("float32"), i, j,
                                             tensor),
              lambda s, i, j: causal_array(s + SLOPES.reshape(4, 1, 1) * (j - i), i, j)),
    "key mask from memory": (lambda s, i, j, tensor: where(tensor(KEPT) & (j <= i), s, NEVER),
                             lambda s, i, j: np.where(KEPT & (j <= i), s, NEVER)),
    "documents": (lambda s, i, j, tensor: where((tensor(DOCUMENT).unsqueeze(1) == tensor(DOCUMENT)) & (j <= i), s,
                                                NEVER),
                  lambda s, i, j: np.where((DOCUMENT[:, None] == DOCUMENT) & (j <= i), s, NEVER)),
    "added mask": (lambda s, i, j, tensor: s + tensor(BIAS), lambda s, i, j: s + BIAS),
    "added -1e9": (lambda s, i, j, _: s + where(j <= i, 0.0, -1e9), lambda s, i, j: s + np.where(j <= i, 0, -1e9)),
    "ragged lengths": (lambda s, i, j, tensor: where(j < tensor(LENGTHS).reshape(2, 2, 1, 1), s, NEVER),
                       lambda s, i, j: np.where(j < LENGTHS.reshape(4, 1, 1), s, NEVER)),
    "ragged lengths in int32": (
        lambda s, i, j, tensor: where(j.cast("int32") < tensor(LENGTHS.astype(np.int32)).reshape(2, 2, 1, 1), s, NEVER),
        lambda s, i, j: np.where(j < LENGTHS.reshape(4, 1, 1), s, NEVER)),
    "whole rows masked": (lambda s, i, j, _: where((j <= i) & (i > 50), s, NEVER),
                          lambda s, i, j: np.where((j <= i) & (i > 50), s, NEVER)),
}


def logistic(x):
    return 1 / (1 + np.exp(-x))


def with_sink(s, tensor):
    """Softmax over the keys and one logit more a head, which takes weight and gives nothing."""
    sink = tensor(SINKS).reshape(2, 2, 1, 1)
    top = s.max(-1, keepdims=True).maximum(sink)
    powers = (s - top).exp()
    return powers / (powers.sum(-1, keepdims=True) + (sink - top).exp())


def with_sink_array(s):
    sink = np.broadcast_to(SINKS.reshape(4, 1, 1), (*s.shape[:-1], 1))
    return softmax(np.concatenate([s, sink], -1))[..., :-1]


SINKS = np.array([0.5, -1.0, 3.0, 0.0], np.float32)
WEIGHTS = {  # what need not be a softmax
    "sinks": (with_sink, with_sink_array),
    "sigmoid": (lambda s, _: s.sigmoid(), logistic),
    "relu": (lambda s, _: s.maximum(0.0), lambda s: np.maximum(s, 0)),
    "scaled by key": (lambda s, tensor: s.softmax(-1) * tensor(SCALES), lambda s: softmax(s) * SCALES),
    "scaled by the row's largest": (lambda s, _: s.softmax(-1) * s.max(-1, keepdims=True),
                                    lambda s: softmax(s) * s.max(-1, keepdims=True)),
}
SCALES = np.linspace(0.1, 2, 70).astype(np.float32)


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_variant_is_one_kernel(name, device):
    make, expected = attention(*VARIANTS[name])
    agree(make, expected, device, kernels=1)


@pytest.mark.parametrize("name", WEIGHTS)
def test_other_weights_are_one_kernel(name, device):
    weigh, weigh_array = WEIGHTS[name]
    make, expected = attention(causal, causal_array, weigh=weigh, weigh_array=weigh_array) \
        if name != "sigmoid" else attention(weigh=weigh, weigh_array=weigh_array)
    agree(make, expected, device, kernels=1)


@pytest.mark.parametrize("queries, keys", [(1, 1), (7, 70), (64, 64), (65, 65), (33, 100), (130, 130)])
def test_attention_of_any_length(queries, keys, device):
    make, expected = attention(causal, causal_array, queries=queries, keys=keys)
    agree(make, expected, device, kernels=1)


def test_one_query_of_many_heads_is_one_kernel(device):
    make, expected = attention(causal, causal_array, heads=(16, 8), queries=1, keys=100)
    agree(make, expected, device, kernels=1)


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_in_small_tiles(name, small_tiles):
    make, expected = attention(*VARIANTS[name])
    agree(make, expected, "interpret", kernels=1)


def test_two_attentions_share_keys(device):
    q, r, k, v = floats(2, 30, 8), floats(2, 30, 8), floats(2, 40, 8), floats(2, 40, 8)
    expected = softmax(q @ k.swapaxes(1, 2)) @ v + softmax(r @ k.swapaxes(1, 2)) @ v

    def make(tensor, count):
        keys, values = tensor(k), tensor(v)
        return (tensor(q) @ keys.mT).softmax(-1) @ values + (tensor(r) @ keys.mT).softmax(-1) @ values
    agree(make, expected, device)


@pytest.mark.parametrize("product", ["q", "k", "v", "qk", "qkv"])
def test_attention_over_products(product, device):
    x, w = floats(16, 8), floats(3, 8, 8)
    q, k, v = (x @ w[n] if letter in product else x for n, letter in enumerate("qkv"))

    def make(tensor, count):
        q, k, v = (tensor(x) @ tensor(w[n]) if letter in product else tensor(x) for n, letter in enumerate("qkv"))
        return (q @ k.mT).softmax(-1) @ v
    agree(make, softmax(q @ k.T) @ v, device, tolerance=2e-4)


@pytest.mark.parametrize("columns", [1, 100, 20000])
def test_logsumexp_is_one_pass(columns, device):
    x = floats(5, columns) * 10
    top = x.max(-1)
    expected = np.log(np.exp(x - top[:, None]).sum(-1)) + top
    agree(lambda tensor, _: tensor(x).logsumexp(-1), expected, device, 1, x.nbytes)


def test_cross_entropy_is_one_kernel(device):
    x, label = floats(40, 100), np.arange(40) * 2
    expected = np.log(softmax(x))[np.arange(40), label] * -1

    def make(tensor, count):
        return -where(count(100) == tensor(label).unsqueeze(1), tensor(x).log_softmax(-1), 0.0).sum(-1)
    agree(make, expected, device, kernels=1, read=x.nbytes + label.nbytes)


ROWS = floats(3, 23) * 3
ROWS[1, :] = -5 - np.abs(ROWS[1])
ODD = np.arange(23) % 2 == 1


def top(x):
    return x.max(-1, keepdims=True)


CASCADES = {  # what must not, or only with care, become one pass
    "the largest enters with a plus": (lambda x, odd: (x * 0.1 + top(x) * 0.1).exp2().sum(-1),
                                       lambda x: np.exp2(x * 0.1 + top(x) * 0.1).sum(-1)),
    "the largest enters scaled": (lambda x, odd: (x - top(x) * 0.5).exp2().sum(-1),
                                  lambda x: np.exp2(x - top(x) * 0.5).sum(-1)),
    "the state is a sum": (lambda x, odd: (x - x.mean(-1, keepdims=True)).exp2().sum(-1),
                           lambda x: np.exp2(x - x.mean(-1, keepdims=True)).sum(-1)),
    "the largest power": (lambda x, odd: (x - top(x)).exp2().max(-1), lambda x: np.exp2(x - top(x)).max(-1)),
    "the least power": (lambda x, odd: (x - top(x)).exp2().min(-1), lambda x: np.exp2(x - top(x)).min(-1)),
    "a choice of one": (lambda x, odd: where(odd, (x - top(x)).exp2(), 1.0).sum(-1),
                        lambda x: np.where(ODD, np.exp2(x - top(x)), 1).sum(-1)),
    "a choice in the exponent": (lambda x, odd: where(odd, x - top(x), -1.0).exp2().sum(-1),
                                 lambda x: np.exp2(np.where(ODD, x - top(x), -1)).sum(-1)),
    "the state in a quotient": (lambda x, odd: (x / (top(x) + 30.0)).sum(-1), lambda x: (x / (top(x) + 30)).sum(-1)),
    "the state divides below": (lambda x, odd: (1.0 / (x.exp2() + top(x).exp2())).sum(-1),
                                lambda x: (1 / (np.exp2(x) + np.exp2(top(x)))).sum(-1)),
    "variance": (lambda x, odd: x.var(-1), lambda x: x.var(-1)),
    "weights of weights": (lambda x, odd: (x.softmax(-1) * 9).softmax(-1)[:, 3],
                           lambda x: softmax(softmax(x) * 9)[:, 3]),
    "a negated difference": (lambda x, odd: (-(top(x) - x)).exp2().sum(-1), lambda x: np.exp2(x - top(x)).sum(-1)),
}


@pytest.mark.parametrize("name", CASCADES)
def test_cascade(name, small_tiles):
    make, array = CASCADES[name]
    agree(lambda tensor, _: make(tensor(ROWS), tensor(ODD)), array(ROWS), "interpret", tolerance=1e-4)


def test_sum_of_powers_of_an_empty_row_is_undefined(small_tiles):
    x = ROWS.copy()
    x[0] = NEVER
    with np.errstate(invalid="ignore"):
        expected = np.exp2(x - top(x)).sum(-1)
    assert np.isnan(expected).tolist() == [True, False, False]
    agree(lambda tensor, _: (tensor(x) - top(tensor(x))).exp2().sum(-1), expected, "interpret")
