"""Many kernels compiled at once: here and in subprocesses that stay for the next batch.

Processes, not threads: LLVM holds one lock for all threads of a process. The subprocesses run a module of ours, not
the user's script, so unguarded scripts and notebooks work. Not a cache: callers look there first.
"""

import atexit
import collections
import dataclasses
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from minivt.backends.cpu.compile_worker import read_frame, write_frame
from minivt.backends.cpu.host import HostTarget
from minivt.backends.cpu.jit import compile_object
from minivt.errors import CompileError
from minivt.runtime.threads import thread_count

FEWEST_KERNELS = 4  # fewer are done here before a worker has started
_FAULTS = {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}


def compile_many(jobs: list[tuple[str, str]], target: HostTarget,
                 done: Callable[[str, bytes], None] | None = None) -> list[bytes]:
    """The object files of `jobs`, pairs (key, LLVM IR text), in their order.

    `done(key, object)` is called in this thread as each kernel is done; order unspecified. Raises CompileError, naming
    the key, when LLVM rejects a kernel or crashes on it. What a killed worker leaves undone is compiled here.
    """
    with _pool.lock:
        workers = _pool.workers_for(len(jobs))
        batch = _Batch(jobs, target, done or (lambda key, code: None))
        try:
            batch.run(workers)
        finally:
            batch.stop()
        return batch.objects


class _Batch:
    """One call of compile_many. Workers take the longest kernels, this thread the shortest, until none wait."""

    def __init__(self, jobs, target, done):
        self.jobs, self.target, self.done = jobs, target, done
        self.objects: list[bytes | None] = [None] * len(jobs)
        self.waiting = collections.deque(sorted(range(len(jobs)), key=lambda index: len(jobs[index][1])))
        self.events: queue.SimpleQueue = queue.SimpleQueue()  # (index, object or error or None: worker is gone)
        self.feeders: dict["_Worker", threading.Thread] = {}

    def run(self, workers: list["_Worker"]) -> None:
        missing = len(self.jobs)
        while missing:
            for worker in workers:
                if self.waiting and worker not in self.feeders and worker.ready():
                    self.feeders[worker] = threading.Thread(target=self._feed, args=(worker,), daemon=True)
                    self.feeders[worker].start()
            if self.waiting and self.events.empty():
                self._compile_here()
                continue
            index, result = self.events.get()
            if isinstance(result, CompileError):
                raise CompileError(f"{self.jobs[index][0]}: {result}")
            if result is not None:
                self.objects[index] = result
                missing -= 1
                self.done(self.jobs[index][0], result)

    def stop(self) -> None:
        """Leave no feeder behind. Workers still busy, after an exception, are killed: nobody awaits their answers."""
        self.waiting.clear()
        for worker, feeder in self.feeders.items():
            if worker.busy:
                worker.process.kill()
            feeder.join()

    def _compile_here(self) -> None:
        try:
            index = self.waiting.popleft()
        except IndexError:  # a feeder was quicker
            return
        try:
            self.events.put((index, compile_object(self.jobs[index][1], self.target)))
        except CompileError as error:
            self.events.put((index, error))

    def _feed(self, worker: "_Worker") -> None:
        """In a thread of its own: hand `worker` one kernel after the other."""
        while self.waiting:
            try:
                index = self.waiting.pop()
            except IndexError:
                return
            try:
                result = worker.compile(self.jobs[index][1], self.target)
            except CompileError as error:
                result = error
            if result is None:
                self.waiting.append(index)
            self.events.put((index, result))
            if result is None:
                return


class _Worker:
    """A compiling subprocess that handles one kernel at a time."""

    def __init__(self):
        # The same modules as here, and none from the current folder: `-m` would look there first.
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minivt.backends.cpu.compile_worker"], cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,  # unbuffered: a fork may happen at any time
            env={**os.environ, "PYTHONPATH": path}, start_new_session=True)  # so Ctrl-C reaches only us
        self.busy = False
        self._up = False

    def ready(self) -> bool:
        """Whether the worker is up; does not wait for it."""
        if not self._up:
            poll = select.poll()
            poll.register(self.process.stdout, select.POLLIN)
            self._up = bool(poll.poll(0)) and read_frame(self.process.stdout) is not None
        return self._up and self.process.poll() is None

    def compile(self, ir_text: str, target: HostTarget) -> bytes | None:
        """The object file, or None when the worker is gone. Raises CompileError when the kernel is at fault."""
        request = json.dumps({"target": dataclasses.asdict(target), "ir": ir_text}).encode()
        self.busy = True
        try:
            write_frame(self.process.stdin, request)
            reply = read_frame(self.process.stdout)
        except OSError:
            reply = None
        self.busy = False
        if reply is None:
            if self.process.wait() in _FAULTS:
                name = signal.Signals(-self.process.returncode).name
                raise CompileError(f"cpu: LLVM crashed ({name}) on a kernel's code; this is a fault in minivt: "
                                   "please report it with the output of minivt.explain")
            return None
        if reply[:1] == b"e":
            raise CompileError(reply[1:].decode())
        return reply[1:]

    def close(self) -> None:
        self.process.kill()
        self.abandon()
        self.process.wait()

    def abandon(self) -> None:
        """Close our ends of the pipes; the worker leaves when every copy of them is closed."""
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()


class _Pool:
    """The workers of this process; `lock` is held by whoever uses them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.workers: list[_Worker] = []

    def workers_for(self, kernels: int) -> list[_Worker]:
        """Workers worth having for a batch, this thread being one of `thread_count()`; some may still be starting."""
        for worker in [worker for worker in self.workers if worker.process.poll() is not None]:
            self.workers.remove(worker)
            worker.close()
        wanted = min(thread_count() - 1, kernels // 2) if kernels >= FEWEST_KERNELS and sys.executable else 0
        try:
            while len(self.workers) < wanted:
                self.workers.append(_Worker())
        except OSError:  # no more processes: go on with what there is
            pass
        return self.workers[:wanted]

    def close(self) -> None:
        while self.workers:
            self.workers.pop().close()

    def after_fork(self) -> None:
        """In the child: the workers belong to the parent."""
        for worker in self.workers:
            worker.abandon()
            worker.process.returncode = 0  # not ours to wait for
        self.__init__()


_pool = _Pool()
atexit.register(_pool.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.after_fork)
