"""What index arrays select: the parts of an index, where NumPy puts their axes, and one place for several arrays.

Several arrays over several axes become one: their axes are moved together and merged, and the place in the merged
axis is computed from the places in each. Not for slices and assignment (indexing.py).
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minivt import dtypes
from minivt.broadcasting import broadcast_shapes
from minivt.errors import BoundsError, DTypeError, ShapeError
from minivt.variable import is_size, prod, shape_text


def is_array(item) -> bool:
    """Whether an item of an index is an array, a list or a Tensor."""
    return item is not None and not isinstance(item, slice) and not is_size(item)


def full_index(name: str, tensor, index) -> list:
    """The index as one item per axis and None: Ellipsis and missing axes written out, masks as their places."""
    items = []
    for item in index if isinstance(index, tuple) else (index,):
        items.append(_checked(name, item))
    used = sum(_rank(item) for item in items)
    if sum(item is Ellipsis for item in items) > 1 or used > tensor.ndim:
        raise ShapeError(f"{name}: {used} axes are indexed with {sum(i is Ellipsis for i in items)} Ellipsis, the "
                         f"tensor has shape {shape_text(tensor.node.shape)}; index at most {tensor.ndim} axes, with "
                         "one Ellipsis")
    place = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    items = items[:place] + [slice(None)] * (tensor.ndim - used) + items[place + 1:]
    full, axis = [], 0
    for item in items:
        full.extend(_places_of_mask(name, tensor, axis, item) if _is_mask(item) else [item])
        axis += _rank(item)
    return full


def _checked(name: str, item):
    """An item of an index, lists as arrays; DTypeError for what is none."""
    if item is None or item is Ellipsis or isinstance(item, slice) or is_size(item):
        return item
    if isinstance(item, (list, tuple)):
        item = np.asarray(item)
        item = item if item.size else item.astype(np.int64)
    if isinstance(item, (bool, np.bool_)) or _is_mask(item) and not item.ndim:
        raise DTypeError(f"{name}: a single bool is not an index; use where, or an array of bools for the axis")
    dtype = getattr(item, "dtype", None)
    if dtype is None or not hasattr(item, "ndim"):
        raise DTypeError(f"{name}: {item!r} is not an index; use integers, slices, None, Ellipsis or an integer tensor")
    if not (_is_mask(item) or getattr(dtype, "kind", "") in "iu"):
        what = "tensor" if hasattr(item, "node") else "array"
        raise DTypeError(f"{name}: the index {what} has dtype {dtype}; an integer dtype is needed")
    return item


def _is_mask(item) -> bool:
    dtype = getattr(item, "dtype", None)
    return dtype is dtypes.bool_ or isinstance(dtype, np.dtype) and dtype.kind == "b"


def _rank(item) -> int:
    """How many axes an item indexes."""
    return 0 if item is None or item is Ellipsis else item.ndim if _is_mask(item) else 1


def _check_mask(name: str, tensor, axis: int, mask):
    covered = tensor.node.shape[axis:axis + mask.ndim]
    if tuple(mask.shape) != covered:
        raise ShapeError(f"{name}: the boolean mask has shape {shape_text(tuple(mask.shape))}, the axes it stands for "
                         f"{shape_text(covered)}; they must be equal")


def _places_of_mask(name: str, tensor, axis: int, mask) -> list:
    """A mask as one array of places for each of its axes; a Tensor's values are read."""
    _check_mask(name, tensor, axis, mask)
    values = mask._read("a boolean mask as an index") if hasattr(mask, "node") else mask
    return list(np.nonzero(values))


def masked_axes(tensor, index, value):
    """(the mask, the value), aligned with the tensor, where an index is one mask and one value serves all its places.

    None where the places have to be known: values that differ along the mask, or other items in the index.
    """
    items = [_checked("setitem", item) for item in (index if isinstance(index, tuple) else (index,))]
    masks = [item for item in items if _is_mask(item)]
    plain = all(_is_mask(i) or i is Ellipsis or isinstance(i, slice) and i == slice(None) for i in items)
    if len(masks) != 1 or not plain or sum(map(_rank, items)) > tensor.ndim:
        return None
    mask = masks[0]
    before = sum(_rank(item) for item in items[:next(i for i, m in enumerate(items) if m is mask)])
    if Ellipsis in [i for i in items if not _is_mask(i)]:
        if items[-1] is not mask:
            return None
        before = tensor.ndim - mask.ndim
    behind = tensor.ndim - before - mask.ndim
    shape = value.node.shape
    if len(shape) > behind and shape[len(shape) - behind - 1] != 1 or len(shape) > before + 1 + behind:
        return None
    _check_mask("setitem", tensor, before, mask)
    mask = tensor._coerce(mask)
    if len(shape) > behind:
        split = len(shape) - behind - 1
        value = value._reshaped((*shape[:split], *(1,) * mask.ndim, *shape[split + 1:]))
    return mask._reshaped((*mask.node.shape, *(1,) * behind)), value


