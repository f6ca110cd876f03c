"""Buffer: one allocation of a device, with a shape and an element type. Not for views; those are graph nodes."""
from __future__ import annotations

import itertools
from math import prod

from minivt.dtypes import DType

_numbers = itertools.count()


class Buffer:
    """shape: tuple of ints; memory: what the backend's allocate returned, None until the first use."""
    __slots__ = ("shape", "dtype", "device", "memory", "owner", "number", "__weakref__")

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: str, memory=None, owner=None):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        self.memory = memory
        self.owner = owner  # who else may look at the memory: a NumPy array it was borrowed from or lent to
        self.number = next(_numbers)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<buffer {self.number} {self.dtype}{list(self.shape)} on {self.device}>"
