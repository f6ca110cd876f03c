"""Convolution layers. Not for what they compute (Tensor's conv1d and others), nor for pooling, which has no parameters.

Weights and biases have torch's names, shapes and first values: uniform within 1 / sqrt(inputs of one result).
"""
from __future__ import annotations

from math import prod

from minivt import dtypes
from minivt.convolution import per_axis
from minivt.random import uniform
from minivt.tensor import Tensor


class _Convolution:
    """What all layers share; a subclass names its method of Tensor, its rank and whether it is transposed."""
    method, rank, transposed = "", 0, False

    def __init__(self, inputs: int, outputs: int, kernel_size, stride=1, padding=0, dilation=1, groups: int = 1,
                 bias: bool = True, dtype=dtypes.float32, **options):
        sizes = per_axis(type(self).__name__, "kernel_size", kernel_size, self.rank)
        first, second = (inputs, outputs) if self.transposed else (outputs, inputs)
        shape = (first, second // groups, *sizes)
        limit = max(1, prod(shape[1:])) ** -0.5
        self.weight = uniform(shape, -limit, limit, dtype)
        self.bias = uniform((outputs,), -limit, limit, dtype) if bias else None
        self.options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups, **options)

    def __call__(self, x: Tensor) -> Tensor:
        return getattr(x, self.method)(self.weight, self.bias, **self.options)


class Conv1d(_Convolution):
    """x: (batch, inputs, n) -> (batch, outputs, m); weight: (outputs, inputs / groups, size), bias: (outputs,)."""
    method, rank = "conv1d", 1


class Conv2d(_Convolution):
    """x: (batch, inputs, rows, columns) -> (batch, outputs, ...); weight: (outputs, inputs / groups, rows, columns)."""
    method, rank = "conv2d", 2


class Conv3d(_Convolution):
    """Conv2d over depth, rows and columns."""
    method, rank = "conv3d", 3


class ConvTranspose1d(_Convolution):
    """x: (batch, inputs, n) -> (batch, outputs, m); weight: (inputs, outputs / groups, size), bias: (outputs,).

    output_padding: elements after the end of the result, for strides that leave its size open.
    """
    method, rank, transposed = "conv_transpose1d", 1, True

    def __init__(self, inputs: int, outputs: int, kernel_size, stride=1, padding=0, output_padding=0, groups: int = 1,
                 bias: bool = True, dilation=1, dtype=dtypes.float32):
        super().__init__(inputs, outputs, kernel_size, stride, padding, dilation, groups, bias, dtype,
                         output_padding=output_padding)


class ConvTranspose2d(ConvTranspose1d):
    """ConvTranspose1d over rows and columns."""
    method, rank = "conv_transpose2d", 2
