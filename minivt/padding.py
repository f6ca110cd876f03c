"""Padding of Tensor: more places around it, filled with a value or from the tensor itself. Not for joining tensors.

Widths are written as NumPy's pad_width, a pair (before, after) for each axis, first axis first; the modes are torch's:
constant, reflect (the border is not repeated), replicate and circular.
"""
from __future__ import annotations

from minivt.errors import ShapeError
from minivt.variable import bounds, shape_text, unwrap

MODES = ("constant", "reflect", "replicate", "circular")


class Padding:
    """The padding methods of Tensor."""
    __slots__ = ()

    def pad(self, widths, value=0, mode: str = "constant"):
        """With more places around it; widths: (before, after) for each axis.

        mode: "constant" fills them with `value`, "reflect" mirrors the tensor at its first and last element,
        "replicate" repeats these, "circular" goes on at the other end. Each but "constant" needs axes of fixed size,
        "reflect" wider than the padding and "circular" as wide. ShapeError otherwise.
        """
        widths = [tuple(map(unwrap, w)) for w in widths]
        if len(widths) != self.ndim or any(len(w) != 2 or min(map(lambda s: bounds(s)[0], w)) < 0 for w in widths):
            raise ShapeError(f"pad: widths are {widths} for shape {shape_text(self.node.shape)}; one pair of sizes "
                             "that are not negative is needed for each axis")
        if mode != "constant":
            return self._padded_from_itself(widths, mode)
        padded = self._padded(tuple(widths))
        if isinstance(value, (int, float)) and value == 0:
            return padded
        return self.ones_like().cast("bool")._padded(tuple(widths)).where(padded, value)

    def _padded_from_itself(self, widths, mode: str):
        if mode not in MODES:
            raise ShapeError(f"pad: mode is {mode!r}; choose one of {', '.join(MODES)}")
        x = self
        for axis, (before, after) in enumerate(widths):
            if before or after:
                n = x._fixed_size("pad", axis)
                most = {"reflect": n - 1, "circular": n, "replicate": max(before, after) if n else 0}[mode]
                if max(before, after) > most:
                    raise ShapeError(f"pad: axis {axis} has {n} elements and gets {before} and {after} more by mode "
                                     f"{mode!r}; at most {most} are possible")
                front, back = x._borders(axis, n, before, after, mode)
                pieces = [piece for piece in (front, x, back) if piece.node.shape[axis]]
                x = pieces[0]._joined_with(pieces[1:], axis)
        return x

    def _borders(self, axis: int, n: int, before: int, after: int, mode: str):
        """What comes before and after an axis of n elements."""
        if mode == "circular":
            return self._slice_axis(axis, n - before, before), self._slice_axis(axis, 0, after)
        if mode == "reflect":
            return self._slice_axis(axis, 1, before).flip(axis), self._slice_axis(axis, n - 1 - after, after).flip(axis)
        shape = self.node.shape
        return (self._slice_axis(axis, place, 1)._expanded((*shape[:axis], size, *shape[axis + 1:]))
                for place, size in ((0, before), (n - 1, after)))
