"""A device that generates the code of every kernel and runs nothing; results are zeros.

"null" takes the host's CPU as target, "null:sm_90a" a GPU that need not be there: for measuring scheduling and code
generation apart from running. Not for results, and not for machine code (the devices' own backends compile).
"""
from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from minivt.backends.cpu.memory import allocate
from minivt.codegen.target import SM_90A, Target
from minivt.errors import BackendError
from minivt.runtime.seam import Backend, Runnable, backend_of

TARGETS = {SM_90A.name: SM_90A}


@dataclass
class Generated:
    """A kernel's code as text."""
    text: str


class NullBackend(Backend):
    name = "null"

    def __init__(self, target: Target):
        self.target = target
        self.generated: dict = {}

    def allocate(self, nbytes: int) -> np.ndarray:
        memory = allocate(nbytes)
        memory[:] = 0
        return memory

    def from_host(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(-1).view(np.uint8)

    def to_host(self, memory, shape, dtype) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        return memory[:count * dtype.itemsize].view(dtype.storage).reshape(shape)

    def compile(self, launches, progress=None) -> list[Generated]:
        code_of = import_module(self.target.lowering).code_of
        for done, launch in enumerate(launches, 1):
            if launch.source not in self.generated:
                self.generated[launch.source] = Generated(code_of(launch.program, self.target))
            if progress:
                progress(done, len(launches))
        return [self.generated[launch.source] for launch in launches]

    def prepare(self, calls) -> Runnable:
        return _Nothing()


class _Nothing(Runnable):
    def rebind(self, call, slot, memory):
        """Nothing reads the memory."""

    def run(self, values):
        """Nothing runs."""


def open_backend(device: str) -> NullBackend:
    """The backend of "null" or "null:TARGET"; BackendError where the target is not known."""
    name = device.partition(":")[2]
    if name and name not in TARGETS:
        raise BackendError(f"null: {name!r} is no target; choose null or {', '.join(f'null:{t}' for t in TARGETS)}")
    return NullBackend(TARGETS[name] if name else backend_of("cpu").target)
