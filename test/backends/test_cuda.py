"""The CUDA backend where there is no GPU: one sentence each, and codegen that needs no driver."""
import importlib.util
import sys

import pytest

from minivt.backends import cuda
from minivt.codegen.target import SM_90A
from minivt.errors import BackendError


@pytest.fixture(autouse=True)
def fresh_driver():
    cuda._driver.cache_clear()
    yield
    cuda._driver.cache_clear()


def test_names():
    with pytest.raises(BackendError, match="cuda:x"):
        cuda.open_backend("cuda:x")


def test_without_pycuda(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(BackendError, match="pycuda is not installed; in the clone of minivt"):
        cuda.open_backend("cuda")


def test_without_a_driver(monkeypatch):
    """`import pycuda.driver` fails with the loader's ImportError when libcuda.so.1 is missing."""
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return importlib.util.spec_from_loader(name, Finder, is_package=name == "pycuda") \
                if name in ("pycuda", "pycuda.driver") else None

        @staticmethod
        def create_module(spec):
            return None

        @staticmethod
        def exec_module(module):
            if module.__name__ == "pycuda.driver":
                raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")

    for name in ("pycuda", "pycuda.driver"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(BackendError) as caught:
        cuda.open_backend("cuda:0")
    assert str(caught.value) == ("cuda: libcuda.so.1 was not found; install the NVIDIA driver or choose "
                                 "MINIVT_BACKEND=cpu")


def test_targets():
    assert cuda.device_target((9, 0), 132, 232448) == SM_90A
    ampere = cuda.device_target((8, 6), 84, 101376)
    assert (ampere.name, ampere.units, ampere.shared_bytes) == ("sm_86", 84, 101376)
    assert {i.name for i in ampere.matrix} == {"mma"}
    assert cuda.device_target((7, 5), 40, 65536).matrix == ()
