"""Implementations of runtime's seam, one module or folder each, and which of them can run here.

Nothing is imported until it is asked for. Not for the seam itself (runtime/seam.py).
"""
from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from types import ModuleType

from minivt.errors import BackendError, MinivtError
from minivt.runtime.seam import SEAM_VERSION, backend_of

GROUP = "minivt.backends"  # entry points of other packages: a device's name -> a module like those below
# The first part of a device name -> the module whose open_backend(device) gives its Backend.
MODULES = {
    "cpu": "minivt.backends.cpu.backend",
    "cuda": "minivt.backends.cuda",
    "reference": "minivt.backends.reference_backend",
    "interpret": "minivt.backends.reference_backend",
    "null": "minivt.backends.null",
}
PREFERRED = ("cuda", "cpu")  # the default is the first of these that runs here


def names() -> list[str]:
    """Every backend's name, minivt's own first."""
    return [*MODULES, *(name for name in _installed() if name not in MODULES)]


def available() -> dict[str, str | None]:
    """Each backend's name -> None where it runs here, else one sentence that says why not. Never raises."""
    return {name: _reason(name) for name in names()}


def preferred() -> str:
    """The device used where MINIVT_BACKEND names none."""
    return next(name for name in PREFERRED if name == "cpu" or _reason(name) is None)


def module_of(name: str) -> ModuleType:
    """The module of a backend; BackendError where there is none, it fails to load or speaks another seam version."""
    if name in MODULES:
        return import_module(MODULES[name])
    if name not in _installed():
        raise BackendError(f"device: {name!r} is not known; choose one of {', '.join(names())}")
    found = _installed()[name]
    try:
        module = found.load()
    except Exception as error:  # other people's code may fail in any way; the others must stay usable
        raise BackendError(f"{name}: the backend {found.value!r} failed to load ({type(error).__name__}: {error}); "
                           "repair or uninstall the package that brings it") from error
    version = getattr(module, "SEAM_VERSION", None)
    if version != SEAM_VERSION:
        raise BackendError(f"{name}: the backend {found.value!r} is made for seam version {version}, this minivt has "
                           f"{SEAM_VERSION}; install a release of it for this minivt")
    return module


@cache
def _installed() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def _reason(name: str) -> str | None:
    try:
        backend_of(name)
    except MinivtError as error:
        return str(error)
    except Exception as error:  # a backend that breaks while it opens is listed like one that is missing
        return f"{name}: opening the device failed ({type(error).__name__}: {error}); repair the package that brings it"
    return None