@dataclass(frozen=True)
class Selection:
    """Which axes of a view stay, and which are replaced by the axes of the index arrays.

    before, behind: axes of the view that stay, None for new ones, on either side of the arrays' axes; arrays: (axis,
    index array) pairs; dropped: axes of size 1 that integers indexed.
    """
    before: tuple
    behind: tuple
    arrays: tuple
    dropped: tuple

    @staticmethod
    def of(items: list) -> Selection:
        """As NumPy places them: arrays that stand together, integers among them, stay in place, else they go first."""
        kept, arrays, dropped, marks, axis = [], [], [], [], 0
        for position, item in enumerate(items):
            if item is None or isinstance(item, slice):
                kept.append((position, None if item is None else axis))
            else:
                marks.append(position)
                (arrays.append((axis, item)) if is_array(item) else dropped.append(axis))
            axis += item is not None
        together = not marks or marks[-1] - marks[0] + 1 == len(marks)
        first = marks[0] if marks and together else -1
        return Selection(tuple(a for p, a in kept if p < first), tuple(a for p, a in kept if p > first),
                         tuple(arrays), tuple(dropped))

    @property
    def axis(self) -> int:
        """The place of the merged axis."""
        return sum(a is not None for a in self.before)

    def _order(self) -> tuple[list, list, list]:
        return ([a for a in self.before if a is not None], [*(a for a, _ in self.arrays), *self.dropped],
                [a for a in self.behind if a is not None])

    def merged(self, view):
        """The view with the axes that arrays index moved together and made one."""
        before, middle, behind = self._order()
        shape = view.node.shape
        return view.permute(*before, *middle, *behind)._reshaped(
            (*(shape[a] for a in before), prod(shape[a] for a in middle), *(shape[a] for a in behind)))

    def unmerged(self, changed, view):
        """What merged did, undone."""
        order = sum(self._order(), [])
        apart = changed._reshaped(tuple(view.node.shape[a] for a in order))
        return apart.permute(*(order.index(a) for a in range(len(order))))

    def result_shape(self, view, places: tuple) -> tuple:
        """The shape of what is selected; places: the shape of the index arrays together."""
        def sizes(axes):
            return (1 if a is None else view.node.shape[a] for a in axes)
        return (*sizes(self.before), *places, *sizes(self.behind))

    def places(self, name: str, view, last_of_equals: bool = False):
        """The place in the merged axis for each element of the index arrays, broadcast together (an integer Tensor).

        Outside the axis where a Tensor's place is outside its own axis; for arrays and lists that is a BoundsError.
        last_of_equals: of equal places in arrays that are known, all but the last are outside too.
        """
        sizes = [view.node.shape[axis] for axis, _ in self.arrays]
        arrays = [item if hasattr(item, "node") else _known(name, np.asarray(item), size, axis)
                  for (axis, item), size in zip(self.arrays, sizes)]
        shape = broadcast_shapes(name, *(tuple(a.shape) if isinstance(a, np.ndarray) else a.node.shape
                                         for a in arrays))
        if all(isinstance(a, np.ndarray) for a in arrays) and all(isinstance(s, int) for s in sizes):
            return view._coerce(_joined(arrays, sizes, shape, last_of_equals))
        wrapped = [view._coerce(a)._from_the_front(size) for a, size in zip(arrays, sizes)]
        if len(arrays) == 1:
            return wrapped[0]
        place, valid = None, None
        for a, size in zip(wrapped, sizes):
            limit = view._make_size(size)
            a = a.cast(dtypes.int64)
            fits = (a >= 0) & (a < limit)
            place = a if place is None else place * limit + a
            valid = fits if valid is None else valid & fits
        return valid.where(place, -1)._expanded(shape)


def _known(name: str, index: np.ndarray, size, axis: int) -> np.ndarray:
    """Places known now; BoundsError for one outside the axis."""
    if index.size and isinstance(size, int) and (index.min() < -size or index.max() >= size):
        raise BoundsError(f"{name}: the index array holds {index.min()} to {index.max()}, axis {axis} has size {size}; "
                          f"places must be from {-size} to {size - 1}")
    return index


def _joined(arrays: list, sizes: list, shape: tuple, last_of_equals: bool) -> np.ndarray:
    """Places in the merged axis, in NumPy."""
    place = np.zeros(shape, np.int64)
    for index, size in zip(arrays, sizes):
        wide = index.astype(np.int64)
        place = place * size + np.where(wide < 0, wide + size, wide)
    if last_of_equals:
        flat = place.reshape(-1)
        _, last = np.unique(flat[::-1], return_index=True)
        once = np.full_like(flat, prod(sizes))
        once[flat.size - 1 - last] = flat[flat.size - 1 - last]
        place = once.reshape(shape)
    return place
