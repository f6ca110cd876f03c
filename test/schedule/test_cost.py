"""When a kernel is cut: work that would repeat, and blocks that would wait."""
import numpy as np

import minivt
from minivt import Tensor
from scheduled import agree, floats, softmax, stats


def test_a_product_is_not_computed_for_every_column_of_the_next(device):
    x, a, b = floats(64, 300), floats(300, 400), floats(400, 500)
    s = agree(lambda tensor, _: (tensor(x) @ tensor(a)).maximum(0) @ tensor(b), np.maximum(x @ a, 0) @ b, device, 2,
              tolerance=1e-2)
    assert s.flops < 1.2 * 2 * 64 * (300 * 400 + 400 * 500)


def test_scores_of_one_query_and_few_heads_use_every_unit(device):
    q, k, v = floats(1, 1, 64), floats(1, 5000, 64), floats(1, 5000, 64)
    expected = softmax(q @ k.swapaxes(1, 2)) @ v
    agree(lambda tensor, _: (tensor(q) @ tensor(k).mT).softmax(-1) @ tensor(v), expected, device)


def test_norm_before_a_product_is_not_repeated(device):
    x, w = floats(64, 256), floats(256, 600)
    expected = (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1)) @ w

    def make(tensor, _):
        t = tensor(x)
        return (t * ((t * t).mean(-1, keepdims=True) + 1).rsqrt()) @ tensor(w)
    s = agree(make, expected, device, tolerance=1e-3)
    assert s.kernels <= 2 and s.flops < 1.3 * 2 * 64 * 256 * 600


def test_two_results_share_a_product(device):
    x, w = floats(64, 256), floats(256, 300)
    product = Tensor(x, device=device) @ Tensor(w, device=device)
    with stats() as s:
        minivt.realize(positive := product.maximum(0), negative := product.minimum(0))
    assert s.flops < 1.3 * 2 * 64 * 256 * 300
    np.testing.assert_allclose(positive.numpy() + negative.numpy(), x @ w, rtol=1e-4, atol=1e-4)
