"""How much memory is free, as the system and the container say it, read from files made here."""
import pytest

from minivt.errors import MemoryLimitError
from minivt.models import memory


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with 1000 KiB available and control group files as given."""
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:   1000 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUPS", [tuple(tmp_path / name for name in ("limit", "use", "stat"))])

    def container(limit, use="0", stat=""):
        for name, text in ("limit", limit), ("use", use), ("stat", stat):
            (tmp_path / name).write_text(text)
    return container


def test_system(host):
    assert memory.available_bytes() == 1000 * 1024


def test_container(host):
    host("max")
    assert memory.available_bytes() == 1000 * 1024
    host("5000", use="3000")
    assert memory.available_bytes() == 2000
    host("5000", use="3000", stat="anon 1\ninactive_file 500")      # cached file pages can be dropped
    assert memory.available_bytes() == 2500
    host("5000", use="9000")
    assert memory.available_bytes() == 0
    host("99999999999")
    assert memory.available_bytes() == 1000 * 1024
    host("nonsense")
    assert memory.available_bytes() == 1000 * 1024


def test_check(host):
    memory.check_memory(1000 * 1024 - 5, 5)
    with pytest.raises(MemoryLimitError):
        memory.check_memory(1000 * 1024 - 5, 6)
    with pytest.raises(MemoryLimitError, match="weights take 3 MiB and the KV cache 2 MiB, 1 MiB are free"):
        memory.check_memory(3 << 20, 2 << 20)


def test_unknown_is_no_reason_to_refuse(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    memory.check_memory(1 << 60, 1 << 60)


def test_this_machine():
    assert memory.available_bytes() is None or memory.available_bytes() > 0
