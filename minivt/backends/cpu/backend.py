"""The CPU behind runtime's seam: LLVM code for the host's real features, run by native workers.

Not for lowering (codegen/vectorize.py, codegen/render/llvm.py) nor for threads (workers.py).
"""
from __future__ import annotations

import functools
import json
import threading
from dataclasses import dataclass
from typing import Sequence

import numpy as np

from minivt.backends.cpu import memory
from minivt.backends.cpu.host import HostTarget, host_target
from minivt.codegen.target import Target, cpu_target
from minivt.dtypes import DType
from minivt.graph import Node
from minivt.runtime.cache import content_key, disk_cache, source_version
from minivt.runtime.seam import Backend, Call, Progress, Runnable
from minivt.runtime.threads import thread_count
from minivt.schedule.schedule import Launch
from minivt.symbolic import structure


@dataclass
class Executable:
    """A loaded kernel. variables: names in the order of its argument array; scratch_bytes: for each thread."""
    name: str
    function: int
    tasks: int
    scratch_bytes: int
    variables: tuple[str, ...]
    code: object


class CpuBackend(Backend):
    name = "cpu"

    def __init__(self, host: HostTarget):
        self.host = host
        arm = host.triple.startswith("aarch64")
        available = {"fma": host.has_fma, "f16c": not arm and host.vector_bits >= 256, "neon": arm,
                     "avx512f": host.vector_bits == 512, "fast_bf16_dot": host.fast_bf16_dot}
        features = tuple(name for name, has in available.items() if has)
        registers = 32 if host.vector_bits == 512 or arm else 16
        self.target: Target = cpu_target(host.vector_bits // 8, registers, host.l2_bytes, thread_count(), features)
        self.loaded: dict[str, Executable] = {}

    # --- memory ---

    def allocate(self, nbytes: int) -> np.ndarray:
        return memory.allocate(nbytes)

    def from_host(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(-1).view(np.uint8)

    def to_host(self, block: np.ndarray, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        return block[:count * dtype.itemsize].view(dtype.storage).reshape(shape)

    # --- code ---

    def compile(self, launches: Sequence[Launch], progress: Progress | None = None) -> list[Executable]:
        distinct = {launch.source: launch for launch in launches}
        keys = {source: self._key(source) for source in distinct}
        fresh = {}
        for source, launch in distinct.items():
            key = keys[source]
            if key in self.loaded:
                continue
            stored = disk_cache().get(key)
            if stored is None:
                fresh[key] = launch
            else:
                self.loaded[key] = _load(stored)
        if fresh:
            self._compile(fresh, progress)
        return [self.loaded[keys[launch.source]] for launch in launches]

    def _compile(self, launches: dict[str, Launch], progress) -> None:
        from minivt.backends.cpu.compile_pool import compile_many
        from minivt.codegen.vectorize import lower_cpu
        kernels = {key: lower_cpu(launch.program, self.target) for key, launch in launches.items()}
        finished = 0

        def keep(key: str, code: bytes) -> None:
            nonlocal finished
            kernel = kernels[key]
            facts = {"name": kernel.name, "scratch_bytes": kernel.scratch_bytes, "variables": list(kernel.variables)}
            stored = json.dumps(facts).encode() + b"\n" + code
            disk_cache().put(key, stored)
            self.loaded[key] = _load(stored)
            finished += 1
            if progress is not None:
                progress(finished, len(kernels))
        compile_many([(key, k.ir_text) for key, k in kernels.items()], self.host, keep)

    def _key(self, source: Node) -> str:
        from minivt.backends.cpu.jit import compiler_version
        return content_key("kernel", structure(source), self.host.triple, self.host.cpu, self.host.features,
                           repr(self.target), source_version(), compiler_version())

    def prepare(self, calls: list[Call]) -> Runnable:
        return CpuProgram(calls)


def _load(stored: bytes) -> Executable:
    from minivt.backends.cpu.jit import load_object
    head, _, code = stored.partition(b"\n")
    facts = json.loads(head)
    name = facts["name"]
    loaded = load_object(code, [name, f"{name}_tasks"])
    return Executable(name, loaded[name], loaded[f"{name}_tasks"], facts["scratch_bytes"], tuple(facts["variables"]),
                      loaded)


class CpuProgram(Runnable):
    """Launches as one native program (workers.NativeProgram)."""

    def __init__(self, calls: list[Call]):
        from minivt.backends.cpu.workers import NativeProgram, Step
        self.calls, self.lock = calls, threading.Lock()
        self.steps = [Step(c.executable.function, c.executable.tasks,
                           np.array([m.ctypes.data for m in c.memories], np.uint64),
                           np.zeros(len(c.executable.variables), np.int64), c.executable.code) for c in calls]
        self.with_variables = [(s, c.executable.variables) for s, c in zip(self.steps, calls) if c.executable.variables]
        self.native = NativeProgram(self.steps, max((c.executable.scratch_bytes for c in calls), default=0))

    def rebind(self, call: int, slot: int, block: np.ndarray) -> None:
        self.calls[call].memories[slot] = block
        self.steps[call].buffers[slot] = block.ctypes.data

    def run(self, values: dict[str, int]) -> None:
        with self.lock:  # the steps' arrays belong to one run at a time
            for step, names in self.with_variables:
                for n, name in enumerate(names):
                    step.vars[n] = values[name]
            self.native.run()


@functools.cache
def _backend() -> CpuBackend:
    return CpuBackend(host_target())


def open_backend(device: str) -> Backend:
    return _backend()
