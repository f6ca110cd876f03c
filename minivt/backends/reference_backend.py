"""Two backends without a compiler: 'reference' runs graph nodes in NumPy, 'interpret' runs tile programs in NumPy.

'reference' is the meaning of a program; 'interpret' shows whether the scheduler kept it, before any code is
generated. Not for speed.
"""
from __future__ import annotations


import numpy as np

from minivt.backends.reference import evaluate
from minivt.backends.reference_ir import run
from minivt.codegen.target import Target, cpu_target
from minivt.runtime.seam import Backend, Runnable

# What 'interpret' schedules for: small enough that tests see many blocks.
TARGET = cpu_target(64, 32, 1 << 20, 2, ())


class _HostMemory(Backend):
    """Memory is a flat uint8 array."""

    def allocate(self, nbytes: int) -> np.ndarray:
        return np.empty(nbytes, np.uint8)

    def from_host(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(-1).view(np.uint8)

    def to_host(self, memory, shape, dtype) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        return memory[:count * dtype.itemsize].view(dtype.storage).reshape(shape)


class ReferenceBackend(_HostMemory):
    name = "reference"
    target = TARGET

    def evaluate(self, nodes, values):
        """The nodes' values in NumPy; realize uses this in place of a schedule."""
        return [np.array(a, n.dtype.storage, order="C") for n, a in
                zip(nodes, evaluate(nodes, values, lambda b: self.to_host(b.memory, b.shape, b.dtype)))]

    def compile(self, launches, progress=None):
        raise NotImplementedError("the reference backend evaluates graphs, it compiles nothing")

    def prepare(self, calls):
        raise NotImplementedError("the reference backend evaluates graphs, it runs no kernels")


class InterpretBackend(_HostMemory):
    name = "interpret"

    def __init__(self, target: Target):
        self.target = target

    def compile(self, launches, progress=None):
        return [launch.program for launch in launches]

    def prepare(self, calls):
        return _Interpreted(self, calls)


class _Interpreted(Runnable):
    def __init__(self, backend, calls):
        self.backend, self.calls = backend, calls

    def rebind(self, call, slot, memory):
        self.calls[call].memories[slot] = memory

    def run(self, values):
        for call in self.calls:
            program = call.executable
            arrays = [m[:len(m) // p.dtype.itemsize * p.dtype.itemsize].view(p.dtype.storage)
                      for m, p in zip(call.memories, program.params)]
            run(program, arrays, values)


def open_backend(device: str) -> Backend:
    if device.startswith("interpret"):
        return InterpretBackend(TARGET)
    return ReferenceBackend()
