"""The seam between minivt and a device: what a backend must offer, and the choice among backends.

A backend allocates memory, moves it, turns TilePrograms into executables and runs lists of launches. It knows nothing
of graphs or tensors. Not for any one device (backends/).
"""
from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Callable, Sequence

import numpy as np

from minivt.codegen.target import Target
from minivt.dtypes import DType
from minivt.schedule.schedule import Launch

SEAM_VERSION = 1
Progress = Callable[[int, int], None]  # told how many kernels of how many are compiled


@dataclass
class Call:
    """One launch: an executable on memories in slot order."""
    executable: Any
    memories: list


class Runnable(ABC):
    """A list of launches ready to run, again and again."""

    @abstractmethod
    def rebind(self, call: int, slot: int, memory) -> None:
        """Let one argument of one launch be other memory from the next run on."""

    @abstractmethod
    def run(self, values: dict[str, int]) -> None:
        """Run all launches in order with these values of the VARIABLEs; returns when results can be read."""


class Backend(ABC):
    """One device. seam_version: of this interface; name: for people; target: what code is generated for."""
    seam_version = SEAM_VERSION
    name: str
    target: Target

    @abstractmethod
    def allocate(self, nbytes: int):
        """Uninitialised memory, freed with its last reference; MemoryLimitError where there is not enough."""

    @abstractmethod
    def from_host(self, array: np.ndarray):
        """Memory holding a contiguous array's bytes; the array's own memory where the device can read it."""

    @abstractmethod
    def to_host(self, memory, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
        """The elements as an array of dtype.storage; shares memory where it can."""

    @abstractmethod
    def compile(self, launches: Sequence[Launch], progress: Progress | None = None) -> list:
        """An executable for each launch; kernels of equal source are compiled once, and `launch.program` is made only
        for those that no cache holds. CompileError where code is rejected."""

    @abstractmethod
    def prepare(self, calls: list[Call]) -> Runnable:
        """The launches as one unit of work."""


def default_device() -> str:
    """MINIVT_BACKEND, else the first backend that runs here: GPUs before the CPU."""
    return os.environ.get("MINIVT_BACKEND") or _preferred()


@lru_cache(maxsize=None)
def _preferred() -> str:
    return import_module("minivt.backends").preferred()


@lru_cache(maxsize=None)
def backend_of(device: str) -> Backend:
    """The backend of a device such as "cpu" or "cuda:0"; BackendError with the reason where there is none."""
    return import_module("minivt.backends").module_of(device.split(":")[0]).open_backend(device)
