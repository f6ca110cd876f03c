"""Native programs: every task once, every step after the one before, through forks, signals and Python threads."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from minivt.backends.cpu import jit, workers
from minivt.backends.cpu.host import host_target
from minivt.backends.cpu.workers import NativeProgram, Step
from minivt.errors import DTypeError

# Every kernel's task count is its first variable.
KERNELS = """
declare i64 @pthread_self()
declare i32 @usleep(i32)

define i64 @tasks(ptr %vars) {
  %n = load i64, ptr %vars
  ret i64 %n
}

; Sleep (begin + 1) * vars[1] microseconds: later chunks take longer.
define void @pause(ptr %vars, i64 %begin) {
  %unit.p = getelementptr i64, ptr %vars, i64 1
  %unit = load i64, ptr %unit.p
  %awake = icmp eq i64 %unit, 0
  br i1 %awake, label %exit, label %sleep
sleep:
  %times = add i64 %begin, 1
  %long = mul i64 %times, %unit
  %long.32 = trunc i64 %long to i32
  call i32 @usleep(i32 %long.32)
  br label %exit
exit:
  ret void
}

; out[i] = source[tasks - 1 - i] + 1: every task needs what another thread wrote in the step before
define void @flip(ptr %bufs, ptr %vars, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %source = load ptr, ptr %bufs
  %out.p = getelementptr ptr, ptr %bufs, i64 1
  %out = load ptr, ptr %out.p
  %n = load i64, ptr %vars
  %top = sub i64 %n, 1
  call void @pause(ptr %vars, i64 %begin)
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %j = sub i64 %top, %i
  %from = getelementptr i64, ptr %source, i64 %j
  %to = getelementptr i64, ptr %out, i64 %i
  %x = load i64, ptr %from
  %y = add i64 %x, 1
  store i64 %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}

; rows (thread, scratch, begin, end) of the chunk, at row `begin`
define void @record(ptr %bufs, ptr %vars, i64 %begin, i64 %end, ptr %scratch) {
  %rows = load ptr, ptr %bufs
  %row = getelementptr [4 x i64], ptr %rows, i64 %begin
  %thread = call i64 @pthread_self()
  store i64 %thread, ptr %row
  %scratch.p = getelementptr i64, ptr %row, i64 1
  store ptr %scratch, ptr %scratch.p
  store i64 %begin, ptr %scratch
  call void @pause(ptr %vars, i64 %begin)
  %kept = load i64, ptr %scratch
  %begin.p = getelementptr i64, ptr %row, i64 2
  store i64 %kept, ptr %begin.p
  %end.p = getelementptr i64, ptr %row, i64 3
  store i64 %end, ptr %end.p
  ret void
}
"""
NAMES = ["tasks", "flip", "record"]


def root_of_package():
    return str(Path(jit.__file__).parents[3])


def python(script, *arguments, **environment):
    """Run `script` in a fresh interpreter that imports this minivt; its output. Fails the test when it fails."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": root_of_package(), **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def processor_ms(seconds):
    """Milliseconds of processor time that this process uses while its main thread sleeps."""
    before = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - before) * 1e3


@pytest.fixture(scope="module")
def code():
    return jit.load_object(jit.compile_object(KERNELS, host_target()), NAMES)


@pytest.fixture
def threads(monkeypatch):
    """Set the number of native threads for this test."""
    def use(count):
        monkeypatch.setenv("MINIVT_THREADS", str(count))
        workers.stop_workers()
    yield use
    workers.stop_workers()


def flips(code, tasks, steps, microseconds=0):
    """(data, program): `steps` dependent flips between two buffers; data[steps % 2] gains `steps` in every place."""
    data = np.zeros((2, tasks), np.int64)
    addresses = [row.ctypes.data for row in data]
    there, back = np.array(addresses, np.uint64), np.array(addresses[::-1], np.uint64)
    variables = np.array([tasks, microseconds], np.int64)
    return data, NativeProgram([Step(code["flip"], code["tasks"], back if i % 2 else there, variables, code)
                                for i in range(steps)], 0)


