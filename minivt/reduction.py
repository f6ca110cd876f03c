"""Reductions of Tensor: sums, extremes, statistics and softmax. Not for products of tensors (contraction.py).

axis: None for all axes, an axis, or a tuple of axes; keepdims leaves axes of size 1 in their place. Statistics and
softmax of float16 and bfloat16 are computed in float32. There is no product: no primitive multiplies along an axis.
"""
from __future__ import annotations

import math

from minivt import dtypes, ops
from minivt.broadcasting import normal_axes, normal_axis
from minivt.dtypes import DType, as_dtype
from minivt.real_functions import real_function
from minivt.errors import ShapeError
from minivt.graph import const, node
from minivt.variable import bounds, prod, shape_text, sub

LOG2_E = math.log2(math.e)


def sum_dtype(dtype: DType) -> DType:
    """The dtype of a sum: integers and bools widen to 64 bits, floats stay."""
    if dtype.is_float:
        return dtype
    return dtypes.uint64 if dtype.kind == "u" else dtypes.int64


class Reduction:
    """The reducing methods of Tensor."""
    __slots__ = ()

    def _reduce(self, op, name: str, axis, keepdims: bool):
        axes = normal_axes(name, axis, self.ndim)
        reduced = self._make(node(op, (self.node,), axes) if axes else self.node)
        return reduced._with_reduced_axes(self, axes) if keepdims else reduced

    def _with_reduced_axes(self, source, axes):
        """Put axes of size 1 back where `axes` of `source` were reduced."""
        return self._reshaped(tuple(1 if a in axes else s for a, s in enumerate(source.node.shape)))

    def _reduced_size(self, name: str, axis):
        """The number of elements behind one result."""
        return prod(self.node.shape[a] for a in normal_axes(name, axis, self.ndim))

    def sum(self, axis=None, keepdims: bool = False, dtype=None):
        """The sum, in int64 or uint64 for integers and bools unless a dtype is given."""
        dtype = sum_dtype(self.dtype) if dtype is None else as_dtype(dtype)
        return self.cast(dtype)._reduce(ops.SUM, "sum", axis, keepdims)

    def max(self, axis=None, keepdims: bool = False):
        """The largest; NaN if any is NaN."""
        self._require_elements("max", axis)
        return self._reduce(ops.MAX, "max", axis, keepdims)

    def min(self, axis=None, keepdims: bool = False):
        """The smallest; NaN if any is NaN."""
        self._require_elements("min", axis)
        return self._reversed()._reduce(ops.MAX, "min", axis, keepdims)._reversed()

    def _require_elements(self, name: str, axis):
        if bounds(self._reduced_size(name, axis))[1] == 0:
            raise ShapeError(f"{name}: shape {shape_text(self.node.shape)} has no elements along axis {axis}; there is "
                             f"no {name} of nothing")

    def any(self, axis=None, keepdims: bool = False):
        """Whether some element is not zero; false for none."""
        return self.cast(dtypes.bool_)._reduce(ops.MAX, "any", axis, keepdims)

    def all(self, axis=None, keepdims: bool = False):
        """Whether no element is zero; true for none."""
        return ~(~self.cast(dtypes.bool_))._reduce(ops.MAX, "all", axis, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False):
        """The index (int64) of the first largest element, or of the first NaN; over the flattened tensor for None."""
        if axis is None:
            flat = self.flatten().argmax(0)
            return flat._reshaped((1,) * self.ndim) if keepdims else flat
        axis = normal_axis("argmax", axis, self.ndim)
        hit = self == self.max(axis, keepdims=True)
        hit = hit | self.isnan() if self.dtype.is_float else hit
        last = self._make_size(sub(self.node.shape[axis], 1))
        backwards = last - self._counter(axis)  # the largest is the first index
        return last - hit.where(backwards, -1).max(axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False):
        """The index (int64) of the first smallest element, or of the first NaN."""
        return self._reversed().argmax(axis, keepdims)

    @real_function
    def mean(self, axis=None, keepdims: bool = False):
        """The sum divided by the number of elements; NaN for none; integers give float32."""
        return self.sum(axis, keepdims) / self._count("mean", axis)

    @real_function
    def var(self, axis=None, correction: float = 0, keepdims: bool = False):
        """The mean squared distance from the mean; the divisor is the number of elements minus `correction`."""
        distance = self - self.mean(axis, keepdims=True)
        return (distance * distance).sum(axis, keepdims) / (self._count("var", axis) - correction).maximum(0)

    @real_function
    def std(self, axis=None, correction: float = 0, keepdims: bool = False):
        """The square root of var."""
        return self.var(axis, correction, keepdims).sqrt()

    def _count(self, name: str, axis):
        return self._make_size(self._reduced_size(name, axis)).cast(self.dtype)

    def _make_size(self, size):
        """A size as a scalar int64 tensor."""
        return self._make(const(size, dtypes.int64) if isinstance(size, int) else size)

    def _counter(self, axis: int):
        """0, 1, 2, ... along an axis (int64), of size 1 elsewhere."""
        size = self.node.shape[axis]
        shape = tuple(size if a == axis else 1 for a in range(self.ndim))
        return self._make(node(ops.ARANGE, (), size, dtypes.int64))._reshaped(shape)

    @real_function
    def softmax(self, axis: int = -1):
        """exp(x) / sum(exp(x)) along one axis; NaN where all are -inf."""
        axis = normal_axis("softmax", axis, self.ndim)
        shifted = (self - self.max(axis, keepdims=True)) * LOG2_E
        powers = shifted.exp2()  # the error that exp would save is small beside the largest power, which is 1
        return powers * (1.0 / powers.sum(axis, keepdims=True))  # one division a row

    @real_function
    def log_softmax(self, axis: int = -1):
        """x - logsumexp(x) along one axis."""
        axis = normal_axis("log_softmax", axis, self.ndim)
        shifted = self - self.max(axis, keepdims=True)
        return shifted - (shifted * LOG2_E).exp2().sum(axis, keepdims=True).log()

    @real_function
    def logsumexp(self, axis=None, keepdims: bool = False):
        """log(sum(exp(x))), without overflow."""
        top = self.max(axis, keepdims=True)
        top = top.isinf().where(0.0, top)  # inf - inf would be NaN
        total = ((self - top) * LOG2_E).exp2().sum(axis, keepdims=True).log() + top
        return total if keepdims else total.squeeze(normal_axes("logsumexp", axis, self.ndim))
