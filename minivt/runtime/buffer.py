"""Buffer: one allocation of a device, with a shape and an element type. Not for views; those are graph nodes."""
from __future__ import annotations

import itertools
from math import prod

from minivt.dtypes import DType

_numbers = itertools.count()


class Buffer:
    """shape: of ints and symbolic sizes; extent: the sizes that it was computed for, where some are symbolic.

    memory: what the backend's allocate returned.
    """
    __slots__ = ("shape", "extent", "dtype", "device", "memory", "owner", "number", "__weakref__")

    def __init__(self, shape: tuple, dtype: DType, device: str, memory=None, owner=None, extent=None):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        self.extent = self.shape if extent is None else tuple(extent)
        self.memory = memory
        self.owner = owner  # who else may look at the memory: a NumPy array it was borrowed from or lent to
        self.number = next(_numbers)

    @property
    def size(self) -> int:
        return prod(self.extent)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<buffer {self.number} {self.dtype}{list(self.shape)} on {self.device}>"
