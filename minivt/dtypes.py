"""Element types: name, size, kind and the NumPy type that holds them.

Not for conversion rules between arrays (see tensor.py) nor for code text (see codegen/render).
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minivt.errors import DTypeError


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. `kind` is 'b' bool, 'i' signed, 'u' unsigned or 'f' float, as in NumPy."""
    name: str
    kind: str
    itemsize: int  # bytes
    numpy: np.dtype | None  # None: NumPy has no such type; arrays hold its bits as unsigned integers

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def storage(self) -> np.dtype:
        """The NumPy type whose bytes are this type's bytes."""
        return self.numpy if self.numpy is not None else np.dtype(f"u{self.itemsize}")


def _native(name: str, kind: str, itemsize: int) -> DType:
    return DType(name, kind, itemsize, np.dtype(name))


bool_ = _native("bool", "b", 1)
int8, int16, int32, int64 = (_native(f"int{8 * n}", "i", n) for n in (1, 2, 4, 8))
uint8, uint16, uint32, uint64 = (_native(f"uint{8 * n}", "u", n) for n in (1, 2, 4, 8))
float16, float32, float64 = (_native(f"float{8 * n}", "f", n) for n in (2, 4, 8))
bfloat16 = DType("bfloat16", "f", 2, None)

ALL = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)
BY_NAME = {d.name: d for d in ALL}
index = int64  # the type of every index expression


def as_dtype(value) -> DType:
    """A DType from a DType, a name, a Python type or a NumPy type; DTypeError for anything else."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in (bool, int, float):
        return {bool: bool_, int: int64, float: float32}[value]
    name = value if isinstance(value, str) else None
    if name is None:
        try:
            name = np.dtype(value).name if value is not None else "None"
        except TypeError:
            name = repr(value)
    if name not in BY_NAME:
        raise DTypeError(f"dtype: {name} is not supported; choose one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def float_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 to bfloat16 bits (uint16), to nearest even; a NaN stays a quiet NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def bfloat16_to_float(bits: np.ndarray) -> np.ndarray:
    """Widen bfloat16 bits (uint16) to float32, exactly."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)
