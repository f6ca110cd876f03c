"""Shapes of tensors as the user gives them: broadcasting, axes and sizes, with their errors.

Sizes are ints or bounded symbolic integers. Not for the shape rules of primitives (ops.py).
"""
from __future__ import annotations

from minivt import ops
from minivt.errors import ShapeError
from minivt.graph import Node, node
from minivt.variable import bounds, is_size, shape_text, unwrap


def broadcast_shapes(name: str, *shapes) -> tuple:
    """The shape that all shapes expand to, aligned at the last axis; ShapeError where two sizes differ."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = size
            elif size != 1 and size != result[axis]:
                raise ShapeError(f"{name}: shapes {' and '.join(map(shape_text, shapes))} do not broadcast; aligned at "
                                 "the last axis, sizes must be equal or 1")
    return tuple(result)


def expand_node(value: Node, shape: tuple) -> Node:
    """`value` with new axes in front and axes of size 1 repeated; `shape` must be what it broadcasts to."""
    if value.shape == shape:
        return value
    aligned = (1,) * (len(shape) - len(value.shape)) + value.shape
    if aligned != value.shape:
        value = node(ops.RESHAPE, (value,), aligned)
    return value if aligned == shape else node(ops.EXPAND, (value,), shape)


def sizes(name: str, shape) -> tuple:
    """A shape given as sizes or as one sequence of them, as ints and Nodes; no size may be negative."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = shape[0]
    if not all(is_size(s) for s in shape):
        raise ShapeError(f"{name}: the shape is {tuple(shape)}; every size must be an integer")
    result = tuple(unwrap(s) for s in shape)
    if any(bounds(s)[1] < 0 for s in result):
        raise ShapeError(f"{name}: the shape is {shape_text(result)}; sizes must not be negative")
    return result


def normal_axis(name: str, axis, rank: int) -> int:
    """The axis counted from the front."""
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise ShapeError(f"{name}: axis is {axis!r}; it must be an integer")
    axis = axis.__index__()
    if not -rank <= axis < rank:
        raise ShapeError(f"{name}: axis {axis} is outside the {rank} axes of the tensor; choose -{rank} to {rank - 1}"
                         if rank else f"{name}: axis {axis} was given, but the tensor has no axes")
    return axis % rank


def normal_axes(name: str, axis, rank: int) -> tuple[int, ...]:
    """None, an axis or a tuple of axes as a sorted tuple of distinct axes; None is all of them."""
    if axis is None:
        return tuple(range(rank))
    axes = [normal_axis(name, a, rank) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axis {axis} names an axis twice; name each once")
    return tuple(sorted(axes))
