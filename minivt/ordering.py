"""Sorting along an axis: sort, argsort and topk, by rank through comparison.

Element i goes to place rank[i], the number of elements that stand before it; equal ones keep their order. That is n²
comparisons, so an axis holds at most LONGEST elements. NaN counts as larger than everything. Not for extremes alone
(reduction.py).
"""
from __future__ import annotations

from minivt import dtypes, ops
from minivt.broadcasting import normal_axis
from minivt.errors import BoundsError
from minivt.graph import const, node
from minivt.variable import bounds, shape_text

LONGEST = 8192


class Ordering:
    """The ordering methods of Tensor."""
    __slots__ = ()

    def sort(self, axis: int = -1, descending: bool = False):
        """The elements in order along an axis; stable. BoundsError for an axis of more than LONGEST elements."""
        return self._ordered("sort", axis, descending)[0]

    def argsort(self, axis: int = -1, descending: bool = False):
        """The index (int64) of each element of sort; equal elements keep their order."""
        return self._ordered("argsort", axis, descending)[1]

    def topk(self, k: int, axis: int = -1, largest: bool = True):
        """(values, indices) of the k largest or smallest elements, in order; of equal ones the first come first."""
        axis = normal_axis("topk", axis, self.ndim)
        size = self.node.shape[axis]
        if not isinstance(size, int) or not 0 <= k <= size:
            raise BoundsError(f"topk: k is {k}, axis {axis} of {shape_text(self.node.shape)} asks a k from 0 to its "
                              "size")
        return self._ordered("topk", axis, largest, k)

    def _ordered(self, name: str, axis: int, descending: bool, places: int | None = None):
        """The elements, and their indices, that belong at the first `places` places."""
        axis = normal_axis(name, axis, self.ndim)
        size = self.node.shape[axis]
        if not isinstance(size, int) or size > LONGEST:
            raise BoundsError(f"{name}: axis {axis} has up to {bounds(size)[1]} elements; at most {LONGEST} of a "
                              "fixed size can be ordered yet: split the axis")
        last = (*(a for a in range(self.ndim) if a != axis), axis)
        x = self._make(node(ops.PERMUTE, (self.node,), last))
        count, places = x.ndim, size if places is None else places
        front = x.node.shape[:-1]
        one, other = x._reshaped((*front, size, 1)), x._reshaped((*front, 1, size))
        before = _stands_before(one, other) if descending else _stands_before(other, one)
        after = _stands_before(other, one) if descending else _stands_before(one, other)
        here = self._make(node(ops.ARANGE, (), size, dtypes.int64))
        earlier = here._reshaped((1, size)) < here._reshaped((size, 1))
        rank = (before | (~(before | after) & earlier)).sum(-1)  # (..., size)
        place = self._make(node(ops.ARANGE, (), places, dtypes.int64))._reshaped((places, 1))
        chosen = rank._reshaped((*front, 1, size)) == place  # (..., places, size)
        index = chosen.where(here, 0).sum(-1)
        values = chosen.where(other, other._lowest()).max(-1) if size else x
        back = tuple(last.index(a) for a in range(count))
        return tuple(self._make(node(ops.PERMUTE, (t.node,), back)) for t in (values, index))

    def _lowest(self):
        """The lowest value of the dtype, as a scalar."""
        if self.dtype.is_float:
            return self._scalar(float("-inf"))
        return self._scalar(-(1 << 8 * self.dtype.itemsize - 1) if self.dtype.kind == "i" else 0)

    def _scalar(self, value):
        return self._make(const(value, self.dtype))


def _stands_before(x, y):
    """Whether x comes before y in ascending order, NaN last."""
    less = x < y
    return less | (y.isnan() & ~x.isnan()) if x.dtype.is_float else less
