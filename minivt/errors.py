"""One class per kind of failure; every message is one sentence.

A message names the argument, what came, what is allowed and what to do. Not for control flow.
"""


class MinivtError(Exception):
    """Base of every error that minivt raises on purpose."""


class ShapeError(MinivtError, ValueError):
    """Shapes, axes or regions that do not fit together."""


class DTypeError(MinivtError, TypeError):
    """An element type that the operation or the device does not take."""


class BoundsError(MinivtError, IndexError):
    """An index or a bound value outside its allowed range."""


class BackendError(MinivtError, RuntimeError):
    """A device, driver or compiler that is missing or refused the work."""


class CompileError(MinivtError, RuntimeError):
    """Generated code that the target's compiler rejected."""


class LoadError(MinivtError, ValueError):
    """A model file that is damaged, incomplete or of an unknown kind."""


class CaptureError(MinivtError, RuntimeError):
    """Something inside a captured function that cannot be replayed."""


class MemoryLimitError(MinivtError, MemoryError):
    """More memory asked for than the device has."""
