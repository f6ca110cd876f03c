"""Resampling of Tensor to other sizes by nearest, linear and cubic rules. Not for pooling (pooling.py).

Places and weights are small tables, computed once in NumPy as torch computes them; the result is one kernel.
"""
from __future__ import annotations

from math import floor

import numpy as np

from minivt import ops
from minivt.convolution import per_axis
from minivt.errors import ShapeError
from minivt.graph import node
from minivt.real_functions import real_function
from minivt.variable import shape_text

LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
SHARPNESS = -0.75  # the slope of Keys' cubic kernel (1981) at 1, as torch takes it


class Interpolation:
    """The resampling methods of Tensor."""
    __slots__ = ()

    def interpolate(self, size=None, scale_factor=None, mode: str = "nearest", align_corners: bool = False):
        """The tensor at other sizes, torch.nn.functional.interpolate without antialiasing.

        self: (batch, channels, *sizes). size: of each axis after, one number or one for each axis; or scale_factor, by
        which axes grow (rounded down). mode: "nearest", "nearest-exact", "linear", "bilinear" or "trilinear" for one,
        two or three axes, "bicubic" for two. align_corners: whether first and last elements stay at the ends, for all
        but the nearest modes. ShapeError where these do not fit together.
        """
        rank = self.ndim - 2
        allowed = ["nearest", "nearest-exact", LINEAR.get(rank), *(["bicubic"] if rank == 2 else [])]
        if rank not in LINEAR or 0 in self.node.shape[2:]:
            raise ShapeError(f"interpolate: the tensor has shape {shape_text(self.node.shape)}; (batch, channels and "
                             "one to three sizes that are not 0) is needed")
        if mode not in allowed or align_corners and mode.startswith("nearest"):
            raise ShapeError(f"interpolate: mode is {mode!r} with align_corners={align_corners} for {rank} axes; "
                             f"choose one of {', '.join(allowed)}, nearest ones without align_corners")
        axes = self._resampled_axes(rank, size, scale_factor)
        return self._nearest(axes, mode) if mode.startswith("nearest") else self._blended(axes, mode, align_corners)

    def _resampled_axes(self, rank: int, size, scale_factor) -> list[tuple[int, int, float]]:
        """(elements, elements after, distance of neighbours in the old ones) of each axis."""
        if (size is None) == (scale_factor is None):
            raise ShapeError(f"interpolate: size is {size} and scale_factor {scale_factor}; give one of the two")
        lengths = [self._fixed_size("interpolate", 2 + i) for i in range(rank)]
        if size is not None:
            return [(n, m, n / m) for n, m in zip(lengths, per_axis("interpolate", "size", size, rank))]
        factors = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * rank
        sizes = [floor(n * factor) for n, factor in zip(lengths, factors)]
        if len(factors) != rank or min(sizes) < 1:
            raise ShapeError(f"interpolate: scale_factor is {scale_factor} for shape {shape_text(self.node.shape)}; "
                             "one positive number, or one for each axis, that leaves an element is needed")
        return [(n, m, 1.0 / factor) for n, m, factor in zip(lengths, sizes, factors)]

    def _nearest(self, axes, mode: str):
        x, shift = self, np.float32(0.5 if mode == "nearest-exact" else 0.0)
        for axis, (n, m, step) in enumerate(axes, 2):
            places = np.floor((np.arange(m, dtype=np.float32) + shift) * np.float32(step))
            x = x._taken(np.minimum(places, n - 1), axis)
        return x

    @real_function
    def _blended(self, axes, mode: str, align_corners: bool):
        """Each axis as a sum of neighbours by weight, one axis after another."""
        x = self
        for axis, (n, m, step) in enumerate(axes, 2):
            wide = np.arange(m, dtype=np.float64)
            place = wide * ((n - 1) / (m - 1) if m > 1 else 0.0) if align_corners else (wide + 0.5) * step - 0.5
            place = place if mode == "bicubic" else np.maximum(place, 0.0)
            below = np.floor(place)
            parts = []
            for offset, weight in (_cubic if mode == "bicubic" else _linear)(place - below):
                scale = x._coerce(weight.astype(np.float32)).cast(x.dtype)
                neighbour = x._taken(np.clip(below + offset, 0, n - 1), axis)
                parts.append(neighbour * scale._reshaped((m, *(1,) * (x.ndim - axis - 1))))
            x = parts[0]
            for part in parts[1:]:
                x = x + part
        return x

    def _taken(self, places: np.ndarray, axis: int):
        """The elements at places inside an axis that are known now."""
        return self._make(node(ops.GATHER, (self.node, self._coerce(places.astype(np.int32)).node), axis))


def _linear(t: np.ndarray):
    return (0, 1.0 - t), (1, t)


def _cubic(t: np.ndarray):
    """Keys' kernel at distances 1 + t, t, 1 - t and 2 - t."""
    a = SHARPNESS
    near = lambda d: ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = lambda d: ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    return (-1, far(1.0 + t)), (0, near(t)), (1, near(1.0 - t)), (2, far(2.0 - t))
