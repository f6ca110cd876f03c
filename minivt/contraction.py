"""Products of tensors summed over shared axes: matmul and einsum. Not for their speed: there is no such primitive.

Both are an elementwise product of expanded tensors and a SUM, which the schedule finds by its structure. float16 and
bfloat16 are multiplied and summed in float32 and the result is cast back.
"""
from __future__ import annotations

from minivt import dtypes, ops
from minivt.broadcasting import broadcast_shapes, expand_node
from minivt.errors import BackendError, DTypeError, ShapeError
from minivt.graph import node
from minivt.promotion import accumulator, promote
from minivt.variable import expression, shape_text


class Contraction:
    """The contracting methods of Tensor."""
    __slots__ = ()

    def matmul(self, other):
        """The matrix product over the last axis of self and the second to last of other.

        self: (..., M, K) or (K,); other: (..., K, N) or (K,); the axes in front broadcast. Result: (..., M, N), without
        M or N where the operand had one axis.
        """
        other = self._coerce(other)
        if not self.ndim or not other.ndim:
            raise ShapeError(f"matmul: shapes are {shape_text(self.node.shape)} and {shape_text(other.node.shape)}; "
                             "each needs at least one axis: use * for scalars")
        a = self if self.ndim > 1 else self.unsqueeze(0)
        b = other.mT if other.ndim > 1 else other.unsqueeze(0)
        if a.node.shape[-1] != b.node.shape[-1]:
            place = "second to last" if other.ndim > 1 else "only one"
            raise ShapeError(f"matmul: inner sizes differ, a is {shape_text(self.node.shape)} and b is "
                             f"{shape_text(other.node.shape)}: a's last must equal b's {place}")
        product = contract("matmul", [a.unsqueeze(-2), b.unsqueeze(-3)], (-1,))
        if self.ndim == 1:
            product = product.squeeze(-2)
        return product.squeeze(-1) if other.ndim == 1 else product

    def __matmul__(self, other):
        return self.matmul(other)

    def __rmatmul__(self, other):
        return self._coerce(other).matmul(self)


def contract(name: str, tensors: list, axes: tuple[int, ...]):
    """The product of tensors that broadcast together, summed over `axes` (counted from the end), promoted."""
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = promote(name, dtype, t.dtype)
        if t.device != tensors[0].device:
            raise BackendError(f"{name}: operands are on {tensors[0].device} and {t.device}; move one with to(device)")
    if dtype is dtypes.bool_:
        raise DTypeError(f"{name}: the operands have dtype bool; a number is needed: cast first")
    shape = broadcast_shapes(name, *(t.node.shape for t in tensors))
    factors = [expand_node(t.cast(accumulator(dtype)).node, shape) for t in tensors]
    product = factors[0]
    for factor in factors[1:]:
        product = node(ops.MUL, (product, factor))
    if axes:
        product = node(ops.SUM, (product,), tuple(sorted(a % len(shape) for a in axes)))
    return tensors[0]._make(product).cast(dtype)


def einsum_of(subscripts: str, tensors: list):
    """The sum of products over the labels that `subscripts` leaves out on the right; see einsum in functional.py."""
    inputs, output = parse_subscripts(subscripts, [t.ndim for t in tensors])
    label_sizes = {}
    for labels, t in zip(inputs, tensors):
        for label, size in zip(labels, t.node.shape):
            if label_sizes.setdefault(label, size) not in (size, 1) and size != 1:
                raise ShapeError(f"einsum: label {label!r} of {subscripts!r} has sizes "
                                 f"{expression(label_sizes[label])} and {expression(size)}; they must be equal")
            if size != 1:
                label_sizes[label] = size
    order = [*output, *(label for label in label_sizes if label not in output)]
    aligned = [_aligned(t, labels, order) for labels, t in zip(inputs, tensors)]
    return contract("einsum", aligned, tuple(range(len(output) - len(order), 0)))


def _aligned(tensor, labels: list, order: list):
    """The tensor with its axes in the given order of labels and size 1 where it has no such label."""
    permuted = tensor.permute(*(labels.index(label) for label in order if label in labels))
    sizes = iter(permuted.node.shape)
    return permuted._reshaped(tuple(next(sizes) if label in labels else 1 for label in order))


def parse_subscripts(subscripts: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of each input and of the output; an Ellipsis becomes labels "0", "1", ... counted from the end."""
    text = subscripts.replace(" ", "")
    if text.count("->") != 1:
        raise ShapeError(f"einsum: the subscripts are {subscripts!r}; write inputs and output, like 'ij,jk->ik'")
    left, right = text.split("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f"einsum: {subscripts!r} names {len(terms)} inputs, {len(ranks)} were given; name each")
    inputs = [_labels(subscripts, term, rank) for term, rank in zip(terms, ranks)]
    hidden = max((sum(label.isdigit() for label in labels) for labels in inputs), default=0)
    output = _labels(subscripts, right, len(right.replace("...", "")) + hidden)
    known = {label for labels in inputs for label in labels}
    if not set(output) <= known or (hidden and "..." not in right):
        raise ShapeError(f"einsum: the output of {subscripts!r} must take its labels, and the Ellipsis, from the "
                         "inputs")
    return inputs, output


def _labels(subscripts: str, term: str, rank: int) -> list[str]:
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    labels = [*before, *(str(i) for i in reversed(range(hidden))), *after] if dots else list(term)
    named = [label for label in labels if not label.isdigit()]
    if hidden < 0 or len(labels) != rank or len(set(labels)) != rank or not all(n.isalpha() for n in named):
        raise ShapeError(f"einsum: {term!r} in {subscripts!r} does not fit {rank} axes; give each axis its own letter, "
                         "or use one Ellipsis")
    return labels
