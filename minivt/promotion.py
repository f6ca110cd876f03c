"""Which dtype an operation on several dtypes computes in. Not for casts, which tensors do themselves.

The table, for tensors (array API, with the mixed kinds that PyTorch adds):

    bool    with anything        the other
    int     with int             the wider; equally wide signed and unsigned, or a wider unsigned: the next wider signed
    int     with float           the float, whatever its width
    float   with float           the wider
    float16 with bfloat16        float32
    uint64  with a signed int    DTypeError: no integer holds both

A Python number or a Variable is weak: it takes the tensor's dtype where its kind (bool < int < float) allows, else
the default of its own kind, int64 or float32.
"""
from __future__ import annotations

from minivt import dtypes
from minivt.dtypes import DType
from minivt.errors import DTypeError

_KIND_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2}
_DEFAULT = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float32}
_SIGNED = {2 * n: t for n, t in zip((1, 2, 4), (dtypes.int16, dtypes.int32, dtypes.int64))}


def promote(name: str, a: DType, b: DType) -> DType:
    """The dtype of an operation `name` on dtypes a and b."""
    if a is b:
        return a
    if _KIND_ORDER[a.kind] != _KIND_ORDER[b.kind]:
        return a if _KIND_ORDER[a.kind] > _KIND_ORDER[b.kind] else b
    if a.kind == b.kind:
        if a.itemsize == b.itemsize:
            return dtypes.float32  # float16 and bfloat16
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if 2 * unsigned.itemsize not in _SIGNED:
        raise DTypeError(f"{name}: {a} and {b} have no integer dtype that holds both; cast one of them")
    return _SIGNED[2 * unsigned.itemsize]


def promote_scalar(tensor: DType, kind: type) -> DType:
    """The dtype of an operation on a tensor's dtype and a Python number of type bool, int or float."""
    default = _DEFAULT[kind]
    return tensor if _KIND_ORDER[tensor.kind] >= _KIND_ORDER[default.kind] else default


def default_dtype(kind: type) -> DType:
    return _DEFAULT[kind]


def as_float(dtype: DType) -> DType:
    """The dtype in which a function of real numbers takes its argument: floats stay, others become float32."""
    return dtype if dtype.is_float else dtypes.float32


def accumulator(dtype: DType) -> DType:
    """The dtype in which half-precision values are computed on: float32."""
    return dtypes.float32 if dtype.is_float and dtype.itemsize == 2 else dtype
