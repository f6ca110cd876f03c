"""Which backends run here, which is the default, and other packages' backends: broken ones are listed, never fatal."""
import sys
import types
from importlib import metadata

import numpy as np
import pytest

from minivt import Tensor, backends
from minivt.errors import BackendError
from minivt.runtime import seam


class Module(types.ModuleType):
    """A backend's module that borrows the CPU."""
    SEAM_VERSION = seam.SEAM_VERSION

    @staticmethod
    def open_backend(device):
        return seam.backend_of("cpu")


@pytest.fixture
def install(monkeypatch):
    """Pretend that a package brings a module as a backend."""
    points = {}

    def add(name, module):
        value = f"package_{name}"
        if module is not None:
            monkeypatch.setitem(sys.modules, value, module)
        points[name] = metadata.EntryPoint(name, value, backends.GROUP)

    monkeypatch.setattr(backends, "_installed", lambda: points)
    yield add
    for cached in (seam.backend_of, seam._preferred):
        cached.cache_clear()


def test_available_has_a_sentence_for_each_missing_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    backends.import_module("minivt.backends.cuda")._driver.cache_clear()
    seam.backend_of.cache_clear()
    found = backends.available()
    assert list(found)[:5] == ["cpu", "cuda", "reference", "interpret", "null"]
    assert found["cpu"] is found["reference"] is found["null"] is None
    assert found["cuda"].startswith("cuda: pycuda is not installed; ") and "\n" not in found["cuda"]


def test_a_package_brings_a_backend(install):
    install("borrowed", Module("package_borrowed"))
    assert backends.available()["borrowed"] is None
    np.testing.assert_array_equal((Tensor([1.0, 2.0], device="borrowed") + 1).numpy(), [2, 3])


def test_broken_ones_are_listed_and_the_others_run(install):
    old, falls = Module("package_old"), Module("package_falls")
    old.SEAM_VERSION = 0
    falls.open_backend = lambda device: 1 // 0
    install("old", old)
    install("falls", falls)
    install("absent", None)
    found = backends.available()
    assert found["old"] == (f"old: the backend 'package_old' is made for seam version 0, this minivt has "
                            f"{seam.SEAM_VERSION}; install a release of it for this minivt")
    assert found["falls"] == ("falls: opening the device failed (ZeroDivisionError: integer division or modulo by "
                              "zero); repair the package that brings it")
    assert found["absent"].startswith("absent: the backend 'package_absent' failed to load (ModuleNotFoundError: ")
    assert found["cpu"] is None
    with pytest.raises(BackendError, match="seam version 0"):
        Tensor([1.0], device="old").realize()


def test_minivts_own_names_are_not_taken_over(install):
    install("cpu", None)
    assert backends.names().count("cpu") == 1 and backends.available()["cpu"] is None


def test_the_default(monkeypatch):
    monkeypatch.delenv("MINIVT_BACKEND", raising=False)
    seam._preferred.cache_clear()
    monkeypatch.setattr(backends, "_reason", lambda name: None if name == "cuda" else "missing")
    assert seam.default_device() == "cuda"
    seam._preferred.cache_clear()
    monkeypatch.setattr(backends, "_reason", lambda name: "missing")
    assert seam.default_device() == "cpu"                      # never the reason for a traceback
    seam._preferred.cache_clear()
    monkeypatch.setenv("MINIVT_BACKEND", "null")
    assert seam.default_device() == "null"


def test_an_unknown_device_is_refused():
    with pytest.raises(BackendError, match="device: 'abacus' is not known; choose one of cpu, cuda, reference"):
        Tensor([1.0]).to("abacus").realize()


@pytest.mark.parametrize("device", ["null", "null:sm_90a"])
def test_null_generates_and_runs_nothing(device):
    x = Tensor(np.ones((64, 64), np.float32), device=device)
    assert not (x @ x).numpy().any()
    texts = [g.text for g in seam.backend_of(device).generated.values()]
    assert texts and all(("__global__" if device.endswith("sm_90a") else "define") in text for text in texts)


def test_null_knows_its_targets():
    with pytest.raises(BackendError, match="null: 'sm_1' is no target; choose null or null:sm_90a"):
        Tensor([1.0], device="null:sm_1").realize()
