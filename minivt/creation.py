"""Functions that make tensors of a given shape. Not for random ones (random.py).

Sizes are ints or symbolic integers. Nothing is computed or allocated until the tensor is realised.
"""
from __future__ import annotations

import math

from minivt import dtypes, ops
from minivt.broadcasting import expand_node, sizes
from minivt.dtypes import as_dtype
from minivt.elementwise import scalar_kind, scalar_node
from minivt.errors import DTypeError, ShapeError
from minivt.graph import node
from minivt.promotion import default_dtype
from minivt.runtime import realize as runtime
from minivt.tensor import Tensor
from minivt.variable import bounds, is_size, unwrap


def from_numpy(array, device: str | None = None) -> Tensor:
    """A tensor over a NumPy array's own memory where it is contiguous: do not change the array while it lives."""
    return Tensor(array, device=device)


def full(shape, value, dtype=None, device: str | None = None) -> Tensor:
    """`value` everywhere; the dtype is float32, int64 or bool after the value where none is given."""
    kind = scalar_kind(value)
    if kind is None:
        raise DTypeError(f"full: value is {value!r}; a Python number or a Variable is needed")
    made = scalar_node("full", value, default_dtype(kind) if dtype is None else as_dtype(dtype))
    return Tensor._from_node(expand_node(made, _shape("full", shape)), device or runtime.default_device())


def _shape(name: str, shape) -> tuple:
    return sizes(name, (shape,))


def zeros(shape, dtype=dtypes.float32, device: str | None = None) -> Tensor:
    return full(shape, 0, dtype, device)


def ones(shape, dtype=dtypes.float32, device: str | None = None) -> Tensor:
    return full(shape, 1, dtype, device)


def arange(start, stop=None, step=1, dtype=None, device: str | None = None) -> Tensor:
    """start, start + step, ... below stop (above it for a negative step); arange(n) counts 0 to n - 1.

    Integers and Variables give int64, floats float32, where no dtype is given.
    """
    if stop is None:
        start, stop = 0, start
    if not all(scalar_kind(v) in (int, float) for v in (start, stop, step)) or step == 0:
        raise DTypeError(f"arange: start, stop and step are {start}, {stop} and {step}; numbers are needed, and a step "
                         "that is not 0")
    kind = float if float in map(scalar_kind, (start, stop, step)) else int
    dtype = default_dtype(kind) if dtype is None else as_dtype(dtype)
    count = unwrap(max(0, math.ceil((stop - start) / step))) if kind is float else _steps(start, stop, step)
    place = Tensor._from_node(node(ops.ARANGE, (), count, dtypes.index), device or runtime.default_device())
    if kind is int:
        return (place * step + start if step != 1 else place + start if not _is_zero(start) else place).cast(dtype)
    wide = place.cast(dtypes.float64 if dtype is dtypes.float64 else dtypes.float32)
    return (wide * float(step) + float(start)).cast(dtype)


def _steps(start, stop, step):
    """The number of integers from start by step before stop."""
    if all(isinstance(v, int) for v in (start, stop, step)):
        return len(range(start, stop, step))
    count = unwrap((stop - start + (step - 1)) // step if step > 0 else (start - stop + (-step - 1)) // -step)
    if bounds(count)[0] < 0:
        raise ShapeError(f"arange: from {start} to {stop} by {step} may have a negative length; tighten the bounds of "
                         "its Variables")
    return count


def _is_zero(value) -> bool:
    return isinstance(value, int) and value == 0


def linspace(start: float, stop: float, count: int, dtype=dtypes.float32, device: str | None = None) -> Tensor:
    """`count` numbers at equal distances from start to stop, both included."""
    if not is_size(count) or count < 1:
        raise ShapeError(f"linspace: count is {count!r}; a positive integer is needed")
    part = arange(count, device=device).cast(as_dtype(dtype)) / max(count - 1, 1)
    return float(start) * (1.0 - part) + float(stop) * part


def eye(rows: int, columns: int | None = None, dtype=dtypes.float32, device: str | None = None) -> Tensor:
    """Ones where row and column are equal, else zeros. Shape: (rows, columns), square where columns is not given."""
    columns = rows if columns is None else columns
    return (arange(rows, device=device).unsqueeze(1) == arange(columns, device=device)).cast(dtype)
