"""The values of Variables at a run: where they are kept, which of them a graph needs, whether they are in bounds."""
from __future__ import annotations

from minivt import ops
from minivt.errors import BoundsError
from minivt.graph import Node
from minivt.scan import ScanBody

VARIABLES: dict[str, int] = {}  # the bound value of each Variable, by name


def variables_of(*roots: Node) -> list[Node]:
    """The VARIABLE nodes below the roots, in the sources and in the arguments: sizes, starts and regions."""
    found, seen, stack = [], set(), list(roots)
    while stack:
        current = stack.pop()
        if isinstance(current, tuple):
            stack.extend(current)
        elif isinstance(current, ScanBody):
            stack.extend((current.outputs, current.length))
        elif isinstance(current, Node) and current not in seen:
            seen.add(current)
            stack.extend((current.src, current.arg))
            if current.op is ops.VARIABLE:
                found.append(current)
    return found


def check_bound(variables: list[Node]) -> None:
    """BoundsError where one of the VARIABLE nodes has no value, or one outside the bounds it was declared with."""
    for variable in variables:
        name, lowest, highest = variable.arg
        value = VARIABLES.get(name)
        if value is None:
            raise BoundsError(f"realize: variable {name!r} has no value; call its bind(value) first")
        if not lowest <= value <= highest:
            raise BoundsError(f"realize: variable {name!r} is bound to {value}; a use of it was declared from {lowest} "
                              f"to {highest}")
