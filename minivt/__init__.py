"""minivt: a lazy tensor graph over about forty primitives, scheduled into few kernels and compiled.

The public names; each is imported when it is first used. Not for implementations.
"""
from importlib import import_module

_MODULE_OF = {
    **dict.fromkeys(("Tensor",), "tensor"),
    **dict.fromkeys(("Variable",), "variable"),
    **dict.fromkeys(("arange", "eye", "from_numpy", "full", "linspace", "ones", "zeros"), "creation"),
    **dict.fromkeys(("cat", "einsum", "maximum", "minimum", "realize", "stack", "where"), "functional"),
    **dict.fromkeys(("manual_seed",), "random"),
    "jit": "runtime.jit", "stats": "runtime.stats", "explain": "runtime.explain",
}
_MODULES = ("dtypes", "errors", "nn", "random")

__all__ = [*_MODULE_OF, *_MODULES]


def __getattr__(name: str):
    if name in _MODULES:
        return import_module(f"minivt.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'minivt' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"minivt.{_MODULE_OF[name]}"), name)
    return value


def __dir__():
    return sorted(__all__)
