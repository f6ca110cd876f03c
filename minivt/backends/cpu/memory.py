"""Memory of the CPU backend: aligned blocks that go back to a pool with their last reference.

A fresh large block costs a page fault for every 4 KiB when it is first written, often more than the kernel that writes
it; a block from the pool costs nothing. Not for borrowed memory (arrays of the user's stay the user's).
"""
from __future__ import annotations

import ctypes
import weakref

import numpy as np

from minivt.errors import MemoryLimitError
from minivt.runtime import stats

ALIGNMENT = 64           # bytes: one cache line and the widest vector
POOLED_BYTES = 1 << 30   # idle memory beyond this goes back to the system
_idle: dict[int, list[int]] = {}
_idle_bytes = 0
_held_bytes = 0
_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
_libc.free.argtypes = (ctypes.c_void_p,)


class _Block:
    """Exposes an address to NumPy; its end returns the memory."""
    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int, size: int):
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


def allocate(nbytes: int) -> np.ndarray:
    """(nbytes,) uint8, uninitialised, aligned to ALIGNMENT; MemoryLimitError where the system refuses."""
    global _idle_bytes, _held_bytes
    size = _size_class(nbytes)
    waiting = _idle.get(size)
    if waiting:
        address = waiting.pop()
        _idle_bytes -= size
    else:
        address = _libc.aligned_alloc(ALIGNMENT, size)
        if not address:
            raise MemoryLimitError(f"cpu: {nbytes} bytes were asked for and the system refused; free tensors or use "
                                   "smaller ones")
    _held_bytes += size
    stats.record_memory(_held_bytes)
    block = _Block(address, size)
    weakref.finalize(block, _release, address, size).atexit = False
    return np.asarray(block)[:nbytes]


def _size_class(nbytes: int) -> int:
    """Sizes are rounded up by at most an eighth, so that blocks of nearly one size serve each other."""
    size = max(ALIGNMENT, nbytes)
    step = max(ALIGNMENT, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


def _release(address: int, size: int) -> None:
    global _idle_bytes, _held_bytes
    _held_bytes -= size
    if _idle_bytes + size > POOLED_BYTES:
        _libc.free(address)
        return
    _idle.setdefault(size, []).append(address)
    _idle_bytes += size
