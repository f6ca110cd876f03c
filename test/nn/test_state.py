"""State dicts and safetensors files."""
import json
import re

import numpy as np
import pytest
from comparison import on_host
from safetensors.numpy import load_file, save_file

from minivt import Tensor, dtypes, ones, zeros
from minivt.errors import LoadError
from minivt.nn import Linear, RMSNorm, load_safetensors, load_state_dict, save_safetensors, state_dict


class Model:
    def __init__(self):
        self.layers = [Linear(2, 3), Linear(3, 2, bias=False)]
        self.named = {"norm": RMSNorm(2), "note": "not a parameter"}
        self.itself = self
        self.scale = ones((), "bfloat16")
        self.activation = Tensor.relu


NAMES = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "named.norm.weight", "scale"]


def test_names_in_order():
    model = Model()
    state = state_dict(model)
    assert list(state) == NAMES and state["layers.1.weight"] is model.layers[1].weight
    assert list(state_dict(model.layers[0])) == ["weight", "bias"]


def test_shared_parameters_have_both_names():
    tied = zeros((2,))
    assert list(state_dict({"a": tied, "b": [tied]})) == ["a", "b.0"]


def test_loading_replaces_in_place():
    model, other = Model(), Model()
    weight = model.layers[0].weight
    load_state_dict(model, state_dict(other))
    assert model.layers[0].weight is weight
    np.testing.assert_array_equal(weight.numpy(), other.layers[0].weight.numpy())


@pytest.mark.parametrize("change, message", [
    (lambda s: s.pop("scale"), 'tensor "scale" is missing; the object has a parameter of this name'),
    (lambda s: s.update(more=ones(1)), 'tensor "more" is unaccounted for; the object has no parameter of this name'),
    (lambda s: s.update({"layers.0.bias": ones(4)}), 'tensor "layers.0.bias" has shape (4,), the parameter asks (3,)'),
    (lambda s: s.update({"layers.0.bias": ones(3, "float16")}),
     'tensor "layers.0.bias" has dtype float16, the parameter asks float32: cast it first')])
def test_loading_is_strict(change, message):
    model, state = Model(), state_dict(Model())
    before = {name: t.node for name, t in state_dict(model).items()}
    change(state)
    with pytest.raises(LoadError) as caught:
        load_state_dict(model, state)
    assert str(caught.value) == f"load_state_dict: {message}"
    assert {name: t.node for name, t in state_dict(model).items()} == before


@pytest.mark.parametrize("dtype", [d.name for d in dtypes.ALL])
def test_round_trip(dtype, tmp_path):
    state = {"x": Tensor([[0, 1, 2], [3, 4, 5]]).cast(dtype), "scalar": Tensor(1).cast(dtype),
             "none": zeros((0, 2), dtype)}
    save_safetensors(state, tmp_path / "a.safetensors")
    back = load_safetensors(tmp_path / "a.safetensors")
    assert list(back) == list(state)
    for name, t in state.items():
        assert back[name].dtype is t.dtype and back[name].shape == t.shape
        np.testing.assert_array_equal(back[name].numpy(), t.numpy())
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_other_libraries_read_and_write_the_files(tmp_path):
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    save_safetensors({"x": Tensor(x), "y": Tensor(x[:, :1] > 0)}, tmp_path / "mine")
    theirs = load_file(tmp_path / "mine")
    np.testing.assert_array_equal(theirs["x"], x)
    np.testing.assert_array_equal(theirs["y"], x[:, :1] > 0)
    save_file({"x": x, "i": np.arange(3)}, tmp_path / "theirs", {"format": "np"})
    mine = load_safetensors(tmp_path / "theirs")
    np.testing.assert_array_equal(mine["x"].numpy(), x)
    assert mine["i"].tolist() == [0, 1, 2] and set(mine) == {"x", "i"}


def test_data_is_aligned(tmp_path):
    for name in ("x", "xy", "xyz"):
        save_safetensors({name: ones(1)}, tmp_path / "a")
        assert int.from_bytes((tmp_path / "a").read_bytes()[:8], "little") % 8 == 0


@on_host
def test_tensors_are_mapped_not_read(tmp_path):
    save_safetensors({"x": ones((1000,)).realize()}, tmp_path / "a")
    array = load_safetensors(tmp_path / "a")["x"].numpy()
    while array.base is not None and not isinstance(array, np.memmap):
        array = array.base
    assert isinstance(array, np.memmap) or "mmap" in type(array).__name__


def damaged(tmp_path, change) -> str:
    save_safetensors({"x": ones((4,)), "y": ones((2,))}, tmp_path / "a")
    raw = (tmp_path / "a").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    text = json.dumps(change(header) or header).encode()
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length:])
    with pytest.raises(LoadError) as caught:
        load_safetensors(tmp_path / "a")
    return str(caught.value)


@pytest.mark.parametrize("change", [
    lambda h: h["x"].update(data_offsets=[0, 1 << 40]), lambda h: h["y"].update(data_offsets=[0, 8]),
    lambda h: h["x"].update(shape=[5]), lambda h: h.pop("y") and None, lambda h: h["x"].update(dtype="F99"),
    lambda h: h["x"].update(shape=[-4]), lambda h: h["x"].pop("shape") and None, lambda h: [1]])
def test_damaged_headers(change, tmp_path):
    assert re.match("a: not a readable safetensors file: .", damaged(tmp_path, change))


@pytest.mark.parametrize("content", [b"", b"short", (1 << 60).to_bytes(8, "little") + b"{}"])
def test_no_safetensors_files(content, tmp_path):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(LoadError):
        load_safetensors(tmp_path / "a")
    with pytest.raises(LoadError):
        load_safetensors(tmp_path / "absent")


def test_dtypes_without_a_place(tmp_path):
    message = damaged(tmp_path, lambda h: h["x"].update(dtype="F8_E4M3", shape=[16]))
    assert message.startswith('a: tensor "x" has dtype F8_E4M3; BOOL, I8,')
