"""Reading and assigning parts of a Tensor with []. Not for gathers along several axes.

An index may hold integers and Variables, slices (their bounds may be symbolic), None, Ellipsis and one integer array
or tensor. Integers count from the end where negative and raise BoundsError outside the axis; integer tensors count
from the end too, and outside the axis select 0. A slice never shares memory with its tensor: assigning makes the
next version of the tensor assigned to, other tensors keep their values.
"""
from __future__ import annotations

import numpy as np

from minivt import dtypes, ops
from minivt.broadcasting import broadcast_shapes
from minivt.errors import BoundsError, DTypeError, ShapeError
from minivt.graph import node
from minivt.variable import add, bounds, expression, is_size, shape_text, sub, unwrap


class Indexing:
    """The indexing methods of Tensor."""
    __slots__ = ()

    def __getitem__(self, index):
        items = self._full_index("getitem", index)
        view, axis, gathers, kept = self, 0, [], []
        for item in items:
            if item is None:
                kept.append(None)
                continue
            if isinstance(item, slice):
                view = view._sliced(axis, item)
                kept.append(axis)
            elif is_size(item):
                view = view._slice_axis(axis, _inside("getitem", unwrap(item), view.node.shape[axis], axis), 1)
            else:
                gathers.append((axis, item))
                kept.append(axis)
            axis += 1
        if len(gathers) > 1:
            raise ShapeError(f"getitem: integer arrays index axes {', '.join(str(a) for a, _ in gathers)}; one axis at "
                             "a time is supported: index twice")
        return view._picked(kept, *gathers)

    def _picked(self, kept, gather=None):
        """Drop the axes that were indexed by integers, add those of None, and gather at most one axis."""
        result = self._reshaped(tuple(1 if axis is None else self.node.shape[axis] for axis in kept))
        return result if gather is None else result._gathered(gather[1], kept.index(gather[0]))

    def _gathered(self, index, axis: int):
        """The elements along `axis` whose places an integer tensor gives; its shape replaces the axis.

        Negative places count from the end; places outside the axis give 0. BoundsError where an array that is known
        already has such a place.
        """
        size = self.node.shape[axis]
        if isinstance(index, (list, tuple, np.ndarray)):
            index = _known_places(np.asarray(index), size, axis)
        index = self._coerce(index)
        if not index.dtype.is_int:
            raise DTypeError(f"getitem: the index tensor has dtype {index.dtype}; an integer dtype is needed")
        if index.dtype.kind == "i":
            index = (index < 0).where(index + self._make_size(size), index)
        return self._make(node(ops.GATHER, (self.node, index.node), axis))

    def _full_index(self, name: str, index) -> list:
        """The index as one item per axis and None, with Ellipsis and missing axes written out."""
        items = list(index) if isinstance(index, tuple) else [index]
        for item in items:
            _check_item(name, item)
        used = sum(item is not None and item is not Ellipsis for item in items)
        if sum(item is Ellipsis for item in items) > 1 or used > self.ndim:
            raise ShapeError(f"{name}: {used} axes are indexed with {sum(i is Ellipsis for i in items)} Ellipsis, the "
                             f"tensor has shape {shape_text(self.node.shape)}; index at most {self.ndim} axes, with "
                             "one Ellipsis")
        place = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
        return items[:place] + [slice(None)] * (self.ndim - used) + items[place + 1:]

    def _sliced(self, axis: int, item: slice):
        """The tensor sliced along one axis."""
        start, size, step = slice_bounds("getitem", item, self.node.shape[axis], axis)
        return self._slice_axis(axis, start, size) if step == 1 else self._strided(axis, start, size, step)

    def _strided(self, axis: int, start: int, size: int, step: int):
        """Elements start, start + step, ... along an axis: cut into runs of `step`, of which the first is kept.

        before:  x[1:8:3] of 0 1 2 3 4 5 6 7
        after:   1 2 3 | 4 5 6 | 7 0 0  ->  1 4 7
        """
        source = self
        if step < 0:
            source, start, step = self.flip(axis), self.node.shape[axis] - 1 - start, -step
        if size == 0:
            return source._slice_axis(axis, 0, 0)
        run = source._slice_axis(axis, start, (size - 1) * step + 1)
        run = run._padded(tuple((0, step - 1 if a == axis else 0) for a in range(self.ndim)))
        shape = self.node.shape
        runs = run._reshaped((*shape[:axis], size, step, *shape[axis + 1:]))
        return runs._slice_axis(axis + 1, 0, 1)._reshaped((*shape[:axis], size, *shape[axis + 1:]))

    # --- assignment -------------------------------------------------------------------------------------------------

    def __setitem__(self, index, value):
        """Store `value`, broadcast and cast, in a region given by integers, Variables and slices of step 1."""
        region, kept = [], []
        for item in self._full_index("setitem", index):
            axis = len(region)
            if item is None:
                raise ShapeError("setitem: None has no place in an assigned region; leave it out")
            if isinstance(item, slice):
                start, size, step = slice_bounds("setitem", item, self.node.shape[axis], axis)
                if step != 1:
                    raise ShapeError(f"setitem: axis {axis} has step {step}; only regions of step 1 can be assigned: "
                                     "use where")
                region.append((start, size))
                kept.append(size)
            elif is_size(item):
                region.append((_inside("setitem", unwrap(item), self.node.shape[axis], axis), 1))
            else:
                raise ShapeError(f"setitem: axis {axis} is indexed by an array; assign with integers and slices, or "
                                 "use where")
        self._assign(value, tuple(region), tuple(kept), "setitem")

    def assign(self, value):
        """Replace all elements by `value`, broadcast and cast; returns self."""
        self._assign(value, tuple((0, s) for s in self.node.shape), self.node.shape, "assign")
        return self

    def _assign(self, value, region: tuple, shape: tuple, name: str):
        value = self._coerce(value).cast(self.dtype)
        if broadcast_shapes(name, value.node.shape, shape) != shape:
            raise ShapeError(f"{name}: the value has shape {shape_text(value.node.shape)}, the region "
                             f"{shape_text(shape)} of {shape_text(self.node.shape)}; the value must broadcast to it")
        value = value._expanded(shape)._reshaped(tuple(size for _, size in region))
        if any(bounds(size)[1] == 0 for _, size in region):
            return
        self._replace(node(ops.ASSIGN, (self._state(), value.node), region))

    def _state(self):
        """The node that can be assigned to: memory or a version of it, else a copy in memory of its own."""
        source = self.node
        while source.op is ops.ASSIGN:
            source = source.src[0]
        return self.node if source.op in (ops.BUFFER, ops.CONTIGUOUS) else node(ops.CONTIGUOUS, (self.node,))


