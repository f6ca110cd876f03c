"""Movement operations of Tensor: the same elements under other shapes and orders. Not for indexing (indexing.py).

Shapes are given as sizes or as one tuple of sizes; a size is an int or a symbolic integer (variable.py).
"""
from __future__ import annotations

from minivt import ops
from minivt.broadcasting import broadcast_shapes, expand_node, normal_axes, normal_axis, sizes
from minivt.errors import ShapeError
from minivt.graph import node
from minivt.promotion import promote
from minivt.symbolic import idiv, mod
from minivt.variable import add, mul, prod, shape_text, sub, unwrap, wrap


class Movement:
    """The moving methods of Tensor."""
    __slots__ = ()

    def _reshaped(self, shape: tuple):
        return self._make(self.node if shape == self.node.shape else node(ops.RESHAPE, (self.node,), shape))

    def _expanded(self, shape: tuple):
        return self._make(expand_node(self.node, shape))

    def reshape(self, *shape):
        """The same elements in row-major order; one size may be -1 and is computed from the others."""
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = shape[0]
        open_axes = [a for a, s in enumerate(shape) if isinstance(s, int) and s == -1]
        known = sizes("reshape", (tuple(1 if a in open_axes else s for a, s in enumerate(shape)),))
        total, product = prod(self.node.shape), prod(known)
        fits = product == total if not open_axes else product != 0 and (
            total % product == 0 if isinstance(total, int) and isinstance(product, int)
            else unwrap(mod(total, product)) == 0)
        if len(open_axes) > 1 or not fits:
            given = shape_text(tuple(-1 if a in open_axes else s for a, s in enumerate(known)))
            raise ShapeError(f"reshape: {shape_text(self.node.shape)} has not the number of elements of {given}; at "
                             "most one size may be -1 and the product must be the same")
        if open_axes:
            quotient = total // product if isinstance(total, int) and isinstance(product, int) else \
                unwrap(idiv(total, product))
            known = tuple(quotient if a in open_axes else s for a, s in enumerate(known))
        return self._reshaped(known)

    def permute(self, *axes):
        """Axis a of the result is axis axes[a] of the tensor; all axes must be named once."""
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        order = tuple(normal_axis("permute", a, self.ndim) for a in axes)
        if sorted(order) != list(range(self.ndim)):
            raise ShapeError(f"permute: axes {tuple(axes)} are not an order of the {self.ndim} axes of "
                             f"{shape_text(self.node.shape)}; name each once")
        return self._make(self.node if order == tuple(range(self.ndim)) else node(ops.PERMUTE, (self.node,), order))

    def transpose(self, axis0: int = -2, axis1: int = -1):
        """Two axes exchanged."""
        order = list(range(self.ndim))
        a, b = normal_axis("transpose", axis0, self.ndim), normal_axis("transpose", axis1, self.ndim)
        order[a], order[b] = order[b], order[a]
        return self.permute(*order)

    @property
    def T(self):
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ShapeError(f"T: the tensor has shape {shape_text(self.node.shape)}; two axes are needed: use mT or "
                             "permute")
        return self.transpose()

    @property
    def mT(self):
        """The last two axes exchanged."""
        return self.transpose()

    def broadcast_to(self, *shape):
        """New axes in front and axes of size 1 repeated."""
        target = sizes("broadcast_to", shape)
        if len(target) < self.ndim or broadcast_shapes("broadcast_to", self.node.shape, target) != target:
            raise ShapeError(f"broadcast_to: {shape_text(self.node.shape)} does not broadcast to {shape_text(target)}; "
                             "only sizes of 1 grow")
        return self._expanded(target)

    def expand(self, *shape):
        """broadcast_to, where -1 keeps a size."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        offset = len(shape) - self.ndim
        return self.broadcast_to(tuple(self.shape[a - offset] if isinstance(s, int) and s == -1 and a >= offset else s
                                       for a, s in enumerate(shape)))

    def squeeze(self, axis):
        """Without the given axis or axes, whose size must be 1."""
        axes = normal_axes("squeeze", axis, self.ndim) if axis is not None else \
            tuple(a for a, s in enumerate(self.node.shape) if s == 1)
        if any(self.node.shape[a] != 1 for a in axes):
            raise ShapeError(f"squeeze: axis {axis} of {shape_text(self.node.shape)} has not size 1; select an element "
                             "instead")
        return self._reshaped(tuple(s for a, s in enumerate(self.node.shape) if a not in axes))

    def unsqueeze(self, axis: int):
        """With a new axis of size 1 at the given place."""
        axis = normal_axis("unsqueeze", axis, self.ndim + 1)
        return self._reshaped((*self.node.shape[:axis], 1, *self.node.shape[axis:]))

    def flatten(self, start: int = 0, end: int = -1):
        """The axes from start to end (included) as one."""
        if not self.ndim:
            return self._reshaped((1,))
        start, end = normal_axis("flatten", start, self.ndim), normal_axis("flatten", end, self.ndim)
        shape = self.node.shape
        return self._reshaped((*shape[:start], prod(shape[start:end + 1]), *shape[end + 1:]))

    def flip(self, axis=None):
        """Reversed along the given axis or axes."""
        axes = normal_axes("flip", axis, self.ndim)
        return self._make(node(ops.FLIP, (self.node,), axes) if axes else self.node)

    def _padded(self, widths: tuple):
        if all(w == (0, 0) for w in widths):
            return self._make(self.node)
        return self._make(node(ops.PAD, (self.node,), widths))

    def _shrunk(self, region: tuple):
        """The elements start <= i < start + size of each axis; region: ((start, size), ...)."""
        if region == tuple((0, s) for s in self.node.shape):
            return self._make(self.node)
        return self._make(node(ops.SHRINK, (self.node,), region))

    def _slice_axis(self, axis: int, start, size):
        return self._shrunk(tuple((start, size) if a == axis else (0, s) for a, s in enumerate(self.node.shape)))

    def split(self, size, axis: int = 0) -> list:
        """Pieces along an axis: of `size` each with a shorter last one, or of the sizes in a list."""
        axis = normal_axis("split", axis, self.ndim)
        total = self.node.shape[axis]
        if not isinstance(size, (tuple, list)):
            if not isinstance(total, int) or size < 1:
                raise ShapeError(f"split: size is {size} for {shape_text(self.node.shape)}; give a positive size for "
                                 "an axis of fixed size, or a list of sizes")
            size = [min(size, total - i) for i in range(0, total, size)] or [0]
        pieces, start = [], 0
        for s in map(unwrap, size):
            pieces.append(self._slice_axis(axis, start, s))
            start = add(start, s)
        if start != total:
            raise ShapeError(f"split: the sizes sum to {wrap(start)}; axis {axis} of {shape_text(self.node.shape)} "
                             f"asks {wrap(total)}")
        return pieces

    def chunk(self, count: int, axis: int = 0) -> list:
        """At most `count` pieces of equal size along an axis; the last may be shorter."""
        total = self.node.shape[normal_axis("chunk", axis, self.ndim)]
        if count < 1 or not isinstance(total, int):
            raise ShapeError(f"chunk: count is {count} for {shape_text(self.node.shape)}; give a positive count for an "
                             "axis of fixed size")
        return self.split(max(1, -(-total // count)), axis)

    def repeat(self, count, axis: int):
        """Each element `count` times in a row along an axis."""
        axis = normal_axis("repeat", axis, self.ndim)
        shape, count = self.node.shape, sizes("repeat", (count,))[0]
        wide = self._reshaped((*shape[:axis + 1], 1, *shape[axis + 1:]))
        wide = wide._expanded((*shape[:axis + 1], count, *shape[axis + 1:]))
        return wide._reshaped((*shape[:axis], mul(shape[axis], count), *shape[axis + 1:]))

    def tile(self, *counts):
        """The whole tensor counts[a] times along each axis a, aligned at the last axis."""
        counts = sizes("tile", counts)
        counts = (1,) * (self.ndim - len(counts)) + counts
        shape = (1,) * (len(counts) - self.ndim) + self.node.shape
        thin = self._reshaped(tuple(s for size in shape for s in (1, size)))
        wide = thin._expanded(tuple(s for pair in zip(counts, shape) for s in pair))
        return wide._reshaped(tuple(mul(c, s) for c, s in zip(counts, shape)))

    def roll(self, shift: int, axis: int):
        """Moved by `shift` places along an axis; what leaves at one end enters at the other."""
        axis = normal_axis("roll", axis, self.ndim)
        size = self.node.shape[axis]
        if not isinstance(size, int):
            raise ShapeError(f"roll: axis {axis} of {shape_text(self.node.shape)} is symbolic; a fixed size is needed")
        shift = shift % size if size else 0
        if not shift:
            return self._make(self.node)
        return self._slice_axis(axis, size - shift, shift)._joined_with([self._slice_axis(axis, 0, size - shift)], axis)

    def _joined_with(self, others, axis: int):
        """The tensors one after another along an axis: each padded to the whole, chosen by the place."""
        tensors = [self, *others]
        dtype = self.dtype
        for other in others:
            dtype = promote("cat", dtype, other.dtype)
        total = add(*(t.node.shape[axis] for t in tensors))
        placed, start = [], 0
        for t in tensors:
            size = t.node.shape[axis]
            widths = tuple((start, sub(sub(total, start), size)) if a == axis else (0, 0) for a in range(self.ndim))
            start = add(start, size)
            placed.append((t.cast(dtype)._padded(widths), start))
        result = placed[-1][0]
        place = result._counter(axis)
        for padded, end in reversed(placed[:-1]):
            result = (place < wrap(end)).where(padded, result)
        return result
