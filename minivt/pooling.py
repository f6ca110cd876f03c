"""Pooling of Tensor: the largest element or the mean of each window. Not for learned windows (convolution.py).

Tensors are (batch, channels, *sizes), as in torch; arguments are one number or one for each pooled axis. A pooled
tensor is one kernel, which reads each element where it lies.
"""
from __future__ import annotations

import numpy as np

from minivt.convolution import per_axis
from minivt.errors import ShapeError
from minivt.real_functions import real_function
from minivt.variable import shape_text


class Pooling:
    """The pooling methods of Tensor."""
    __slots__ = ()

    def max_pool1d(self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False):
        """The largest element of each window along the last axis; NaN if any is NaN.

        self: (batch, channels, n). stride: of the windows, their size by default; padding: places around the tensor
        that a window may cover and that never win, at most half the size; ceil_mode: whether a last window may hang
        over the end. Integers and floats keep their dtype.
        """
        return self._max_pooled("max_pool1d", 1, kernel_size, stride, padding, dilation, ceil_mode)

    def max_pool2d(self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False):
        """max_pool1d over two axes: self (batch, channels, rows, columns)."""
        return self._max_pooled("max_pool2d", 2, kernel_size, stride, padding, dilation, ceil_mode)

    def max_pool3d(self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False):
        """max_pool1d over three axes: self (batch, channels, depth, rows, columns)."""
        return self._max_pooled("max_pool3d", 3, kernel_size, stride, padding, dilation, ceil_mode)

    def avg_pool1d(self, kernel_size, stride=None, padding=0, ceil_mode: bool = False, count_include_pad: bool = True):
        """The mean of each window along the last axis; arguments as in max_pool1d.

        count_include_pad: whether places of the padding count as elements, of value 0. A place beyond the padding that
        ceil_mode adds never counts.
        """
        return self._avg_pooled("avg_pool1d", 1, kernel_size, stride, padding, ceil_mode, count_include_pad)

    def avg_pool2d(self, kernel_size, stride=None, padding=0, ceil_mode: bool = False, count_include_pad: bool = True):
        """avg_pool1d over two axes: self (batch, channels, rows, columns)."""
        return self._avg_pooled("avg_pool2d", 2, kernel_size, stride, padding, ceil_mode, count_include_pad)

    def avg_pool3d(self, kernel_size, stride=None, padding=0, ceil_mode: bool = False, count_include_pad: bool = True):
        """avg_pool1d over three axes: self (batch, channels, depth, rows, columns)."""
        return self._avg_pooled("avg_pool3d", 3, kernel_size, stride, padding, ceil_mode, count_include_pad)

    def adaptive_avg_pool1d(self, output_size):
        """The mean of `output_size` windows that cover the last axis: floor(i n / size) to ceil((i + 1) n / size)."""
        return self._adaptive_mean("adaptive_avg_pool1d", 1, output_size)

    def adaptive_avg_pool2d(self, output_size):
        """adaptive_avg_pool1d over two axes: self (batch, channels, rows, columns)."""
        return self._adaptive_mean("adaptive_avg_pool2d", 2, output_size)

    def adaptive_avg_pool3d(self, output_size):
        """adaptive_avg_pool1d over three axes: self (batch, channels, depth, rows, columns)."""
        return self._adaptive_mean("adaptive_avg_pool3d", 3, output_size)

    def adaptive_max_pool1d(self, output_size):
        """The largest of each window of adaptive_avg_pool1d."""
        return self._adaptive_max("adaptive_max_pool1d", 1, output_size)

    def adaptive_max_pool2d(self, output_size):
        """adaptive_max_pool1d over two axes: self (batch, channels, rows, columns)."""
        return self._adaptive_max("adaptive_max_pool2d", 2, output_size)

    def adaptive_max_pool3d(self, output_size):
        """adaptive_max_pool1d over three axes: self (batch, channels, depth, rows, columns)."""
        return self._adaptive_max("adaptive_max_pool3d", 3, output_size)

    # --- how --------------------------------------------------------------------------------------------------------

    def _max_pooled(self, name: str, rank: int, size, stride, padding, dilation, ceil_mode: bool):
        plan = self._pool_plan(name, rank, size, stride, padding, dilation, ceil_mode)
        overhang = [(p, max(0, (count - 1) * step + d * (k - 1) + 1 - p - n))
                    for n, k, step, p, d, count in plan]
        padded = self.pad(((0, 0), (0, 0), *overhang), lowest(self.dtype))
        return padded._pooled(plan, 0).max(tuple(range(3, 2 + 2 * rank, 2)))

    @real_function
    def _avg_pooled(self, name: str, rank: int, size, stride, padding, ceil_mode: bool, count_include_pad: bool):
        plan = self._pool_plan(name, rank, size, stride, padding, 1, ceil_mode)
        total = self._pooled(plan, None).sum(tuple(range(3, 2 + 2 * rank, 2)))
        for a, (n, k, step, p, _, count) in enumerate(plan):
            start = np.arange(count) * step - p
            stop = np.minimum(start + k, n + p)
            counted = stop - start if count_include_pad else np.minimum(stop, n) - np.maximum(start, 0)
            total = total * total._for_axis(1.0 / counted, 2 + a)
        return total

    def _pool_plan(self, name: str, rank: int, size, stride, padding, dilation, ceil_mode: bool) -> list[tuple]:
        """(length, size, stride, padding, dilation, windows) of each axis."""
        self._require_images(name, rank)
        size = per_axis(name, "kernel_size", size, rank)
        stride = size if stride is None else per_axis(name, "stride", stride, rank)
        padding, dilation = per_axis(name, "padding", padding, rank, 0), per_axis(name, "dilation", dilation, rank)
        plan = []
        for a, (k, step, p, d) in enumerate(zip(size, stride, padding, dilation), 2):
            n = self._fixed_size(name, a)
            room = n + 2 * p - d * (k - 1) - 1
            if 2 * p > k or room < 0:
                raise ShapeError(f"{name}: a window of {k} with dilation {d} and padding {p} does not fit the {n} "
                                 f"elements of axis {a}; it must lie inside, with padding of at most half of it")
            count = room // step + 1
            if ceil_mode and room % step and count * step < n + p:
                count += 1
            plan.append((n, k, step, p, d, count))
        return plan

    def _pooled(self, plan: list[tuple], before: int | None):
        """(batch, channels, (window, place), ...); before: places in front of the tensor, None for its padding."""
        x = self
        for i, (_, k, step, p, d, count) in enumerate(plan):
            x = x._windows(2 + 2 * i, count, k, step, d, p if before is None else before)
        return x

    def _adaptive_max(self, name: str, rank: int, size):
        return self._adaptive_windows(name, rank, size, lowest(self.dtype))[0].max(tuple(range(3, 2 + 2 * rank, 2)))

    @real_function
    def _adaptive_mean(self, name: str, rank: int, size):
        windows, lengths = self._adaptive_windows(name, rank, size, 0)
        total = windows.sum(tuple(range(3, 2 + 2 * rank, 2)))
        for a, counted in enumerate(lengths, 2):
            total = total * total._for_axis(1.0 / counted, a)
        return total

    def _adaptive_windows(self, name: str, rank: int, size, outside):
        """(batch, channels, (window, place), ...) with `outside` behind shorter windows, and their lengths by axis."""
        self._require_images(name, rank)
        x, every = self, []
        for i, count in enumerate(per_axis(name, "output_size", size, rank)):
            n = self._fixed_size(name, 2 + i)
            start = np.arange(count) * n // count
            every.append(-(-(np.arange(1, count + 1) * n) // count) - start)
            x = x._uneven_windows(2 + 2 * i, start, every[-1], outside)
        return x, every

    def _uneven_windows(self, axis: int, start: np.ndarray, lengths: np.ndarray, outside):
        """out[..., o, k, ...] = self[..., start[o] + k, ...] for k < lengths[o], else `outside`."""
        n, longest = self.node.shape[axis], int(lengths.max())
        if (lengths == longest).all() and n == longest * len(start):
            return self._windows(axis, len(start), longest, longest)
        windows = self.take(np.minimum(start[:, None] + np.arange(longest), n - 1), axis)
        inside = self._coerce(np.arange(longest) < lengths[:, None])
        return inside._reshaped((*inside.node.shape, *(1,) * (self.ndim - axis - 1))).where(windows, outside)

    def _for_axis(self, values, axis: int):
        """A number for each place of one axis, in this tensor's dtype."""
        values = np.asarray(values, np.float32 if self.dtype.itemsize < 8 else np.float64)
        return self._coerce(values).cast(self.dtype)._reshaped((len(values), *(1,) * (self.ndim - axis - 1)))

    def _require_images(self, name: str, rank: int):
        if self.ndim != rank + 2 or 0 in self.node.shape[2:]:
            raise ShapeError(f"{name}: the tensor has shape {shape_text(self.node.shape)}; (batch, channels, and "
                             f"{rank} sizes that are not 0) is needed")


def lowest(dtype):
    """The least value of a dtype."""
    if dtype.is_float:
        return -np.inf
    return False if dtype.kind == "b" else int(np.iinfo(dtype.numpy).min)
