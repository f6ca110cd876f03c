"""Layers whose parameters are Tensors. Not for functions without parameters, which are methods of Tensor."""
from __future__ import annotations

from minivt import dtypes
from minivt.creation import ones, zeros
from minivt.random import normal, uniform
from minivt.tensor import Tensor


class Linear:
    """y = x W^T + b.

    x: (..., inputs) -> (..., outputs); weight: (outputs, inputs), bias: (outputs,) or None. Both start uniform within
    1 / sqrt(inputs) of zero.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, dtype=dtypes.float32):
        limit = max(inputs, 1) ** -0.5
        self.weight = uniform((outputs, inputs), -limit, limit, dtype)
        self.bias = uniform((outputs,), -limit, limit, dtype) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class Embedding:
    """A row of the table for each integer.

    ids: (...) integers below `count` -> (..., width); weight: (count, width), standard normal at first. Ids outside
    the table give zeros. Only the rows asked for are read.
    """

    def __init__(self, count: int, width: int, dtype=dtypes.float32):
        self.weight = normal((count, width), dtype=dtype)

    def __call__(self, ids: Tensor) -> Tensor:
        return self.weight[ids]


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * w over the last axis (Zhang and Sennrich, 2019); computed in float32.

    x: (..., width); weight: (width,), ones at first.
    """

    def __init__(self, width: int, eps: float = 1e-6, dtype=dtypes.float32):
        self.weight, self.eps = ones((width,), dtype), eps

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.cast(dtypes.float32)
        scale = ((wide * wide).mean(-1, keepdims=True) + self.eps).rsqrt()
        return (wide * scale).cast(x.dtype) * self.weight


class LayerNorm:
    """(x - mean) / sqrt(variance + eps) * w + b over the last axis (Ba, Kiros, Hinton, 2016); computed in float32.

    x: (..., width); weight and bias: (width,), ones and zeros at first.
    """

    def __init__(self, width: int, eps: float = 1e-5, bias: bool = True, dtype=dtypes.float32):
        self.weight, self.eps = ones((width,), dtype), eps
        self.bias = zeros((width,), dtype) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.cast(dtypes.float32)
        centred = wide - wide.mean(-1, keepdims=True)
        scale = ((centred * centred).mean(-1, keepdims=True) + self.eps).rsqrt()
        y = (centred * scale).cast(x.dtype) * self.weight
        return y if self.bias is None else y + self.bias
