"""Runs programs, sequences of compiled kernels, on persistent native threads without entering Python in between.

A kernel is two native functions (codegen writes them):

    void NAME(ptr bufs, ptr vars, i64 begin, i64 end, ptr scratch)    tasks begin..end-1 of its flattened grid
    i64  NAME_tasks(ptr vars)                                         how many tasks these variables make

The calling thread goes through the steps in order; it and the workers take chunks of a step's tasks, and the next
step begins when the last chunk is done. A worker that sleeps through a step is not waited for. The runner is LLVM IR,
compiled once by the same path as kernels and kept in the disk cache. Not for choosing what runs in which order.
"""

import atexit
import ctypes
import functools
import os
import platform
import signal
import threading
import time
from dataclasses import dataclass

import numpy as np

from minivt.backends.cpu import jit
from minivt.backends.cpu.host import host_target
from minivt.backends.cpu.runner_ir import SETTINGS, STATE_BYTES, runner_ir
from minivt.errors import DTypeError
from minivt.runtime.cache import content_key, disk_cache
from minivt.runtime.threads import thread_count

SPIN_SECONDS = 50e-6  # how long a waiting thread spins before it sleeps: longer than most steps of one task
_ALIGNMENT = 128  # two cache lines: processors fetch them in pairs


@dataclass(frozen=True)
class Step:
    """One kernel launch. The arrays may be written between runs; they are read at each run, where they are."""

    fn_addr: int  # address of NAME
    tasks_addr: int  # address of NAME_tasks
    buffers: np.ndarray  # (buffers,) uint64: data addresses
    vars: np.ndarray  # (variables,) int64: values of the kernel's VARIABLEs
    code: object = None  # kept alive as long as the step: the LoadedCode that holds both functions

    def __post_init__(self):
        for name, dtype in (("buffers", np.uint64), ("vars", np.int64)):
            array = getattr(self, name)
            if array.dtype != dtype or not array.flags.c_contiguous:
                raise DTypeError(f"Step: {name} is {array.dtype} with strides {array.strides}; "
                                 f"it must be a contiguous array of {np.dtype(dtype)}")


class NativeProgram:
    """Steps run in order by one native call, which leaves the GIL free.

    `scratch_bytes`: the largest private block that a kernel asks for, per thread. Each is aligned to 64 bytes, and
    its content is lost between tasks.
    """

    def __init__(self, steps: list[Step], scratch_bytes: int):
        self.steps = list(steps)
        self.scratch_bytes = scratch_bytes
        self.table = np.array([(step.fn_addr, step.tasks_addr, step.buffers.ctypes.data, step.vars.ctypes.data)
                               for step in self.steps], np.uint64).reshape(-1, 4)

    def run(self) -> None:
        """Run every step to its end. Programs of several Python threads take turns.

        An interrupt (Ctrl-C) is raised when the program is through, so state is never left half-written.
        """
        _workers.run(self.table.ctypes.data, len(self.table), self.scratch_bytes)


def stop_workers() -> None:
    """End the native threads; the next run starts new ones, as many as `thread_count()` says then."""
    _workers.stop()


