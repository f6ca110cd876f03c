"""Sliding windows of Tensor and the products over them: unfold, convolutions and transposed convolutions.

A window is a GATHER at places that are sums of counters, which the schedule turns into an index: no window is ever
written to memory, and the product with a kernel is a contraction like any other. Not for pooling (pooling.py).

Layouts are torch's: images (batch, channels, *sizes), kernels (outputs, inputs / groups, *sizes), those of transposed
convolutions (inputs, outputs / groups, *sizes).
"""
from __future__ import annotations

from math import gcd

from minivt import dtypes, ops
from minivt.broadcasting import normal_axis
from minivt.contraction import contract
from minivt.errors import ShapeError
from minivt.graph import node
from minivt.variable import shape_text


class Convolution:
    """The methods of Tensor that look through windows."""
    __slots__ = ()

    # --- windows ----------------------------------------------------------------------------------------------------

    def unfold(self, axis: int, size: int, step: int = 1):
        """The windows of `size` elements along an axis, one every `step`, as a new last axis: torch's Tensor.unfold.

        (..., n, ...) -> (..., (n - size) // step + 1, ..., size). Nothing is copied: it is another way to index.
        """
        axis = normal_axis("unfold", axis, self.ndim)
        length = self._fixed_size("unfold", axis)
        if not 0 < size <= length or step < 1:
            raise ShapeError(f"unfold: size {size} and step {step} do not fit the {length} elements of axis {axis}; "
                             f"the size must be 1 to {length} and the step at least 1")
        windows = self._windows(axis, (length - size) // step + 1, size, step)
        order = [a for a in range(windows.ndim) if a != axis + 1]
        return windows.permute(*order, axis + 1)

    def _windows(self, axis: int, count: int, size: int, step: int = 1, dilation: int = 1, before: int = 0):
        """out[..., o, k, ...] = self[..., o * step + k * dilation - before, ...], zero outside of the tensor."""
        if size == step and dilation == 1 and before == 0 and count * step <= self.node.shape[axis]:
            part, shape = self._slice_axis(axis, 0, count * step), self.node.shape  # windows side by side
            return part._reshaped((*shape[:axis], count, size, *shape[axis + 1:]))
        places = self._places(2, {0: (count, step), 1: (size, dilation)}, -before)
        return self._make(node(ops.GATHER, (self.node, places.node), axis))

    def _places(self, rank: int, steps: dict, start: int):
        """start + the sum over axes a of step * counter, of shape (size, ...); steps: {a: (size, step)}."""
        total = self._make_size(start)._reshaped((1,) * rank)
        for a, (size, step) in steps.items():
            counter = self._make(node(ops.ARANGE, (), size, dtypes.int64))
            total = total + counter._reshaped(tuple(size if i == a else 1 for i in range(rank))) * step
        return total

    def _fixed_size(self, name: str, axis: int) -> int:
        size = self.node.shape[axis]
        if not isinstance(size, int):
            raise ShapeError(f"{name}: axis {axis} of {shape_text(self.node.shape)} is symbolic; a fixed size is "
                             "needed")
        return size

    # --- convolution ------------------------------------------------------------------------------------------------

    def conv1d(self, weight, bias=None, stride=1, padding=0, dilation=1, groups: int = 1):
        """out[b, o, x] = bias[o] + sum over c, k of self[b, c, x * stride + k * dilation - padding] * weight[o, c, k].

        self: (batch, channels, n); weight: (outputs, channels / groups, size); bias: (outputs,) or None. padding: zeros
        on both sides, a pair (before, after) for an axis, "valid" for none or "same" for as many places out as in.
        float16 and bfloat16 are multiplied and summed in float32. ShapeError where sizes do not fit.
        """
        return self._convolved("conv1d", 1, weight, bias, stride, padding, dilation, groups)

    def conv2d(self, weight, bias=None, stride=1, padding=0, dilation=1, groups: int = 1):
        """conv1d over two axes: self (batch, channels, rows, columns); one number or one for each axis is given."""
        return self._convolved("conv2d", 2, weight, bias, stride, padding, dilation, groups)

    def conv3d(self, weight, bias=None, stride=1, padding=0, dilation=1, groups: int = 1):
        """conv1d over three axes: self (batch, channels, depth, rows, columns)."""
        return self._convolved("conv3d", 3, weight, bias, stride, padding, dilation, groups)

    def _convolved(self, name: str, rank: int, weight, bias, stride, padding, dilation, groups: int):
        self._require_layout(name, rank, weight, bias, groups, transposed=False)
        stride, dilation = per_axis(name, "stride", stride, rank), per_axis(name, "dilation", dilation, rank)
        outputs, channels, *sizes = weight.node.shape
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, sizes)]
        pads = paddings(name, padding, spans, stride)
        x, counts = self, []
        for i, (size, span, (before, after)) in enumerate(zip(sizes, spans, pads)):
            length = self._fixed_size(name, 2 + i)
            if length + before + after < span:
                raise ShapeError(f"{name}: axis {2 + i} has {length} elements and {before} + {after} of padding; the "
                                 f"kernel spans {span}: pad more or take a smaller kernel")
            counts.append((length + before + after - span) // stride[i] + 1)
            x = x._windows(2 + 2 * i, counts[i], size, stride[i], dilation[i], before)
        x = x._reshaped((self.node.shape[0], groups, 1, channels, *x.node.shape[2:]))
        kernel = weight._reshaped((1, groups, outputs // groups, channels, *(s for k in sizes for s in (1, k))))
        summed = (3 - x.ndim, *range(5 - x.ndim, 0, 2))  # channels and the places of each window
        return _with_bias(contract(name, [x, kernel], summed), bias, (self.node.shape[0], outputs, *counts))

    # --- transposed convolution -------------------------------------------------------------------------------------

    def conv_transpose1d(self, weight, bias=None, stride=1, padding=0, output_padding=0, groups: int = 1, dilation=1):
        """What each element spreads over a window, summed: the adjoint of conv1d with the same arguments.

        self: (batch, channels, n); weight: (channels, outputs / groups, size); bias: (outputs,) or None. Result:
        (batch, outputs, (n - 1) * stride - 2 * padding + dilation * (size - 1) + output_padding + 1). It goes by
        output phase: outputs that are `stride` apart see the same part of the kernel, and no zeros are multiplied.
        """
        return self._spread("conv_transpose1d", 1, weight, bias, stride, padding, output_padding, groups, dilation)

    def conv_transpose2d(self, weight, bias=None, stride=1, padding=0, output_padding=0, groups: int = 1, dilation=1):
        """conv_transpose1d over two axes: self (batch, channels, rows, columns)."""
        return self._spread("conv_transpose2d", 2, weight, bias, stride, padding, output_padding, groups, dilation)

    def _spread(self, name: str, rank: int, weight, bias, stride, padding, output_padding, groups: int, dilation):
        self._require_layout(name, rank, weight, bias, groups, transposed=True)
        stride, dilation = per_axis(name, "stride", stride, rank), per_axis(name, "dilation", dilation, rank)
        padding = per_axis(name, "padding", padding, rank, 0)
        extra = per_axis(name, "output_padding", output_padding, rank, 0)
        (batch, channels), (_, columns, *sizes) = self.node.shape[:2], weight.node.shape
        x, kernel, axes = self, weight, []
        for i in range(rank):
            length = self._fixed_size(name, 2 + i)
            if extra[i] >= max(stride[i], dilation[i]):
                raise ShapeError(f"{name}: output_padding is {extra[i]} for stride {stride[i]} and dilation "
                                 f"{dilation[i]}; it must be smaller than one of the two")
            full = (length - 1) * stride[i] + dilation[i] * (sizes[i] - 1) + 1
            wanted = full - 2 * padding[i] + extra[i]
            if wanted < 1:
                raise ShapeError(f"{name}: axis {2 + i} of the result has size {wanted}; use less padding")
            phases = Phases(stride[i], dilation[i], sizes[i], padding[i])
            x = phases.sources(x, 2 + 3 * i, -(-wanted // stride[i]))
            kernel = phases.parts(kernel, 2 + 2 * i)
            axes.append((phases, wanted))
        # x: (batch, groups, 1, channels, (turn, phase, part), ...)
        # kernel: (1, groups, outputs, channels, (1, phase, part), ...)
        x = x._reshaped((batch, groups, 1, channels // groups, *x.node.shape[2:]))
        kernel = kernel._reshaped((1, groups, channels // groups, columns, *kernel.node.shape[2:])).transpose(2, 3)
        kernel = kernel._reshaped((*kernel.node.shape[:4], *(s for pair in zip(*[iter(kernel.node.shape[4:])] * 2)
                                                             for s in (1, *pair))))
        y = contract(name, [x, kernel], (3 - x.ndim, *range(6 - x.ndim, 0, 3)))
        y = y._reshaped((batch, groups * columns, *y.node.shape[3:]))
        for i, (phases, wanted) in enumerate(axes):
            y = phases.interleaved(y, 2 + i, wanted)
        return _with_bias(y, bias, y.node.shape)

    # --- checks -----------------------------------------------------------------------------------------------------

    def _require_layout(self, name: str, rank: int, weight, bias, groups: int, transposed: bool):
        given = f"{shape_text(self.node.shape)} and weight {shape_text(weight.node.shape)}" if hasattr(weight, "node") \
            else f"{shape_text(self.node.shape)} and weight {type(weight).__name__}"
        layout = "(channels, outputs / groups" if transposed else "(outputs, channels / groups"
        if not hasattr(weight, "node") or self.ndim != rank + 2 or weight.ndim != rank + 2:
            raise ShapeError(f"{name}: the tensor is {given}; (batch, channels and {rank} sizes) and {layout} and "
                             f"{rank} sizes) are needed")
        channels, first, second = self.node.shape[1], *weight.node.shape[:2]
        fits = first == channels if transposed else second * groups == channels and first % groups == 0
        if groups < 1 or not fits or channels % groups:
            raise ShapeError(f"{name}: the tensor is {given} in {groups} groups; the weight must be {layout}, ...) "
                             "with channels and outputs that are multiples of groups")
        outputs = second * groups if transposed else first
        if bias is not None and bias.node.shape != (outputs,):
            raise ShapeError(f"{name}: bias has shape {shape_text(bias.node.shape)}; ({outputs},) is needed")


class Phases:
    """How one axis of a transposed convolution goes by phases of its result, without a zero between elements.

    Element i and kernel place k meet at p = i * stride + k * dilation. With both divided by their common divisor, to s
    and d, write k = a + m * s: then p = s * q + (a * d) % s with q = i + m * d + (a * d) // s, so each residue `a`
    is one phase of the result and sums over the parts m alone. Results are counted from `start`: phase r of them is the
    residue of (r + start) / d modulo s, one turn later where r + start reaches s.
    """

    def __init__(self, stride: int, dilation: int, size: int, start: int):
        self.common = gcd(stride, dilation)
        self.s, self.d = stride // self.common, dilation // self.common
        self.size, self.parts_count = size, -(-size // self.s)
        self.skipped = -start % self.common  # places before the first that any element reaches
        self.start = (start + self.skipped) // self.common
        self.inverse = pow(self.d, -1, self.s) if self.s > 1 else 0

    def _phases(self, x):
        """r + start for each phase r, and the residue `a` that it is."""
        moved = x._places(3, {1: (self.s, 1)}, self.start)
        return moved, moved * self.inverse % self.s

    def sources(self, x, axis: int, turns: int):
        """out[..., q, r, m, ...] = the element that meets part m in phase r at turn q, zero where there is none."""
        moved, residue = self._phases(x)
        places = x._places(3, {0: (turns, 1), 2: (self.parts_count, -self.d)}, 0) + moved // self.s
        if self.d > 1:
            places = places - residue * self.d // self.s
        return x._make(node(ops.GATHER, (x.node, places.node), axis))

    def parts(self, kernel, axis: int):
        """(..., size, ...) -> (..., phase of the result, part, ...), zero where the kernel has no such place."""
        places = self._phases(kernel)[1] + kernel._places(3, {2: (self.parts_count, self.s)}, 0)
        return kernel._make(node(ops.GATHER, (kernel.node, places._reshaped(places.node.shape[1:]).node), axis))

    def interleaved(self, y, axis: int, wanted: int):
        """(..., turn, phase, ...) -> (..., place, ...) for `wanted` places; those that no phase reaches are zero."""
        shape, reached = y.node.shape, -(-(wanted - self.skipped) // self.common)
        whole = y._reshaped((*shape[:axis], shape[axis] * self.s, *shape[axis + 2:]))
        whole = whole._slice_axis(axis, 0, reached)
        if self.common == 1:
            return whole
        still = [(0, 0)] * whole.ndim
        apart = whole._reshaped((*whole.node.shape[:axis + 1], 1, *whole.node.shape[axis + 1:]))
        apart = apart.pad([*still[:axis + 1], (0, self.common - 1), *still[axis + 1:]])
        whole = apart._reshaped((*shape[:axis], reached * self.common, *shape[axis + 2:]))
        whole = whole.pad([*still[:axis], (self.skipped, 0), *still[axis + 1:]])
        return whole._slice_axis(axis, 0, wanted)


def _with_bias(y, bias, shape: tuple):
    y = y._reshaped(shape)
    return y if bias is None else y + bias._reshaped((shape[1], *(1 for _ in shape[2:])))


def per_axis(name: str, argument: str, value, rank: int, least: int = 1) -> tuple[int, ...]:
    """One integer, or one for each axis, as one for each axis."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(values) != rank or not all(isinstance(v, int) and v >= least for v in values):
        raise ShapeError(f"{name}: {argument} is {value!r}; an integer of at least {least}, or {rank} of them, is "
                         "needed")
    return values


def paddings(name: str, padding, spans, stride) -> list[tuple[int, int]]:
    """Zeros (before, after) each axis; "same" puts the odd one after, as torch does."""
    if padding == "valid":
        return [(0, 0)] * len(spans)
    if padding == "same":
        if set(stride) != {1}:
            raise ShapeError(f"{name}: padding is 'same' with stride {stride}; it is defined for stride 1: give sizes")
        return [((span - 1) // 2, span - 1 - (span - 1) // 2) for span in spans]
    values = padding if isinstance(padding, (tuple, list)) else (padding,) * len(spans)
    pairs = [tuple(v) if isinstance(v, (tuple, list)) else (v, v) for v in values]
    if len(pairs) != len(spans) or not all(len(p) == 2 and all(isinstance(v, int) and v >= 0 for v in p)
                                           for p in pairs):
        raise ShapeError(f"{name}: padding is {padding!r}; 'same', 'valid', a size that is not negative, or a size or "
                         f"a pair for each of the {len(spans)} axes is needed")
    return pairs
