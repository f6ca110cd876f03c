"""Reading values, descriptions and the hooks of capture."""
import numpy as np
import pytest

from comparison import check
from minivt import Tensor, Variable, arange, realize, zeros
from minivt.errors import BoundsError, ShapeError
from minivt.runtime import realize as runtime


def test_reading():
    t = Tensor([[1, 2], [3, 4]]) * 2
    assert t.tolist() == [[2, 4], [6, 8]] and t[0, 1].item() == 4 and len(t) == 2
    assert [row.tolist() for row in t] == [[2, 4], [6, 8]]
    assert (float(t[1, 1]), int(t[0, 0]), bool(t[0, :1] == 2)) == (8.0, 2, True)
    np.testing.assert_array_equal(np.asarray(t), [[2, 4], [6, 8]])
    assert np.asarray(t, np.float32).dtype == np.float32
    assert Tensor([0.5], "bfloat16").numpy().dtype == np.float32


def test_description():
    t = zeros((2, 3), "int16")
    assert (t.shape, t.ndim, t.size, t.dtype.name) == ((2, 3), 2, 6, "int16")
    assert repr(t) == f"Tensor(shape=(2, 3), dtype=int16, device='{t.device}', lazy)"
    assert repr(Tensor([1, 2])) == f"Tensor([1, 2], dtype=int64, device='{t.device}')"
    n = Variable("n", 1, 5)
    assert repr(arange(n + 1)) == f"Tensor(shape=((n + 1),), dtype=int64, device='{t.device}', lazy)"
    assert hash(t) == hash(t) and len({t, t, zeros((1,))}) == 2


def test_realize_together():
    a = arange(3)
    b, c = a + 1, a * 2
    realize(b, c)
    assert b.is_realized and c.is_realized and not a.is_realized
    check(c, np.array([0, 2, 4]))


def test_live_tensors_are_known_while_they_live():
    t = Tensor([1])
    u = t + 1
    assert runtime.LIVE[id(t)] is t and runtime.LIVE[id(u)] is u
    key = id(t)
    del t
    assert key not in runtime.LIVE


class Trace:
    """Notes what a captured function does."""

    def __init__(self):
        self.events = []

    def read(self, tensor, what):
        self.events.append(what)

    def assigned(self, tensor):
        self.events.append(tensor)


def test_capture_is_told_of_reads_and_assignments(monkeypatch):
    monkeypatch.setattr(Tensor, "_trace", Trace())
    t = zeros((2,))
    t[0] = 1
    t.assign(3)
    t.numpy(), t.tolist(), t[0].item(), bool(t[1]), int(t[0]), np.asarray(t)
    assert [id(e) if isinstance(e, Tensor) else e for e in Tensor._trace.events] == [
        id(t), id(t), "numpy()", "tolist()", "item()", "bool()", "int()", "numpy()"]


@pytest.mark.parametrize("wrong, error, message", [
    (lambda: Tensor([1, 2]).item(), ShapeError,
     "item(): the tensor has shape (2,); one element is needed: index or reduce it first"),
    (lambda: bool(Tensor([1, 2])), ShapeError, "bool(): the tensor has shape (2,)"),
    (lambda: len(Tensor(1)), ShapeError, "len: the tensor has no axes; its only value is read by item()"),
    (lambda: len(arange(Variable("m", 1, 4))), ShapeError, "len: axis 0 of (m,) is symbolic; use shape[0]"),
    (lambda: arange(Variable("unbound", 1, 4)).numpy(), BoundsError,
     "realize: variable 'unbound' has no value; call its bind(value) first"),
    (lambda: (Variable("m", 0, 9).bind(8), arange(Variable("m", 0, 4)).numpy()), BoundsError,
     "realize: variable 'm' is bound to 8; a use of it was declared from 0 to 4"),
    (lambda: Variable("m", 0, 4).bind(5), BoundsError, "bind: 'm' cannot be 5; it was declared from 0 to 4"),
    (lambda: Variable("m", 4, 0), BoundsError, "Variable: 'm' has bounds 4 to 0; the lowest must come first")])
def test_errors(wrong, error, message):
    with pytest.raises(error) as caught:
        wrong()
    assert str(caught.value).startswith(message)
