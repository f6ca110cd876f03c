"""Convolution layers: parameters as torch names and shapes them, and what they compute."""
import numpy as np
import pytest

from minivt import nn
from minivt.errors import ShapeError
from minivt.random import normal


@pytest.mark.parametrize("layer, x, weight, y", [
    (lambda: nn.Conv1d(6, 8, 5, padding="same"), (2, 6, 17), (8, 6, 5), (2, 8, 17)),
    (lambda: nn.Conv2d(6, 8, (3, 5), stride=2, padding=1, groups=2), (2, 6, 9, 9), (8, 3, 3, 5), (2, 8, 5, 4)),
    (lambda: nn.Conv3d(2, 4, 3, bias=False), (1, 2, 5, 5, 5), (4, 2, 3, 3, 3), (1, 4, 3, 3, 3)),
    (lambda: nn.ConvTranspose1d(6, 8, 4, stride=2, padding=1), (2, 6, 5), (6, 8, 4), (2, 8, 10)),
    (lambda: nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, output_padding=1, groups=2), (1, 6, 4, 5), (6, 4, 3, 3),
     (1, 8, 8, 10))])
def test_layers(layer, x, weight, y):
    layer, x = layer(), normal(x)
    state = nn.state_dict(layer)
    assert {name: t.shape for name, t in state.items()} == \
        {"weight": weight, **({"bias": (y[1],)} if layer.bias is not None else {})}
    assert np.abs(layer.weight.numpy()).max() <= np.prod(weight[1:]) ** -0.5
    got = layer(x)
    assert got.shape == y
    expected = getattr(x, layer.method)(layer.weight, **layer.options).numpy()
    if layer.bias is not None:
        expected = expected + layer.bias.numpy().reshape(-1, *(1,) * (len(y) - 2))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_kernel_of_wrong_rank_is_refused():
    with pytest.raises(ShapeError, match="Conv2d: kernel_size is \\(3, 3, 3\\); an integer of at least 1, or 2"):
        nn.Conv2d(1, 1, (3, 3, 3))
