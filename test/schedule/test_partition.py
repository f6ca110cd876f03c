"""Which kernels a graph becomes, by what they read, and that depth and sharing cost nothing."""
import numpy as np
import pytest

from minivt import Tensor, arange, cat
from scheduled import DEVICES, RNG, agree, counted, floats, softmax

X, W, B = floats(40, 100), floats(100), floats(100)


def rms(x):
    return x * ((x * x).mean(-1, keepdims=True) + 1e-5).rsqrt()


def rms_array(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def silu_array(x):
    return x / (1 + np.exp(-x))


def test_elementwise_chain_is_one_kernel(device):
    agree(lambda tensor, _: ((tensor(X) * 2 + 1).exp2() - tensor(X)).abs().sqrt() * 3,
          3 * np.sqrt(np.abs(np.exp2(X * 2 + 1) - X)), device, 1, X.nbytes)


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_reads_once(axis, device):
    expected = softmax(np.moveaxis(X, axis, -1))
    agree(lambda tensor, _: tensor(X).softmax(axis), np.moveaxis(expected, -1, axis), device, 1, X.nbytes)


def test_layer_norm_reads_once(device):
    expected = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5) * W + B

    def make(tensor, _):
        x = tensor(X)
        return (x - x.mean(-1, keepdims=True)) * (x.var(-1, keepdims=True) + 1e-5).rsqrt() * tensor(W) + tensor(B)
    agree(make, expected, device, 1, X.nbytes + W.nbytes + B.nbytes)


def test_rms_norm_of_a_sum_reads_once(device):
    residual = floats(40, 100)
    agree(lambda tensor, _: rms(tensor(X) + tensor(residual)) * tensor(W), rms_array(X + residual) * W, device, 1,
          2 * X.nbytes + W.nbytes)


@pytest.mark.parametrize("m, k, n", [(33, 70, 90), (1, 70, 90), (130, 17, 3), (200, 300, 1), (5, 1, 7)])
def test_product_with_bias_activation_and_residual(m, k, n, device):
    a, b, bias, residual = floats(m, k), floats(k, n), floats(n), floats(m, n)
    agree(lambda tensor, _: (tensor(a) @ tensor(b) + tensor(bias)).silu() + tensor(residual),
          silu_array(a @ b + bias) + residual, device, 1, tolerance=2e-4)


@pytest.mark.parametrize("rows", [1, 40])
def test_gated_product_is_one_kernel(rows, device):
    x, gate, up = floats(rows, 100), floats(100, 70), floats(100, 70)
    agree(lambda tensor, _: (tensor(x) @ tensor(gate)).silu() * (tensor(x) @ tensor(up)),
          silu_array(x @ gate) * (x @ up), device, 1, x.nbytes + gate.nbytes + up.nbytes, 2e-4)


@pytest.mark.parametrize("index", [np.array([3, 999, 5, 5]), np.arange(8).reshape(2, 4)])
def test_embedding_reads_its_rows(index, device):
    table = floats(1000, 64)
    agree(lambda tensor, _: tensor(table)[tensor(index)], table[index], device, 1, index.size * 64 * 4 + index.nbytes)


def test_chosen_experts_are_read(device):
    weight, x, chosen = floats(64, 32, 48), floats(48), np.array([5, 1, 60, 33, 2, 9, 10, 11])
    agree(lambda tensor, _: tensor(weight)[tensor(chosen)] @ tensor(x), weight[chosen] @ x, device, 1,
          int(1.1 * 8 * 32 * 48 * 4), 1e-4)


@pytest.mark.parametrize("format", ["Q8_0", "Q4_1"])
def test_chosen_packed_experts_are_read(format, device):
    from minivt.models.quantization import FORMATS, dequantise
    chosen, x = np.array([5, 1, 60, 33, 2, 9, 10, 11]), floats(64)
    packed = RNG.integers(0, 255, FORMATS[format].storage_shape((64, 16, 64))).astype(np.uint8)
    packed[..., 0:4:2], packed[..., 1:4:2] = 0, 60  # scales near one
    whole = dequantise(Tensor(packed, device="reference"), format).numpy()
    agree(lambda tensor, _: dequantise(tensor(packed)[tensor(chosen)], format) @ tensor(x), whole[chosen] @ x, device,
          read=int(1.1 * packed[chosen].nbytes) + x.nbytes, tolerance=1e-3)


def test_softmax_over_columns_of_a_product_is_two_kernels(device):
    x, w = floats(16, 64), floats(64, 500)
    agree(lambda tensor, _: (tensor(x) @ tensor(w)).softmax(-1), softmax(x @ w), device, 2, tolerance=1e-4)


def test_cat_is_one_kernel(device):
    expected = softmax(np.concatenate([X, X * 2], 1))
    agree(lambda tensor, _: cat([tensor(X), tensor(X) * 2], 1).softmax(-1), expected, device, 1)


@pytest.mark.parametrize("device", DEVICES)
def test_long_chain(device):
    x = Tensor(np.zeros(3, np.float32), device=device)
    for _ in range(100_000):
        x = x + 1
    assert x.tolist() == [100_000] * 3


def test_long_chain_of_integers_as_an_index():
    place = arange(3, device="interpret", dtype="int32")
    for _ in range(5_000):
        place = place + 1
    assert Tensor(np.arange(6000), device="interpret")[place].tolist() == [5000, 5001, 5002]


@pytest.mark.parametrize("double", [lambda x: x + x, lambda x: (x + x.mT), lambda x: x + x.flip(0)])
def test_graph_of_2_to_the_40_paths(double, device):
    x = Tensor(np.ones((2, 2), np.float32), device=device)
    for _ in range(40):
        x = double(x)
    assert x.tolist() == [[2.0 ** 40] * 2] * 2


def test_index_of_2_to_the_40_paths():
    place = arange(3, device="interpret")
    for _ in range(40):
        place = place + place
    assert place.tolist() == [0, 2 ** 40, 2 ** 41]


def test_same_inputs_give_the_same_bits(device):
    def make(tensor, _):
        return ((tensor(X) @ tensor(X).T).softmax(-1) @ tensor(X)).sum()
    assert len({counted(make, device)[0].tobytes() for _ in range(3)}) == 1


def test_residual_layers_cost_what_their_number_says():
    """Each layer reads the one below at an element and along a row."""
    x, w = (Tensor(np.eye(8, dtype=np.float32), device="interpret") for _ in range(2))
    for _ in range(40):
        x = (x + rms(x).maximum(0) @ w) * 0.5
    assert np.isfinite(x.numpy()).all()


def test_sums_over_rows_and_columns_of_each_other():
    x = Tensor(np.full((4, 4), 0.25, np.float32), device="interpret")
    for _ in range(40):
        x = (x.sum(0, keepdims=True) + x.sum(1, keepdims=True) + x * 0) * 0.5 * 0.25
    np.testing.assert_allclose(x.numpy(), 0.25, rtol=1e-4)