def recorder(code, tasks, scratch_bytes=64, microseconds=0):
    """(rows, program): one step whose chunks write (thread, scratch, begin, end) at row `begin`."""
    rows = np.zeros((tasks, 4), np.int64)
    step = Step(code["record"], code["tasks"], np.array([rows.ctypes.data], np.uint64),
                np.array([tasks, microseconds], np.int64), code)
    return rows, NativeProgram([step], scratch_bytes)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_steps_see_all_of_the_step_before(code, threads, count):
    threads(count)
    for tasks in (1, 2, 3, 7, 8, 9, 64, 1001):
        data, program = flips(code, tasks, 50)
        for runs in range(1, 11):
            program.run()
            assert (data[0] == 50 * runs).all(), (tasks, runs)
    for tasks in (2, 7):  # and when some thread is late
        data, program = flips(code, tasks, 20, microseconds=200)
        program.run()
        assert (data[0] == 20).all()


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_chunks_cover_every_task_once(code, threads, count):
    threads(count)
    for tasks in (1, 2, 5, 8, 33, 1000):
        rows, program = recorder(code, tasks)
        program.run()
        chunks = rows[rows[:, 3] != 0]
        assert list(chunks[1:, 2]) == list(chunks[:-1, 3]) and chunks[0, 2] == 0 and chunks[-1, 3] == tasks
        assert len(chunks) <= count * 4


def test_work_is_shared_and_scratch_is_private(code, threads):
    threads(3)
    rows, program = recorder(code, 12, scratch_bytes=1000, microseconds=1000)
    program.run()
    by_thread = {thread: set(rows[rows[:, 0] == thread, 1]) for thread in set(rows[:, 0])}
    assert len(by_thread) == 3 and threading.get_ident() in by_thread
    assert all(len(blocks) == 1 for blocks in by_thread.values())
    blocks = sorted(block for blocks in by_thread.values() for block in blocks)
    assert all(block % 64 == 0 for block in blocks) and min(np.diff(blocks)) >= 1000
    rows, larger = recorder(code, 12, scratch_bytes=100_000, microseconds=500)
    larger.run()
    assert min(np.diff(sorted(set(rows[:, 1])))) >= 100_000
    program.run()


def test_one_task_runs_on_the_calling_thread_and_none_is_skipped(code, threads):
    threads(2)
    rows, program = recorder(code, 4)
    program.steps[0].vars[:] = (1, 0)
    for _ in range(20):
        rows[:] = 0
        program.run()
        assert rows[0, 0] == threading.get_ident()
    rows[:] = 0
    program.steps[0].vars[:] = (0, 0)
    program.run()
    assert (rows == 0).all()
    NativeProgram([], 0).run()


def test_buffers_and_variables_are_read_at_each_run(code, threads):
    threads(2)
    data, program = flips(code, 16, 1)
    program.run()
    program.steps[0].vars[0] = 4
    program.steps[0].buffers[:] = program.steps[0].buffers[::-1].copy()
    program.run()
    assert list(data[1]) == [1] * 16 and list(data[0]) == [2] * 4 + [0] * 12


def test_wrong_arrays_are_refused():
    good = dict(buffers=np.zeros(2, np.uint64), vars=np.zeros(2, np.int64))
    for name, bad in (("vars", np.zeros(2, np.int32)), ("buffers", np.zeros(2, np.int64)),
                      ("vars", np.zeros(4, np.int64)[::2])):
        with pytest.raises(DTypeError, match=f"Step: {name} is"):
            Step(0, 0, **{**good, name: bad})


def test_idle_workers_use_no_processor(code, threads):
    threads(3)
    data, program = flips(code, 64, 10)
    program.run()
    time.sleep(0.01)
    assert processor_ms(0.3) < 5


