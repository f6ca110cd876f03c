"""Functions of several tensors. Not for what is a method of one tensor.

Each takes Tensors, and where it says so also numbers; at least one must be a Tensor.
"""
from __future__ import annotations

from minivt import contraction
from minivt.broadcasting import normal_axis
from minivt.errors import DTypeError, ShapeError
from minivt.runtime import realize as runtime
from minivt.tensor import Tensor
from minivt.variable import shape_text


def where(condition: Tensor, x, y) -> Tensor:
    """x where the bool tensor `condition` holds, else y; x and y are tensors or numbers, all broadcast together."""
    return _tensors("where", [condition])[0].where(x, y)


def maximum(x, y) -> Tensor:
    """The larger of each pair; NaN where either is NaN. One of the two may be a number."""
    return x.maximum(y) if isinstance(x, Tensor) else _tensors("maximum", [y])[0].maximum(x)


def minimum(x, y) -> Tensor:
    """The smaller of each pair; NaN where either is NaN. One of the two may be a number."""
    return x.minimum(y) if isinstance(x, Tensor) else _tensors("minimum", [y])[0].minimum(x)


def cat(tensors, axis: int = 0) -> Tensor:
    """The tensors one after another along an axis; the other sizes must be equal, dtypes are promoted."""
    first, *others = _tensors("cat", tensors)
    axis = normal_axis("cat", axis, first.ndim)
    for other in others:
        mine, theirs = list(first.node.shape), list(other.node.shape)
        if len(mine) == len(theirs):
            mine[axis] = theirs[axis] = 0
        if mine != theirs:
            raise ShapeError(f"cat: shapes {shape_text(first.node.shape)} and {shape_text(other.node.shape)} differ "
                             f"outside axis {axis}; all other sizes must be equal")
    return first._joined_with(others, axis)


def stack(tensors, axis: int = 0) -> Tensor:
    """The tensors, all of one shape, one after another along a new axis."""
    tensors = _tensors("stack", tensors)
    for t in tensors:
        if t.node.shape != tensors[0].node.shape:
            raise ShapeError(f"stack: shapes {shape_text(tensors[0].node.shape)} and {shape_text(t.node.shape)} "
                             "differ; all must be equal")
    axis = normal_axis("stack", axis, tensors[0].ndim + 1)
    return cat([t.unsqueeze(axis) for t in tensors], axis)


def einsum(subscripts: str, *tensors: Tensor) -> Tensor:
    """The sum of products, by labels: "bik,bkj->bij" is a batched matrix product.

    Labels are letters, one an axis; an Ellipsis stands for axes that broadcast. Labels missing on the right are
    summed. float16 and bfloat16 are multiplied and summed in float32.
    """
    return contraction.einsum_of(subscripts, _tensors("einsum", tensors))


def realize(*tensors: Tensor) -> None:
    """Compute several tensors together, sharing what they share."""
    tensors = _tensors("realize", tensors)
    for t, made in zip(tensors, runtime.realize([t.node for t in tensors], tensors[0].device)):
        t.node = made


def _tensors(name: str, values) -> list[Tensor]:
    values = list(values)
    if not values:
        raise ShapeError(f"{name}: no tensors were given; at least one is needed")
    for value in values:
        if not isinstance(value, Tensor):
            raise DTypeError(f"{name}: an operand is {type(value).__name__}; a Tensor is needed")
    return values
