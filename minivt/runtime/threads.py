"""How many threads this process should use: MINIVT_THREADS, else what affinity and cgroup quotas allow.

Not for starting threads; backends do that.
"""

import os
from pathlib import Path

from minivt.errors import BackendError


def thread_count() -> int:
    """MINIVT_THREADS, else the smaller of the CPUs that this process may run on and its cgroup quota; at least 1.

    Raises BackendError when MINIVT_THREADS is not a positive integer.
    """
    asked = os.environ.get("MINIVT_THREADS", "")
    if asked:
        if not asked.isdecimal() or int(asked) < 1:
            raise BackendError(f"MINIVT_THREADS is {asked!r}; it must be a positive integer, or unset to use every CPU")
        return int(asked)
    quota = cgroup_quota()
    # A part of a CPU is rounded down: threads that meet at barriers wait for whichever the kernel throttles.
    return max(1, available_cpus() if quota is None else min(available_cpus(), int(quota)))


def available_cpus() -> int:
    """CPUs that the scheduler may run this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_quota(proc: Path = Path("/proc/self")) -> float | None:
    """CPUs granted by the tightest cgroup (v1 or v2) around this process; None without a limit.

    `proc` is the process's folder; its `mountinfo` says where hierarchies are mounted and from which group on.
    """
    try:
        groups = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    unified = next((path for _, controllers, path in groups if not controllers), None)
    legacy = next((path for _, controllers, path in groups if "cpu" in controllers.split(",")), None)
    quotas = []
    for mount in mounts:
        fields, _, kind = mount.partition(" - ")
        if kind.startswith("cgroup2 ") and unified is not None:
            quotas += _quotas(fields, unified, _read_v2)
        elif kind.startswith("cgroup ") and "cpu" in kind.split(" ")[-1].split(",") and legacy is not None:
            quotas += _quotas(fields, legacy, _read_v1)
    return min(quotas, default=None)


def _quotas(mount_fields: str, group: str, read) -> list[float]:
    """The limits of `group` and the groups around it, as far up as this mount shows."""
    _, _, _, root, mount_point = mount_fields.split(" ")[:5]
    below = os.path.relpath(group, root)
    if below.startswith(".."):  # the mount shows another part of the hierarchy: its top is the best that can be seen
        below = "."
    folder = Path(mount_point) / below
    found = []
    for level in [folder, *folder.parents]:
        try:
            found.append(read(level))
        except (OSError, ValueError):
            pass
        if level == Path(mount_point):
            break
    return [quota for quota in found if quota is not None]


def _read_v2(folder: Path) -> float | None:
    quota, period = (folder / "cpu.max").read_text().split()
    return None if quota == "max" else int(quota) / int(period)


def _read_v1(folder: Path) -> float | None:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    return None if quota <= 0 else quota / int((folder / "cpu.cfs_period_us").read_text())
