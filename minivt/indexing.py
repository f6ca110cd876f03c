"""Reading and assigning parts of a Tensor with []. Not for what index arrays select (selection.py).

An index may hold integers and Variables, slices (their bounds may be symbolic), None, Ellipsis, integer arrays or
tensors and boolean ones; axes come out where NumPy puts them. Integers count from the end where negative and raise
BoundsError outside the axis; integer tensors count from the end too, and outside the axis select 0 and store nothing.
A boolean mask is read when it is used, for the size of the result depends on it. A slice never shares memory with its
tensor: assigning makes the next version of the tensor assigned to, other tensors keep their values.
"""
from __future__ import annotations

from minivt import ops
from minivt.broadcasting import broadcast_shapes
from minivt.errors import BoundsError, DTypeError, ShapeError
from minivt.graph import node
from minivt.selection import Selection, full_index, is_array, masked_axes
from minivt.variable import add, bounds, expression, is_size, shape_text, sub, unwrap


class Indexing:
    """The indexing methods of Tensor."""
    __slots__ = ()

    def __getitem__(self, index):
        items = full_index("getitem", self, index)
        view, selection = self._viewed("getitem", items)
        if not selection.arrays:
            return view._reshaped(selection.result_shape(view, ()))
        places = selection.places("getitem", view)
        picked = node(ops.GATHER, (selection.merged(view).node, places.node), selection.axis)
        return self._make(picked)._reshaped(selection.result_shape(view, places.node.shape))

    def _viewed(self, name: str, items: list) -> tuple:
        """The tensor sliced by slices and, to size 1, by integers, and which of its axes go where."""
        view, axis = self, 0
        for item in items:
            if isinstance(item, slice):
                view = view._sliced(axis, item)
            elif item is not None and not is_array(item):
                view = view._slice_axis(axis, inside(name, unwrap(item), view.node.shape[axis], axis), 1)
            axis += item is not None
        return view, Selection.of(items)

    def _from_the_front(self, size):
        """Places on an axis of `size`, those that count from the end turned round."""
        return (self < 0).where(self + self._make_size(size), self) if self.dtype.kind == "i" else self

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

    def take(self, indices, axis: int) -> Tensor:
        """The elements along `axis` at these integer places; the shape of `indices` replaces the axis.

        Negative places count from the end; a Tensor's place outside the axis gives 0, an array's raises BoundsError.
        """
        axis = axis + self.ndim if axis < 0 else axis
        return self[(slice(None),) * axis + (indices,)]

    def __setitem__(self, index, value):
        """Store `value`, broadcast and cast, where the index points.

        Arrays of NumPy and lists that name a place twice leave the last value there; of a Tensor that does, one of
        the values (the reference backend raises BoundsError).
        """
        value = self._coerce(value).cast(self.dtype)
        masked = masked_axes(self, index, value)
        if masked is not None:
            self.assign(masked[0].where(masked[1], self))
            return
        items = full_index("setitem", self, index)
        if any(map(is_array, items)):
            self._store_at_places(items, value)
        else:
            self._store_in_slices(items, value)

    def _store_in_slices(self, items: list, value):
        """Assign a region given by integers and slices; where a slice has steps, what lies between keeps its value."""
        bounds_of, axis = [], 0
        for item in items:
            if isinstance(item, slice):
                bounds_of.append(slice_bounds("setitem", item, self.node.shape[axis], axis))
            elif item is not None:
                bounds_of.append((inside("setitem", unwrap(item), self.node.shape[axis], axis), 1, 1))
            axis += item is not None
        sizes = [size for _, size, _ in bounds_of]
        named = iter(sizes)
        shape = tuple(size for item, size in ((i, 1 if i is None else next(named)) for i in items)
                      if item is None or isinstance(item, slice))
        value = self._fitting("setitem", value, shape)._reshaped(tuple(sizes))
        if any(bounds(size)[1] == 0 for size in sizes):
            return
        region, stepped = [], None
        for axis, (start, size, step) in enumerate(bounds_of):
            value, start, span, hit = value._with_gaps(axis, start, size, step)
            region.append((start, span))
            stepped = hit if stepped is None else stepped & hit if hit is not None else stepped
        if stepped is not None:
            value = stepped.where(value, self._shrunk(tuple(region)))
        self._assign(value, tuple(region), value.node.shape, "setitem")

    def _with_gaps(self, axis: int, start, size, step: int):
        """(values `step` apart, where they start, how far they reach, where the axis holds one or None for all).

        before:  1 4 7 with start 1 and step 3
        after:   1 0 0 4 0 0 7, 1, 7, yes no no yes no no yes
        """
        if step < 0:
            flipped = self.flip(axis)
            return flipped._with_gaps(axis, start + (size - 1) * step, size, -step)
        if step == 1 or size == 1:
            return self, start, size, None
        shape, span = self.node.shape, (size - 1) * step + 1
        wide = self._reshaped((*shape[:axis + 1], 1, *shape[axis + 1:]))
        wide = wide._padded(tuple((0, step - 1 if a == axis + 1 else 0) for a in range(self.ndim + 1)))
        wide = wide._reshaped((*shape[:axis], size * step, *shape[axis + 1:]))._slice_axis(axis, 0, span)
        return wide, start, span, wide._counter(axis) % step == 0

    def _store_at_places(self, items: list, value):
        """Assign where index arrays point: scatter into what the slices select, then assign that."""
        view, selection = self._viewed("setitem", items)
        places = selection.places("setitem", view, last_of_equals=True)
        value = self._fitting("setitem", value, selection.result_shape(view, places.node.shape))
        base = selection.merged(view)
        shape = base.node.shape
        if any(bounds(s)[1] == 0 for s in (*value.node.shape, *shape)):
            return
        updates = value._reshaped((*shape[:selection.axis], *places.node.shape, *shape[selection.axis + 1:]))
        stored = self._make(node(ops.SCATTER, (base.node, places.node, updates.node), (selection.axis, "store")))
        whole = [slice(None) if is_array(i) else i for i in items if i is not None]
        kept = tuple(s for s, i in zip(view.node.shape, whole) if isinstance(i, slice))
        self._store_in_slices(whole, selection.unmerged(stored, view)._reshaped(kept))

    def _fitting(self, name: str, value, shape: tuple):
        """The value broadcast to the shape of what is assigned; axes of size 1 in front of it are left out."""
        while value.ndim > len(shape) and value.node.shape[0] == 1:
            value = value._reshaped(value.node.shape[1:])
        if value.ndim > len(shape) or broadcast_shapes(name, value.node.shape, shape) != shape:
            raise ShapeError(f"{name}: the value has shape {shape_text(value.node.shape)}, the region "
                             f"{shape_text(shape)} of {shape_text(self.node.shape)}; the value must broadcast to it")
        return value._expanded(shape)

    def assign(self, value):
        """Replace all elements by `value`, broadcast and cast; returns self."""
        self._assign(value, tuple((0, s) for s in self.node.shape), self.node.shape, "assign")
        return self

    def _assign(self, value, region: tuple, shape: tuple, name: str):
        value = self._fitting(name, self._coerce(value).cast(self.dtype), shape)
        value = value._reshaped(tuple(size for _, size in region))
        if any(bounds(size)[1] == 0 for _, size in region):
            return
        self._replace(node(ops.ASSIGN, (self._state(), value.node), region))

    def _state(self):
        """The node that can be assigned to: memory or a version of it, else a copy in memory of its own."""
        source = self.node
        while source.op is ops.ASSIGN:
            source = source.src[0]
        return self.node if source.op in (ops.BUFFER, ops.CONTIGUOUS) else node(ops.CONTIGUOUS, (self.node,))


def inside(name: str, place, size, axis: int):
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
