"""Compile workers: what is asked comes back, whoever is killed, interrupted or forked meanwhile."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from minivt.backends.cpu import compile_pool, jit
from minivt.backends.cpu.compile_pool import compile_many
from minivt.backends.cpu.host import host_target
from minivt.errors import CompileError


def root_of_package():
    return str(Path(jit.__file__).parents[3])


def gone(pid, within=5.0):
    """Whether the process has ended (a zombie has)."""
    deadline = time.time() + within
    while time.time() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def kernel_ir(number, lines=1):
    """A kernel whose compile time grows with `lines`: 20,000 take about a second."""
    body = "\n".join(f"  %a{i} = mul i64 %a{i - 1}, {number + i}\n  store volatile i64 %a{i}, ptr %p"
                     for i in range(1, lines + 1))
    return f"define i64 @k{number}(ptr %p, i64 %a0) {{\n{body}\n  ret i64 %a{lines}\n}}"


@pytest.fixture
def pool(monkeypatch):
    """The pool with room for two workers beside this thread, empty before and after."""
    monkeypatch.setenv("MINIVT_THREADS", "3")
    compile_pool._pool.close()
    yield compile_pool._pool
    compile_pool._pool.close()


def wait_until_ready(pool):
    deadline = time.time() + 20
    while not all(worker.ready() for worker in pool.workers):
        assert time.time() < deadline
        time.sleep(0.01)


def start_workers(pool):
    """Both workers up."""
    pool.workers_for(8)
    wait_until_ready(pool)
    return [worker.process.pid for worker in pool.workers]


def test_few_kernels_start_no_process(pool):
    assert compile_many([], host_target()) == []
    jobs = [(f"key{i}", kernel_ir(i)) for i in range(3)]
    assert compile_many(jobs, host_target()) == [jit.compile_object(text, host_target()) for _, text in jobs]
    assert pool.workers == []


@pytest.mark.parametrize("workers_are_up", [False, True])
def test_many_kernels_come_back_in_order(pool, workers_are_up):
    if workers_are_up:
        start_workers(pool)
    jobs = [(f"key{i}", kernel_ir(i, 1 + 37 * i % 50)) for i in range(24)]
    seen = []
    objects = compile_many(jobs, host_target(), done=lambda key, code: seen.append(key))
    assert objects == [jit.compile_object(text, host_target()) for _, text in jobs]
    assert sorted(seen) == sorted(key for key, _ in jobs)
    assert len(pool.workers) == 2


def test_workers_do_compile(pool, monkeypatch):
    pids = start_workers(pool)
    monkeypatch.setattr(compile_pool._Batch, "_compile_here", lambda self: time.sleep(0.001))
    for _ in range(2):
        assert len(compile_many([(str(i), kernel_ir(i)) for i in range(8)], host_target())) == 8
    assert [worker.process.pid for worker in pool.workers] == pids


def test_rejected_kernel_is_named_wherever_it_is_compiled(pool):
    start_workers(pool)
    good = [(f"key{i}", kernel_ir(i, 5)) for i in range(8)]
    for text in ("define", "define void @f() {\n" + "; a long one, for a worker\n" * 100):
        with pytest.raises(CompileError, match="^bad kernel: .*LLVM rejected"):
            compile_many([*good, ("bad kernel", text)], host_target())
    assert len(compile_many(good, host_target())) == 8


def kill_when_busy(pool, dying_signal):
    """A started thread that sends `dying_signal` to the workers as soon as both have a kernel."""
    def kill():
        while not all(worker.busy for worker in pool.workers):
            time.sleep(0.001)
        for worker in pool.workers:
            os.kill(worker.process.pid, dying_signal)
    killer = threading.Thread(target=kill)
    killer.start()
    return killer


LONG = [(f"long{i}", kernel_ir(i, 6000)) for i in range(2)]
SHORT = [(f"short{i}", kernel_ir(i)) for i in range(4)]


@functools.cache
def compiled(*jobs):
    return [jit.compile_object(text, host_target()) for _, text in jobs]


@pytest.mark.parametrize("dying_signal", [signal.SIGKILL, signal.SIGTERM])
def test_killed_workers_are_made_up_for(pool, dying_signal):
    pids = start_workers(pool)
    killer = kill_when_busy(pool, dying_signal)
    objects = compile_many(LONG + SHORT, host_target())
    killer.join()
    assert objects == compiled(*LONG, *SHORT)
    assert all(gone(pid) for pid in pids)
    assert compile_many(SHORT, host_target()) == compiled(*SHORT)
    assert len(pool.workers) == 2 and not {worker.process.pid for worker in pool.workers} & set(pids)


def test_crash_of_the_compiler_is_an_error_that_names_the_kernel(pool):
    start_workers(pool)
    killer = kill_when_busy(pool, signal.SIGABRT)
    with pytest.raises(CompileError, match=r"^long\d: cpu: LLVM crashed \(SIGABRT\)"):
        compile_many(LONG + SHORT, host_target())
    killer.join()


def test_interrupt_leaves_a_usable_pool(pool):
    start_workers(pool)

    def interrupt(key, code):
        raise KeyboardInterrupt
    endless = [(f"endless{i}", kernel_ir(i, 60_000)) for i in range(2)]
    begin = time.time()
    with pytest.raises(KeyboardInterrupt):
        compile_many(endless + SHORT, host_target(), done=interrupt)
    assert time.time() - begin < 2  # the long ones, many seconds each, were not waited for
    assert compile_many(SHORT, host_target()) == compiled(*SHORT)


def test_idle_worker_leaves(pool):
    script = "from minivt.backends.cpu import compile_worker\ncompile_worker.IDLE_SECONDS = 0.1\ncompile_worker.main()"
    worker = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env={**os.environ, "PYTHONPATH": root_of_package()})
    try:
        assert worker.wait(timeout=20) == 0
    finally:
        worker.kill()
        worker.communicate()


def test_python_that_cannot_start_workers(pool, monkeypatch):
    for executable in ("", "/nowhere/python", "/bin/true"):
        monkeypatch.setattr(sys, "executable", executable)
        assert len(compile_many([(str(i), kernel_ir(i)) for i in range(6)], host_target())) == 6


def test_threads_take_turns(pool):
    results = {}

    def batch(first):
        results[first] = compile_many([(str(i), kernel_ir(i)) for i in range(first, first + 6)], host_target())
    several = [threading.Thread(target=batch, args=(10 * i,)) for i in range(3)]
    [thread.start() for thread in several]
    [thread.join() for thread in several]
    for first, objects in results.items():
        assert objects == [jit.compile_object(kernel_ir(i), host_target()) for i in range(first, first + 6)]


def test_forked_child_starts_its_own_workers(pool):
    pids = start_workers(pool)
    child = os.fork()
    if child == 0:
        ok = pool.workers == [] and len(compile_many([(str(i), kernel_ir(i)) for i in range(6)], host_target())) == 6
        ok = ok and not {worker.process.pid for worker in pool.workers} & set(pids)
        pool.close()
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(compile_many([(str(i), kernel_ir(i)) for i in range(6)], host_target())) == 6
    assert [worker.process.pid for worker in pool.workers] == pids


UNGUARDED = """
import os, signal, sys, time
from minivt.backends.cpu import compile_pool
from minivt.backends.cpu.host import host_target
compile_pool.compile_many([(str(i), f"define i64 @f{i}() {{ ret i64 {i} }}") for i in range(8)], host_target())
workers = compile_pool._pool.workers
print(*[worker.process.pid for worker in workers], flush=True)
while not all(worker.ready() for worker in workers):
    assert all(worker.process.poll() is None for worker in workers)
    time.sleep(0.01)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end, status", [("returned", 0), ("killed", -signal.SIGKILL)])
def test_workers_of_an_unguarded_script_come_up_anywhere_and_end_with_it(tmp_path, end, status):
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "main.py").write_text(UNGUARDED)
    (tmp_path / "llvmlite.py").write_text("raise ImportError('a worker looked for modules in the current folder')")
    process = subprocess.run([sys.executable, str(tmp_path / "script" / "main.py"), end], capture_output=True,
                             text=True, timeout=60, cwd=tmp_path,
                             env={**os.environ, "PYTHONPATH": root_of_package(), "MINIVT_THREADS": "3"})
    assert process.returncode == status, process.stderr
    pids = process.stdout.split()
    assert len(pids) == 2 and all(gone(pid) for pid in pids)
