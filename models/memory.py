"""How much memory a model may still take on this machine, so that too large a one is refused before it is compiled.

For: the host's RAM as the operating system and the container report it.  Not for: device memory, nor accounting.
"""
from __future__ import annotations

import os
from pathlib import Path

from minivt.errors import MemoryLimitError

MEMINFO = Path("/proc/meminfo")
# (limit, use, statistics) of the container's control group: version 2, then version 1.
CGROUPS = [tuple(Path("/sys/fs/cgroup") / name for name in names) for names in (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"))]


def available_bytes() -> int | None:
    """Bytes that can be allocated without swapping, the least of what system and container allow; None if unknown.

    Pages of files that the system caches count as available: it drops them when asked.
    """
    known = [bytes for bytes in (system_available(), *(cgroup_available(*paths) for paths in CGROUPS))
             if bytes is not None]
    return min(known, default=None)


def check_memory(weights: int, cache: int) -> None:
    """Errors: MemoryLimitError where weights and KV cache, in bytes, exceed what is available."""
    available = available_bytes()
    if available is not None and weights + cache > available:
        raise MemoryLimitError(f"weights take {mib(weights)} and the KV cache {mib(cache)}, {mib(available)} are "
                               "free; use a smaller model or a shorter context")


def mib(bytes: int) -> str:
    return f"{bytes / 2**20:,.0f} MiB"


def system_available() -> int | None:
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):                  # not a system that says
        return None


def cgroup_available(limit: Path, use: Path, statistics: Path) -> int | None:
    try:
        fields = dict(line.split() for line in statistics.read_text().splitlines())
        reclaimable = int(fields.get("inactive_file", 0))
        return max(0, int(limit.read_text()) - int(use.read_text()) + reclaimable)
    except (OSError, ValueError):                                  # no such group, or its limit is "max"
        return None
