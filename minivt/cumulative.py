"""Running sums, products and extremes along an axis, and sums scattered to the rows of a tensor.

All go through SCAN; a long axis is cut into blocks that are scanned side by side, then what stands before each block
is combined into it. Not for reductions (reduction.py).
"""
from __future__ import annotations

from minivt import dtypes, ops
from minivt.broadcasting import expand_node, normal_axis
from minivt.errors import DTypeError, ShapeError
from minivt.graph import const, node
from minivt.reduction import sum_dtype
from minivt.scan import scan
from minivt.variable import shape_text

BLOCK = 512  # steps of one block of a long axis
HALF = (dtypes.float16, dtypes.bfloat16)


def _start(op: ops.Op, dtype) -> bool | int | float:
    """What a running value starts from."""
    if op is not ops.MAXIMUM:
        return 0 if op is ops.ADD else 1
    if dtype.is_float:
        return float("-inf")
    return -(1 << 8 * dtype.itemsize - 1) if dtype.kind == "i" else 0


class Cumulative:
    """The cumulative methods of Tensor. Each result has the shape of the tensor; axis: one axis."""
    __slots__ = ()

    def cumsum(self, axis: int):
        """The sum of the elements up to each one; int64 or uint64 for integers and bools, float16 adds in float32."""
        return self._running("cumsum", ops.ADD, axis, sum_dtype(self.dtype))

    def cumprod(self, axis: int):
        """The product of the elements up to each one; dtypes as cumsum."""
        return self._running("cumprod", ops.MUL, axis, sum_dtype(self.dtype))

    def cummax(self, axis: int):
        """The largest element up to each one; NaN from the first NaN on."""
        return self._running("cummax", ops.MAXIMUM, axis, self.dtype)

    def cummin(self, axis: int):
        """The smallest element up to each one; NaN from the first NaN on."""
        return self._reversed()._running("cummin", ops.MAXIMUM, axis, self.dtype)._reversed()

    def _running(self, name: str, op: ops.Op, axis: int, dtype):
        axis = normal_axis(name, axis, self.ndim)
        wide = dtypes.float32 if dtype in HALF and op is not ops.MAXIMUM else dtype
        order = (axis, *(a for a in range(self.ndim) if a != axis))
        front = self._make(node(ops.PERMUTE, (self.cast(wide).node,), order))
        moved = front._running_front(op)
        back = tuple(order.index(a) for a in range(self.ndim))
        return self._make(node(ops.PERMUTE, (moved.node,), back)).cast(dtype)

    def _running_front(self, op: ops.Op):
        """Along axis 0.

        before:  1 2 3 4 5 6, blocks of 3
        after:   1 3 6 | 4 9 15;  before each block 0 | 6;  1 3 6 10 15 21
        """
        length, *rest = self.node.shape
        start = const(_start(op, self.dtype), self.dtype)
        if not isinstance(length, int) or length <= 2 * BLOCK:
            first = expand_node(start, tuple(rest))

            def step(carry, rows):
                following = node(op, (carry[0], rows[0]))
                return (following,), (following,)
            _, (running,) = scan(step, (first,), (self.node,))
            return self._make(running)
        blocks = -(-length // BLOCK)
        none = ((0, 0),) * len(rest)
        padded = self._padded(((0, blocks * BLOCK - length), *none))  # the padding comes after all that is kept
        rows = padded._reshaped((blocks, BLOCK, *rest))
        swap = (1, 0, *range(2, len(rest) + 2))
        inner = self._make(node(ops.PERMUTE, (rows.node,), swap))._running_front(op)  # (BLOCK, blocks, ...)
        totals = inner._slice_axis(0, BLOCK - 1, 1)._reshaped((blocks, *rest))._running_front(op)
        before = totals._slice_axis(0, 0, blocks - 1)._padded(((1, 0), *none))
        before = (before._counter(0) == 0).where(self._make(start), before)
        joined = node(op, (inner.node, expand_node(before._reshaped((1, blocks, *rest)).node, inner.node.shape)))
        whole = self._make(node(ops.PERMUTE, (joined,), swap))._reshaped((blocks * BLOCK, *rest))
        return whole._slice_axis(0, 0, length)

    def index_add(self, axis: int, index, source):
        """The tensor with row i of `source` added to its row index[i] along the axis, in order; index: (n,) integers.

        Places outside the axis are dropped. ShapeError where source has another shape than the tensor with n rows,
        DTypeError for an index that is not of integers or a source of another dtype.
        """
        axis = normal_axis("index_add", axis, self.ndim)
        index, source = self._coerce(index), self._coerce(source)
        if not index.dtype.is_int:
            raise DTypeError(f"index_add: index has dtype {index.dtype}; an integer dtype is needed")
        if source.dtype is not self.dtype:
            raise DTypeError(f"index_add: source has dtype {source.dtype}, the tensor {self.dtype}; cast the source")
        shape = self.node.shape
        asked = (*shape[:axis], *index.node.shape, *shape[axis + 1:])
        if index.ndim != 1 or source.node.shape != asked:
            raise ShapeError(f"index_add: source has shape {shape_text(source.node.shape)} and index "
                             f"{shape_text(index.node.shape)}; the index needs one axis, the source "
                             f"{shape_text(asked)}")
        return self._make(node(ops.SCATTER, (self.node, index.node, source.node), (axis, "add")))