def _check_item(name: str, item):
    """Refuse what is no index, and boolean masks, whose result has no shape before it is computed."""
    if item is None or item is Ellipsis or isinstance(item, slice) or is_size(item):
        return
    dtype = getattr(item, "dtype", None)
    if isinstance(item, (list, tuple)):
        dtype = np.asarray(item).dtype
    if isinstance(item, bool) or dtype is dtypes.bool_ or dtype == np.bool_:
        raise DTypeError(f"{name}: boolean masks are not an index, for the size of the result would depend on values; "
                         "use where")
    if dtype is None:
        raise DTypeError(f"{name}: {item!r} is not an index; use integers, slices, None, Ellipsis or an integer tensor")


def _known_places(index: np.ndarray, size, axis: int) -> np.ndarray:
    if index.size == 0:
        index = index.astype(np.int64)
    if index.dtype.kind in "iu" and index.size and isinstance(size, int):
        if index.min() < -size or index.max() >= size:
            raise BoundsError(f"getitem: the index array holds {index.min()} to {index.max()}, axis {axis} has size "
                              f"{size}; places must be from {-size} to {size - 1}")
    return index


def _inside(name: str, place, size, axis: int):
    """A place on an axis, counted from the front; BoundsError unless it is certainly inside."""
    if isinstance(place, int) and place < 0:
        place = add(place, size)
    if bounds(place)[0] < 0 or bounds(sub(sub(size, 1), place))[0] < 0:
        raise BoundsError(f"{name}: index {_with_bounds(place)} is not certainly inside axis {axis} of size "
                          f"{_with_bounds(size)}; keep it from 0 to the size - 1")
    return place


def slice_bounds(name: str, item: slice, size, axis: int):
    """(start, number of elements, step) of a slice of an axis.

    Integers are cut off at the ends as Python does; symbolic bounds must lie inside for all their values.
    """
    for part in (item.start, item.stop, item.step):
        if part is not None and not is_size(part):
            raise DTypeError(f"{name}: axis {axis} is sliced by {part!r}; bounds of slices are integers or Variables")
    start, stop, step = (None if part is None else unwrap(part) for part in (item.start, item.stop, item.step))
    if all(isinstance(part, (int, type(None))) for part in (start, stop, step, size)):
        if step == 0:
            raise ShapeError(f"{name}: axis {axis} is sliced with step 0; the step must not be 0")
        start, stop, step = slice(start, stop, step).indices(size)
        return start, len(range(start, stop, step)), step
    if step not in (None, 1):
        raise ShapeError(f"{name}: axis {axis} has a symbolic slice of step {step}; only step 1 is supported there")
    start, stop = _symbolic_end(start, 0, size), _symbolic_end(stop, size, size)
    count = sub(stop, start)
    if bounds(start)[0] < 0 or bounds(count)[0] < 0 or bounds(sub(size, stop))[0] < 0:
        raise BoundsError(f"{name}: the slice {_with_bounds(start)} to {_with_bounds(stop)} is not certainly inside "
                          f"axis {axis} of size {_with_bounds(size)}; tighten the bounds of its Variables")
    return start, count, 1


def _symbolic_end(end, default, size):
    if end is None:
        return default
    return add(end, size) if isinstance(end, int) and end < 0 else end


def _with_bounds(value) -> str:
    low, high = bounds(value)
    return str(value) if isinstance(value, int) else f"{expression(value)} ({low} to {high})"
