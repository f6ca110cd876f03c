"""SCAN and SCATTER as kernels: values against reference, kernels, bytes, order, what is written in place."""
import numpy as np
import pytest

from minivt import Tensor, dtypes, ops, stats
from minivt.errors import BackendError
from minivt.graph import node
from minivt.scan import scan
from scheduled import DEVICES

RNG = np.random.default_rng(0)


def tensor(made, device):
    return Tensor._from_node(made, device)


def scatter(base, index, updates, axis, how, device):
    nodes = [Tensor(a, device=device).node for a in (base, index, updates)]
    return tensor(node(ops.SCATTER, nodes, (axis, how)), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", ["add", "store"])
@pytest.mark.parametrize("base, index, axis", [((10,), (4,), 0), ((3, 10, 7), (2, 3), 1), ((5, 40), (1,), 0),
                                               ((4, 6), (5,), 1), ((6, 2000), (), 0), ((3, 5), (0,), 0)])
def test_scatter_agrees_with_reference(device, how, base, index, axis):
    places = (RNG.permutation(base[axis] + 3)[:int(np.prod(index))] - 2).reshape(index)  # some are out of range
    if how == "add" and places.size:
        places.flat[-1] = places.flat[0]
    updates = RNG.standard_normal(base[:axis] + index + base[axis + 1:]).astype(np.float32)
    operands = RNG.standard_normal(base).astype(np.float32), places, updates, axis, how
    np.testing.assert_array_equal(scatter(*operands, device).numpy(), scatter(*operands, "reference").numpy())


@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.int8, dtypes.uint64, dtypes.float16, dtypes.bfloat16,
                                   dtypes.float64], ids=str)
def test_scatter_adds_in_every_dtype(dtype):
    x, u = (Tensor(RNG.integers(0, 2 if dtype.kind == "b" else 90, n)).cast(dtype) for n in (5, 40))
    places = RNG.integers(0, 5, 40)
    results = []
    for device in ("cpu", "reference"):
        nodes = [t.to(device).node for t in (x.to("cpu"), Tensor(places, device="cpu"), u.to("cpu"))]
        results.append(tensor(node(ops.SCATTER, nodes, (0, "add")), device).numpy())
    np.testing.assert_array_equal(*results)


def test_scatter_copies_only_what_others_read():
    index = Tensor(np.array([1, 1, 9]), device="cpu")
    base, rows = Tensor(np.ones((50, 64), np.float32), device="cpu"), Tensor(np.ones((3, 64), np.float32), device="cpu")
    with stats() as s:
        out = tensor(node(ops.SCATTER, ((base * 2).node, index.node, rows.node), (0, "add")), "cpu").realize()
    assert s.kernels == 2 and s.bytes_written == 50 * 256 + 3 * 256  # the base is made, then written in place
    expected = np.full((50, 64), 2.0)
    expected[1] += 2
    expected[9] += 1
    np.testing.assert_array_equal(out.numpy(), expected)
    added = tensor(node(ops.SCATTER, (base.node, index.node, rows.node), (0, "add")), "cpu").numpy()
    assert added[1, 0] == 3 and (base.numpy() == 1).all()


def recurrence(h, x, a, device):
    """h[t] = a * h[t - 1] + x[t], and its square."""
    h, x, a = (Tensor(v, device=device).node for v in (h, x, a))

    def step(carry, rows):
        following = node(ops.ADD, (node(ops.MUL, (a, carry[0])), rows[0]))
        return (following,), (following, node(ops.MUL, (following, following)), carry[0])
    last, ys = scan(step, (h,), (x,))
    return [tensor(n, device) for n in (*last, *ys)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(), (1,), (7, 33), (2, 2000), (0,)])
@pytest.mark.parametrize("length", [0, 1, 9])
def test_scan_agrees_with_reference(device, shape, length):
    operands = [RNG.standard_normal(s).astype(np.float32) for s in (shape, (length, *shape), shape)]
    operands = [np.asarray(v, np.float32) for v in operands]
    for got, expected in zip(recurrence(*operands, device), recurrence(*operands, "reference")):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_outputs_of_a_scan_are_one_kernel_that_reads_its_input_once():
    h, x, a = (np.ones(s, np.float32) for s in ((4, 32), (100, 4, 32), (4, 32)))

    _, ys, squares, _ = recurrence(h, x, a, "cpu")
    with stats() as s:
        (ys + squares).realize()
    assert s.kernels == 2 and s.bytes_read == 4 * (x.size + 2 * h.size) + 2 * 4 * x.size


def test_a_step_that_mixes_places_is_refused():
    h = Tensor(np.ones(4, np.float32), device="cpu")
    x = Tensor(np.ones((3, 4), np.float32), device="cpu")
    (last,), _ = scan(lambda c, r: ((node(ops.ADD, (node(ops.FLIP, (c[0],), (0,)), r[0])),), ()), (h.node,), (x.node,))
    with pytest.raises(BackendError, match="move what mixes places"):
        tensor(last, "cpu").realize()


def test_a_gated_linear_recurrence_in_chunks_is_a_handful_of_kernels():
    """S[t] = decay[t] S[t-1] + k[t] v[t]ᵀ, out[t] = S[t]ᵀ q[t]: products within chunks, a scan of their states."""
    T, C, K, V = 4096, 64, 8, 8
    q, k, v = (RNG.standard_normal((T, n)).astype(np.float32) for n in (K, K, V))
    gate = RNG.uniform(0.8, 1, T).astype(np.float32)
    state, expected = np.zeros((K, V)), []
    for t in range(T):
        state = gate[t] * state + np.outer(k[t], v[t])
        expected.append(state.T @ q[t])
    Q, Y, W = (Tensor(x, device="cpu").reshape(T // C, C, -1) for x in (q, k, v))
    with stats() as s:
        log = Tensor(gate, device="cpu").reshape(T // C, C).log().cumsum(1)          # (chunks, C)
        total = log[:, C - 1:]                                                       # (chunks, 1)
        rows = Tensor(np.arange(C), device="cpu")
        decay = (log.reshape(-1, C, 1) - log.reshape(-1, 1, C)).exp()
        decay = (rows.reshape(1, 1, C) <= rows.reshape(1, C, 1)).where(decay, 0.0)   # (chunks, C, C)
        within = ((Q @ Y.mT) * decay) @ W
        added = (Y * (total - log).exp().reshape(-1, C, 1)).mT @ W                   # (chunks, K, V)
        kept = total.exp().reshape(-1, 1, 1).broadcast_to((T // C, K, V))

        def step(carry, x):
            return (node(ops.ADD, (node(ops.MUL, (x[0], carry[0])), x[1])),), (carry[0],)
        start = Tensor(np.zeros((K, V), np.float32), device="cpu")
        _, (before,) = scan(step, (start.node,), (kept.node, added.node))
        out = within + (Q * log.exp().reshape(-1, C, 1)) @ tensor(before, "cpu")
        got = out.reshape(T, V).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)
    assert s.kernels <= 5
