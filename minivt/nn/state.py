"""The parameters of an object by name, and their files. Not for formats other than safetensors.

A name is the path of attributes, list places and dict keys: layers.0.attention.wq.weight.
"""
from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from minivt import dtypes
from minivt.errors import LoadError
from minivt.functional import realize
from minivt.runtime import realize as runtime
from minivt.tensor import Tensor
from minivt.variable import shape_text

_DTYPE_OF = {{"b": "BOOL", "i": "I", "u": "U", "f": "F"}[d.kind] + (str(8 * d.itemsize) if d.kind != "b" else ""): d
             for d in dtypes.ALL if d is not dtypes.bfloat16} | {"BF16": dtypes.bfloat16}  # by its name in a file
_NAME_OF = {dtype: name for name, dtype in _DTYPE_OF.items()}


def state_dict(obj) -> dict[str, Tensor]:
    """Every Tensor below an object, in its attributes, lists, tuples and dicts, by name and in order.

    A Tensor that is reached by two names is listed by both.
    """
    found, stack = {}, [("", obj, ())]
    while stack:
        name, current, above = stack.pop()
        if isinstance(current, Tensor):
            found[name] = current
        elif id(current) not in above:
            inner = [(f"{name}.{key}" if name else str(key), value, (*above, id(current)))
                     for key, value in _children(current)]
            stack.extend(reversed(inner))
    return found


def _children(obj) -> list[tuple]:
    if isinstance(obj, dict):
        return list(obj.items())
    if isinstance(obj, (list, tuple)):
        return list(enumerate(obj))
    if isinstance(obj, (str, bytes, int, float, type(None), np.ndarray, type)) or callable(obj) and \
            not hasattr(obj, "__dict__"):
        return []
    return list(vars(obj).items()) if hasattr(obj, "__dict__") and not hasattr(obj, "__code__") else []


def load_state_dict(obj, state: dict[str, Tensor]) -> None:
    """Replace every parameter of `obj` by the tensor of its name.

    Strict: LoadError for a name that is missing, one that is unaccounted for, a wrong shape or a wrong dtype; nothing
    is replaced then.
    """
    parameters = state_dict(obj)
    for name, parameter in parameters.items():
        if name not in state:
            raise LoadError(f'load_state_dict: tensor "{name}" is missing; the object has a parameter of this name')
        given = state[name]
        if given.shape != parameter.shape:
            raise LoadError(f'load_state_dict: tensor "{name}" has shape {shape_text(given.node.shape)}, the parameter '
                            f"asks {shape_text(parameter.node.shape)}")
        if given.dtype is not parameter.dtype:
            raise LoadError(f'load_state_dict: tensor "{name}" has dtype {given.dtype}, the parameter asks '
                            f"{parameter.dtype}: cast it first")
    for name in state:
        if name not in parameters:
            raise LoadError(f'load_state_dict: tensor "{name}" is unaccounted for; the object has no parameter of this '
                            "name")
    for name, parameter in parameters.items():
        parameter._replace(state[name].to(parameter.device).node)


def save_safetensors(state: dict[str, Tensor], path: str | os.PathLike) -> None:
    """Write tensors by name; the file appears under its name only when it is complete."""
    if state:
        realize(*state.values())
    header, end = {}, 0
    for name, tensor in state.items():
        start, end = end, end + tensor.size * tensor.dtype.itemsize
        header[name] = {"dtype": _NAME_OF[tensor.dtype], "shape": tensor.shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data starts aligned
    path = Path(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in state.values():
                file.write(np.ascontiguousarray(_storable(tensor)).data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _storable(tensor: Tensor) -> np.ndarray:
    """The elements, or the bits of those that NumPy has no type for."""
    return (tensor if tensor.dtype.numpy is not None else tensor.bitcast(f"uint{8 * tensor.dtype.itemsize}")).numpy()


def load_safetensors(path: str | os.PathLike, device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file by name, over its memory-mapped bytes: nothing is read before it is used.

    LoadError where the file is missing, damaged, or holds a dtype that minivt lacks.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    try:
        with safe_open(path, "numpy"):  # checks that the header describes exactly the bytes that follow, once each
            header, start = _header(path)
    except (OSError, SafetensorError) as error:
        raise LoadError(f"{path.name}: not a readable safetensors file: {' '.join(str(error).split())}") from error
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "r", start) if path.stat().st_size > start else np.zeros(0, np.uint8)
    return {name: _mapped(path.name, name, entry, data, device) for name, entry in header.items()}


def _header(path: Path) -> tuple[dict, int]:
    """The table of a checked file and the place of its first byte of data."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


def _mapped(file: str, name: str, entry: dict, data: np.ndarray, device: str | None) -> Tensor:
    if entry["dtype"] not in _DTYPE_OF:
        raise LoadError(f'{file}: tensor "{name}" has dtype {entry["dtype"]}; {", ".join(_DTYPE_OF)} are supported')
    dtype = _DTYPE_OF[entry["dtype"]]
    first, last = entry["data_offsets"]
    array = data[first:last].view(dtype.storage).reshape(entry["shape"])
    device = device or runtime.default_device()
    return Tensor._from_node(runtime.from_numpy(array, dtype, device), device)
