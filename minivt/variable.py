"""Variable: an integer that is chosen at each run, and the sizes that are computed from it.

A program built over a Variable is built once and runs for every value within its bounds. Not for the algebra of
symbolic integers (symbolic.py), nor for tensors of values.
"""
from __future__ import annotations

import operator

import numpy as np

from minivt import ops, symbolic
from minivt.errors import BoundsError, ShapeError
from minivt.graph import Node
from minivt.runtime.variables import VARIABLES, check_bound, variables_of


class SymbolicInt:
    """An integer expression over Variables: a size of a tensor or a bound of a slice.

    +, -, *, // and % with integers give SymbolicInts again, or an int where nothing symbolic is left. Equality is
    equality of expressions. An order is decided from the bounds of the Variables, ShapeError where they allow both.
    """
    __slots__ = ("node",)

    def __init__(self, node: Node):
        self.node = node

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and highest value."""
        return symbolic.bounds(self.node)

    @property
    def value(self) -> int:
        """The integer for the values bound now; BoundsError where a Variable has none."""
        return _evaluated(self.node)

    def __add__(self, other):
        return _combined(symbolic.add, self, other)

    def __sub__(self, other):
        return _combined(symbolic.sub, self, other)

    def __rsub__(self, other):
        return _combined(lambda a, b: symbolic.sub(b, a), self, other)

    def __mul__(self, other):
        return _combined(symbolic.mul, self, other)

    def __floordiv__(self, other):
        return _combined(symbolic.idiv, self, other)

    def __mod__(self, other):
        return _combined(symbolic.mod, self, other)

    def __neg__(self):
        return self * -1

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other):
        return unwrap(other) is self.node if is_size(other) else NotImplemented

    def __hash__(self):
        return hash(self.node)

    def __lt__(self, other):
        return _decided(symbolic.lt, self, other)

    def __le__(self, other):
        return _decided(symbolic.le, self, other)

    def __gt__(self, other):
        return _decided(lambda a, b: symbolic.lt(b, a), self, other)

    def __ge__(self, other):
        return _decided(lambda a, b: symbolic.le(b, a), self, other)

    def __bool__(self):
        low, high = self.bounds
        if low <= 0 <= high:
            raise ShapeError(f"{self} may be zero or not; compare its bounds instead")
        return True

    def __repr__(self) -> str:
        return expression(self.node)


class Variable(SymbolicInt):
    """An integer lowest <= value <= highest that `bind` sets before a run.

    The value belongs to the name: what is realised after a bind sees that value, however long ago it was built.
    """
    __slots__ = ()

    def __init__(self, name: str, lowest: int, highest: int):
        if lowest > highest:
            raise BoundsError(f"Variable: {name!r} has bounds {lowest} to {highest}; the lowest must come first")
        super().__init__(symbolic.variable(name, lowest, highest))

    @property
    def name(self) -> str:
        return self.node.arg[0]

    def bind(self, value: int) -> Variable:
        """Set the value for the runs that follow; returns self. BoundsError outside the bounds."""
        value = operator.index(value)
        _, lowest, highest = self.node.arg
        if not lowest <= value <= highest:
            raise BoundsError(f"bind: {self.name!r} cannot be {value}; it was declared from {lowest} to {highest}")
        VARIABLES[self.name] = value
        return self


def _evaluated(value: Node) -> int:
    check_bound(variables_of(value))
    return symbolic.evaluate(value, VARIABLES)


# --- ints and symbolic ints alike ------------------------------------------------------------------------------------

def is_size(value) -> bool:
    """Whether a value is an integer, Python's, NumPy's or symbolic."""
    if isinstance(value, (SymbolicInt, Node)):
        return True
    return hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_)) and getattr(value, "shape", ()) == ()


def unwrap(value):
    """The int or Node of a size given by the user."""
    if isinstance(value, SymbolicInt):
        return value.node
    return symbolic.as_size(value) if isinstance(value, Node) else operator.index(value)


def wrap(value):
    """The int or SymbolicInt that the user sees of an int or Node."""
    value = symbolic.as_size(value)
    return SymbolicInt(value) if isinstance(value, Node) else value


def add(*values):
    """The sum of ints and Nodes, an int where it is constant."""
    if all(isinstance(v, int) for v in values):
        return sum(values)
    return symbolic.as_size(symbolic.add(*values))


def sub(a, b):
    return a - b if isinstance(a, int) and isinstance(b, int) else symbolic.as_size(symbolic.sub(a, b))


def mul(a, b):
    return a * b if isinstance(a, int) and isinstance(b, int) else symbolic.as_size(symbolic.mul(a, b))


def prod(values):
    total = 1
    for value in values:
        total = mul(total, value)
    return total


def bounds(value) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else symbolic.bounds(value)


def _combined(rule, a: SymbolicInt, b):
    if not is_size(b):
        return NotImplemented
    return wrap(rule(a.node, unwrap(b)))


def _decided(rule, a: SymbolicInt, b):
    if not is_size(b):
        return NotImplemented
    answer = rule(a.node, unwrap(b))
    if answer is symbolic.TRUE or answer is symbolic.FALSE:
        return answer is symbolic.TRUE
    raise ShapeError(f"the order of {a} and {b} depends on the values of variables; compare their bounds instead")


_SYMBOLS = {ops.ADD: "+", ops.MUL: "*", ops.IDIV: "//", ops.MOD: "%", ops.LT: "<", ops.AND: "&"}


def expression(value) -> str:
    """A size as text: (start + 1)."""
    if not isinstance(value, Node):
        return str(value)
    if value.op in (ops.CONST, ops.VARIABLE):
        return str(value.arg if value.op is ops.CONST else value.arg[0])
    inner = [expression(s) for s in value.src]
    if value.op in _SYMBOLS:
        return f"({inner[0]} {_SYMBOLS[value.op]} {inner[1]})"
    return f"{value.op.name.lower()}({', '.join(inner)})"


def shape_text(shape) -> str:
    inner = ", ".join(expression(s) for s in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