class _Workers:
    """The native threads of this process, the calling thread being number 0. Started by the first run."""

    def __init__(self):
        self.lock = threading.RLock()  # re-entrant: a signal handler may run a program between native calls
        self.state = None
        self.caller_cpu = -1

    def run(self, steps: int, count: int, scratch_bytes: int) -> None:
        with self.lock:
            if self.state is None:
                self._start(thread_count())
            if scratch_bytes > self.settings["stride"]:
                self._allocate_scratch(scratch_bytes)
            cpu = _current_cpu()
            if cpu != self.caller_cpu:
                self._keep_off(cpu)
            _runner().run(self.state.ctypes.data, steps, count)

    def stop(self) -> None:
        with self.lock:
            if self.state is not None:
                _runner().stop(self.state.ctypes.data, self.records.ctypes.data, int(self.settings["threads"]) - 1)
                self.state, self.caller_cpu = None, -1

    def _start(self, threads: int) -> None:
        state, self.records = _aligned_zeros(STATE_BYTES), np.zeros((threads, 4), np.uint64)
        self.settings = state[SETTINGS].view([(name, np.int64) for name in ("spin", "scratch", "stride", "threads")])[0]
        self.settings["spin"] = max(1, int(SPIN_SECONDS / _pause_seconds()))
        # Workers are born with every signal blocked: signals are Python's, and its main thread must see them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            started = _runner().start(state.ctypes.data, self.records.ctypes.data, threads - 1)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.settings["threads"] = started + 1
        self.state = state

    def _keep_off(self, cpu: int) -> None:
        """Let the workers run anywhere but on the caller's processor.

        A woken thread is often placed beside whoever woke it, and a kernel is over before the system moves it away.
        """
        self.caller_cpu = cpu
        others = os.sched_getaffinity(0) - {cpu} if cpu >= 0 else set()
        started = int(self.settings["threads"]) - 1
        if len(others) < started:
            return
        mask = (ctypes.c_uint64 * 16)()  # 1,024 processors, as glibc's cpu_set_t
        for other in others:
            mask[other // 64 % 16] |= 1 << other % 64
        for thread in self.records[:started, 2]:
            _libc().pthread_setaffinity_np(ctypes.c_size_t(int(thread)), ctypes.sizeof(mask), mask)

    def _allocate_scratch(self, scratch_bytes: int) -> None:
        stride = -(-scratch_bytes // _ALIGNMENT) * _ALIGNMENT
        self.scratch = _aligned_zeros(stride * int(self.settings["threads"]))
        self.settings["scratch"], self.settings["stride"] = self.scratch.ctypes.data, stride


class _Runner:
    """The compiled runner's functions, callable from Python."""

    def __init__(self):
        target, ir_text = host_target(), runner_ir(platform.machine())
        key = content_key("runner", ir_text, target.triple, target.cpu, target.features, jit.compiler_version())
        obj = disk_cache().get(key)
        if obj is None:
            obj = jit.compile_object(ir_text, target)
            disk_cache().put(key, obj)
        self._code = jit.load_object(obj, ["minivt_start", "minivt_run", "minivt_stop", "minivt_pause"])
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.start = ctypes.CFUNCTYPE(integer, pointer, pointer, integer)(self._code["minivt_start"])
        self.run = ctypes.CFUNCTYPE(None, pointer, pointer, integer)(self._code["minivt_run"])
        self.stop = ctypes.CFUNCTYPE(None, pointer, pointer, integer)(self._code["minivt_stop"])
        self.pause = ctypes.CFUNCTYPE(None, integer)(self._code["minivt_pause"])


@functools.cache
def _libc():
    return ctypes.CDLL(None)


@functools.cache
def _has_affinity() -> bool:
    return hasattr(os, "sched_getaffinity") and hasattr(_libc(), "sched_getcpu") \
        and hasattr(_libc(), "pthread_setaffinity_np")


def _current_cpu() -> int:
    """The processor that this thread runs on; -1 where the system does not say."""
    return _libc().sched_getcpu() if _has_affinity() else -1


@functools.cache
def _runner() -> _Runner:
    return _Runner()


@functools.cache
def _pause_seconds() -> float:
    """How long one turn of a spinning loop takes here: processors differ tenfold. The best of five measurements."""
    turns, times = 500, []
    for _ in range(5):
        begin = time.perf_counter()
        _runner().pause(turns)
        times.append(time.perf_counter() - begin)
    return min(times) / turns


def _aligned_zeros(size: int) -> np.ndarray:
    """(size,) uint8 zeros that start at a multiple of _ALIGNMENT."""
    room = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start:start + size]


_workers = _Workers()
atexit.register(_workers.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.__init__)  # threads do not survive a fork