def eventually(holds, seconds=5):
    """Whether a condition comes to hold."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.001)
    return holds()


def test_threads_end_and_come_back(code, threads):
    threads(4)
    alone = len(os.listdir("/proc/self/task"))
    for _ in range(20):
        data, program = flips(code, 64, 2)
        program.run()
        assert len(os.listdir("/proc/self/task")) == alone + 3
        workers.stop_workers()
        assert eventually(lambda: len(os.listdir("/proc/self/task")) == alone)  # joined threads linger in the list


def test_workers_block_signals(code, threads):
    threads(1)
    data, program = flips(code, 8, 1)
    program.run()
    before = set(os.listdir("/proc/self/task"))
    threads(3)
    data, program = flips(code, 8, 1)
    program.run()
    added = set(os.listdir("/proc/self/task")) - before
    assert len(added) == 2
    for thread in added:
        status = dict(line.split(":\t") for line in Path(f"/proc/self/task/{thread}/status").read_text().splitlines())
        assert int(status["SigBlk"], 16) & 1 << signal.SIGINT - 1
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_python_threads_take_turns(code, threads):
    threads(2)
    wrong = []

    def repeat(tasks):
        data, program = flips(code, tasks, 20)
        for runs in range(1, 101):
            program.run()
            if not (data[0] == 20 * runs).all():
                wrong.append((tasks, runs))
    several = [threading.Thread(target=repeat, args=(tasks,)) for tasks in (1, 5, 64, 100)]
    [thread.start() for thread in several]
    [thread.join() for thread in several]
    assert not wrong


def test_other_python_threads_go_on(code, threads):
    threads(2)
    rows, program = recorder(code, 2, microseconds=100_000)
    ticks = []
    ticker = threading.Thread(target=lambda: [(time.sleep(0.005), ticks.append(time.time())) for _ in range(20)])
    ticker.start()
    begin = time.time()
    program.run()
    end = time.time()
    ticker.join()
    assert len([tick for tick in ticks if begin < tick < end]) > 5


def test_late_worker_is_waited_for_asleep(code, threads):
    """The caller sleeps, rather than spins, while another thread works long on the last chunk."""
    threads(2)
    rows, program = recorder(code, 2, microseconds=100_000)  # 0.1 s here, 0.2 s there
    program.run()
    time.sleep(0.01)  # so that the other thread sleeps and this one takes the first chunk
    before = time.process_time()
    program.run()
    assert time.process_time() - before < 0.03 and (rows[:, 3] == (1, 2)).all()


def test_interrupt_is_raised_when_the_program_is_through(code, threads):
    threads(2)
    rows, program = recorder(code, 8, microseconds=4_000)
    data, after = flips(code, 64, 10)
    for _ in range(3):
        rows[:] = 0
        timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            program.run()
            timer.join()
        assert (rows[:, 3] == np.arange(1, 9)).all()
        after.run()
    assert (data[0] == 30).all()


@pytest.mark.parametrize("while_running", [False, True])
def test_fork(code, threads, while_running):
    """A child has no native threads; it starts its own, also when the parent forks in the middle of a run."""
    threads(3)
    rows, program = recorder(code, 12, microseconds=2_000)
    program.run()
    running = threading.Thread(target=program.run)
    if while_running:
        running.start()
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a hang would be the failure
        data, own = flips(code, 64, 50)
        own.run()
        own.run()
        os._exit(0 if (data[0] == 100).all() and len(os.listdir("/proc/self/task")) == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if while_running:
        running.join()
    data, again = flips(code, 64, 50)
    again.run()
    assert (data[0] == 50).all()


def test_runner_is_read_from_the_disk_cache(tmp_path):
    script = """
from minivt.backends.cpu import jit, workers
import sys
if sys.argv[1] == "warm":
    jit.compile_object = None
workers.NativeProgram([], 0).run()
"""
    for state in ("cold", "warm"):
        python(script, state, MINIVT_CACHE=str(tmp_path / "cache"))
    assert len(list((tmp_path / "cache").iterdir())) == 1
