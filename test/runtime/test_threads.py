"""How many threads: the environment, affinity, and cgroup quotas read from a pretended /proc and /sys."""

import os

import pytest

from minivt.errors import BackendError
from minivt.runtime import threads


@pytest.fixture(autouse=True)
def no_setting(monkeypatch):
    monkeypatch.delenv("MINIVT_THREADS", raising=False)


def machine(tmp_path, groups, mounts, files):
    """A /proc/self below `tmp_path`; mounts are (root, mount point, kind, options), files are path -> text."""
    (tmp_path / "cgroup").write_text("".join(line + "\n" for line in groups))
    (tmp_path / "mountinfo").write_text("25 1 8:1 / / rw - ext4 /dev/vda rw\n" + "".join(
        f"31 23 0:28 {root} {tmp_path / point} rw,relatime shared:9 - {kind} {kind} {options}\n"
        for root, point, kind, options in mounts))
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_setting_wins(monkeypatch):
    monkeypatch.setenv("MINIVT_THREADS", "7")
    assert threads.thread_count() == 7


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " "])
def test_bad_setting_is_named(monkeypatch, text):
    monkeypatch.setenv("MINIVT_THREADS", text)
    with pytest.raises(BackendError, match="MINIVT_THREADS"):
        threads.thread_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
def test_affinity(monkeypatch):
    monkeypatch.setattr(threads, "cgroup_quota", lambda: None)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert threads.thread_count() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("quota, count", [(None, 8), (3.0, 3), (2.7, 2), (0.25, 1), (64.0, 8)])
def test_quota_rounds_down_to_at_least_one(monkeypatch, quota, count):
    monkeypatch.setattr(threads, "available_cpus", lambda: 8)
    monkeypatch.setattr(threads, "cgroup_quota", lambda: quota)
    assert threads.thread_count() == count


def test_v2_tightest_group_on_the_way_up(tmp_path):
    proc = machine(tmp_path, ["0::/a/b/c"], [("/", "cg", "cgroup2", "rw")],
                   {"cg/a/b/c/cpu.max": "max 100000\n", "cg/a/b/cpu.max": "400000 100000\n",
                    "cg/a/cpu.max": "250000 100000\n"})
    assert threads.cgroup_quota(proc) == 2.5


def test_v2_in_a_container_whose_mount_starts_at_its_own_group(tmp_path):
    proc = machine(tmp_path, ["0::/docker/abc/job"], [("/docker/abc", "cg", "cgroup2", "rw")],
                   {"cg/job/cpu.max": "max 100000\n", "cg/cpu.max": "150000 100000\n"})
    assert threads.cgroup_quota(proc) == 1.5


def test_v1(tmp_path):
    proc = machine(tmp_path, ["4:memory:/other", "1:cpu,cpuacct:/job", "0::/"],
                   [("/", "mem", "cgroup", "rw,memory"), ("/", "cpu", "cgroup", "rw,cpu,cpuacct")],
                   {"cpu/job/cpu.cfs_quota_us": "300000\n", "cpu/job/cpu.cfs_period_us": "100000\n",
                    "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"})
    assert threads.cgroup_quota(proc) == 3.0


def test_v1_group_outside_the_mount(tmp_path):
    proc = machine(tmp_path, ["1:cpu:/docker/abc"], [("/docker/xyz", "cpu", "cgroup", "rw,cpu")],
                   {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"})
    assert threads.cgroup_quota(proc) == 0.5


def test_no_limit_and_no_cgroups(tmp_path):
    assert threads.cgroup_quota(tmp_path / "missing") is None
    proc = machine(tmp_path, ["0::/"], [("/", "cg", "cgroup2", "rw")], {"cg/cpu.max": "garbage\n"})
    assert threads.cgroup_quota(proc) is None
