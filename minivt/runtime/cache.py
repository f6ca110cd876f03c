"""Compiled code on disk, addressed by the hash of everything that shaped it.

An entry is one file named by its key: a digest, then the data. Entries appear by an atomic rename and are verified
when read, so processes share a folder without locks and damage is only a miss. The folder belongs to one user.
Not for model weights, and not the place that decides what belongs in a key: callers hash their own parts.
"""

import contextlib
import functools
import hashlib
import os
import secrets
import stat
import time
import warnings
from pathlib import Path

FORMAT = b"minivt cache 1\n"
DEFAULT_MAX_BYTES = 1 << 30
_DIGEST_BYTES = 32
_ABANDONED_SECONDS = 3600.0  # a temporary file this old was left by a process that died


def content_key(*parts: str | bytes) -> str:
    """The hexadecimal SHA-256 of `parts`, each with its length, so that moving text between parts changes the key."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def default_folder() -> Path | None:
    """MINIVT_CACHE ("off": None), else `minivt` under XDG_CACHE_HOME or ~/.cache; None where there is no home."""
    chosen = os.environ.get("MINIVT_CACHE", "")
    if chosen:
        return None if chosen == "off" else Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "minivt"
    try:
        return Path.home() / ".cache" / "minivt"
    except RuntimeError:
        return None


@functools.cache
def disk_cache() -> "DiskCache":
    """The cache of this process, in `default_folder()`."""
    return DiskCache()


class DiskCache:
    """A folder of at most `max_bytes` bytes of entries; the least recently used go first.

    `folder` None asks `default_folder()`. A folder that cannot be made or written is no error: every `get` misses and
    every `put` drops. One that other users own or may write is refused with a warning, since its code would be run.
    """

    def __init__(self, folder: str | os.PathLike | None = None, max_bytes: int = DEFAULT_MAX_BYTES):
        self.folder = default_folder() if folder is None else Path(folder).absolute()
        self.max_bytes = max_bytes
        self._fd = None if self.folder is None else _open_private(self.folder)
        if self._fd is None:
            self.folder = None
        self._unmeasured = max_bytes  # bytes written since the folder was last measured; full, so the first put looks

    def __del__(self):
        if getattr(self, "_fd", None) is not None and os is not None:  # os is gone when the interpreter ends
            os.close(self._fd)

    def get(self, key: str) -> bytes | None:
        """The data stored under `key`, or None; a damaged entry is deleted."""
        if self._fd is None:
            return None
        try:
            with open(key, "rb", opener=self._open) as file:
                head, data = file.read(len(FORMAT) + _DIGEST_BYTES), file.read()
        except OSError:
            return None
        intact = head == _head(key, data)
        with contextlib.suppress(OSError):  # a folder that is read-only by now still serves
            os.utime(key, dir_fd=self._fd) if intact else os.unlink(key, dir_fd=self._fd)
        return data if intact else None

    def put(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, replacing what was there; silently does nothing where the disk refuses."""
        entry = _head(key, data) + data
        if self._fd is None or len(entry) > self.max_bytes:
            return
        with contextlib.suppress(OSError):
            self._write(key, entry)
            self._unmeasured += len(entry)
            if self._unmeasured > self.max_bytes // 16:  # so that a few writers together overshoot by little
                self._evict()

    def _write(self, key: str, entry: bytes) -> None:
        temporary = f"tmp-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with open(temporary, "xb", opener=self._open) as file:
                file.write(entry)
            os.replace(temporary, key, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._fd)
            raise

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, mode=0o600, dir_fd=self._fd)

    def _evict(self) -> None:
        """Measure the folder; when it is too large, delete the entries used longest ago, down to 7/8 of the limit."""
        self._unmeasured = 0
        entries, total = [], 0
        with os.scandir(self._fd) as files:
            for file in files:
                try:
                    info = file.stat(follow_symlinks=False)
                except FileNotFoundError:  # another process evicts too
                    continue
                abandoned = file.name.startswith("tmp-") and info.st_mtime < time.time() - _ABANDONED_SECONDS
                entries.append((0.0 if abandoned else info.st_mtime, abandoned, file.name, info.st_size))
                total += info.st_size
        goal = total if total <= self.max_bytes else self.max_bytes * 7 // 8
        for _, abandoned, name, size in sorted(entries):
            if not abandoned and total <= goal:
                break
            total -= size
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)


def _head(key: str, data: bytes) -> bytes:
    """What precedes `data` in its file; the key is hashed too, so that a renamed entry is a damaged one."""
    return FORMAT + hashlib.sha256(key.encode() + b"\n" + data).digest()


def _open_private(folder: Path) -> int | None:
    """A descriptor of `folder`, made with mode 0700 when missing; None when unusable.

    Later calls go through the descriptor, so the folder that was checked is the folder that is used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    info = os.fstat(fd)
    if info.st_uid == os.geteuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return fd
    os.close(fd)
    warnings.warn(
        f"cache folder {folder} belongs to user {info.st_uid} with mode {stat.S_IMODE(info.st_mode):o}, so nothing is "
        "cached; it must be yours and writable by you alone: chmod 700 it or set MINIVT_CACHE to another folder",
        RuntimeWarning, stacklevel=3)
    return None


@functools.cache
def source_version() -> str:
    """A digest of what decides generated code besides its input: the source of graph, schedule and code generator."""
    folder = Path(__file__).parents[1]
    files = [*folder.glob("*.py"), *folder.glob("schedule/*.py"), *folder.glob("codegen/**/*.py")]
    return content_key("source", *(f.read_bytes() for f in sorted(files)))
