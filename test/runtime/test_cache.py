"""The disk cache: what is stored comes back or misses, whatever happens to the folder or beside it."""

import os
import subprocess
import sys
import time
import warnings

import pytest

from minivt.runtime import cache
from minivt.runtime.cache import DiskCache, content_key


def entries(folder):
    return sorted(name for name in os.listdir(folder) if not name.startswith("tmp-"))


def test_key_depends_on_every_part_and_on_where_parts_end():
    assert content_key("ab", "c") == content_key(b"ab", "c")
    assert len({content_key("ab", "c"), content_key("a", "bc"), content_key("abc"), content_key("ab", "c", "")}) == 4


def test_put_then_get(tmp_path):
    store = DiskCache(tmp_path / "new" / "folder")
    assert store.get(content_key("kernel")) is None
    store.put(content_key("kernel"), b"\0object\xff" * 1000)
    assert DiskCache(tmp_path / "new" / "folder").get(content_key("kernel")) == b"\0object\xff" * 1000
    assert os.stat(tmp_path / "new" / "folder").st_mode & 0o777 == 0o700
    assert os.stat(tmp_path / "new" / "folder" / content_key("kernel")).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [
    lambda entry: entry[:-1],
    lambda entry: entry + b"x",
    lambda entry: entry[:-1] + bytes([entry[-1] ^ 1]),
    lambda entry: entry[:20] + bytes([entry[20] ^ 1]) + entry[21:],
    lambda entry: entry[:10],
    lambda entry: b"",
], ids=["cut", "longer", "bit of the data", "bit of the digest", "only a head", "empty"])
def test_damaged_entry_is_a_miss_and_is_deleted(tmp_path, damage):
    store = DiskCache(tmp_path)
    store.put("key", b"object")
    file = tmp_path / "key"
    file.write_bytes(damage(file.read_bytes()))
    assert store.get("key") is None
    assert not file.exists()
    store.put("key", b"object")
    assert store.get("key") == b"object"


def test_entry_under_another_name_is_a_miss(tmp_path):
    store = DiskCache(tmp_path)
    store.put("one", b"object")
    os.rename(tmp_path / "one", tmp_path / "two")
    assert store.get("two") is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_folder_that_others_may_write_is_refused_with_a_warning(tmp_path, mode):
    os.chmod(tmp_path, mode)
    with pytest.warns(RuntimeWarning, match="chmod 700") as caught:
        store = DiskCache(tmp_path)
    store.put("key", b"object")
    assert store.get("key") is None and os.listdir(tmp_path) == [] and len(caught) == 1


def test_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(RuntimeWarning, match="belongs to user"):
        assert DiskCache(tmp_path).folder is None


def test_unusable_folder_is_silent(tmp_path):
    (tmp_path / "file").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for folder in (tmp_path / "file", tmp_path / "file" / "below", "/proc/minivt"):
            store = DiskCache(folder)
            store.put("key", b"object")
            assert store.get("key") is None


def test_folder_deleted_under_a_running_process_is_silent(tmp_path):
    store = DiskCache(tmp_path / "folder")
    store.put("key", b"object")
    os.unlink(tmp_path / "folder" / "key")
    os.rmdir(tmp_path / "folder")
    store.put("key", b"object")
    assert store.get("key") is None


def test_full_disk_leaves_no_temporary_file(tmp_path, monkeypatch):
    store = DiskCache(tmp_path)
    monkeypatch.setattr(os, "replace", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    store.put("key", b"object")
    assert os.listdir(tmp_path) == []


def test_interrupt_while_writing_leaves_no_temporary_file_and_is_not_swallowed(tmp_path, monkeypatch):
    store = DiskCache(tmp_path)
    monkeypatch.setattr(os, "replace", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.put("key", b"object")
    assert os.listdir(tmp_path) == []


def test_least_recently_used_entries_go_first(tmp_path):
    store = DiskCache(tmp_path, max_bytes=10_000)
    past = time.time() - 1000
    for i in range(8):
        store.put(f"key{i}", bytes(1000))
        os.utime(tmp_path / f"key{i}", (past + i, past + i))
    assert store.get("key0") is not None  # now the most recent
    store.put("key8", bytes(1000))
    store.put("key9", bytes(1000))
    left = entries(tmp_path)
    assert "key0" in left and "key9" in left and "key1" not in left and "key2" not in left
    assert sum(os.stat(tmp_path / name).st_size for name in left) <= 10_000
    store.put("huge", bytes(20_000))
    assert store.get("huge") is None and entries(tmp_path) == left


def test_abandoned_temporary_files_are_swept(tmp_path):
    for name, age in (("tmp-1-old", 7200), ("tmp-1-new", 10)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    DiskCache(tmp_path).put("key", b"object")
    assert sorted(os.listdir(tmp_path)) == ["key", "tmp-1-new"]


def test_environment_chooses_the_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MINIVT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_folder() == tmp_path / "minivt"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.default_folder() == tmp_path / ".cache" / "minivt"
    monkeypatch.setenv("MINIVT_CACHE", str(tmp_path / "here"))
    assert DiskCache().folder == tmp_path / "here"
    monkeypatch.setenv("MINIVT_CACHE", "off")
    store = DiskCache()
    store.put("key", b"object")
    assert store.folder is None and store.get("key") is None and not (tmp_path / "off").exists()


HAMMER = """
import random, sys
from minivt.runtime.cache import DiskCache
store, seed = DiskCache(sys.argv[1], max_bytes=200_000), int(sys.argv[2])
rng, hits = random.Random(seed), 0
for _ in range(600):
    name = f"key{rng.randrange(40)}"
    content = (name * 3000).encode()  # one key has one content: that is what content addressing means
    found = store.get(name)
    assert found is None or found == content, name
    hits += found is not None
    store.put(name, content)
    if rng.random() < 0.05:  # and now and then somebody tears an entry
        with open(f"{sys.argv[1]}/{name}", "wb") as file:
            file.write(content[:rng.randrange(100)])
print(hits)
"""


def test_processes_share_a_folder(tmp_path):
    folder = tmp_path / "shared"
    workers = [subprocess.Popen([sys.executable, "-c", HAMMER, str(folder), str(seed)], stdout=subprocess.PIPE)
               for seed in range(4)]
    hits = [int(worker.communicate(timeout=60)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert min(hits) > 50
    assert not [name for name in os.listdir(folder) if name.startswith("tmp-")]
    assert sum(os.stat(folder / name).st_size for name in entries(folder)) <= 200_000 * 1.5


def test_killed_writer_never_leaves_a_torn_entry(tmp_path):
    writer = "from minivt.runtime.cache import DiskCache; import sys; s = DiskCache(sys.argv[1])\n" \
             "print(flush=True)\nwhile True: s.put('key', b'x' * 3_000_000)"
    for delay in (0.0, 0.011, 0.023):
        process = subprocess.Popen([sys.executable, "-c", writer, str(tmp_path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.communicate()
        assert DiskCache(tmp_path).get("key") in (None, b"x" * 3_000_000)
