"""Tensor: a lazy array. An operation extends a graph of primitives; reading values realises it.

Here: making, reading and moving between devices. The operations are in elementwise.py,
real_functions.py, reduction.py, movement.py, indexing.py and contraction.py, functions of several tensors in
functional.py. Not for kernels or memory (runtime/).
"""
from __future__ import annotations

import numpy as np

from minivt import dtypes, ops
from minivt.broadcasting import expand_node
from minivt.contraction import Contraction
from minivt.convolution import Convolution
from minivt.cumulative import Cumulative
from minivt.dtypes import DType, as_dtype, bfloat16_to_float, float_to_bfloat16
from minivt.elementwise import Elementwise, scalar_kind, scalar_node
from minivt.errors import DTypeError, ShapeError
from minivt.real_functions import RealFunctions
from minivt.graph import Node, node
from minivt.indexing import Indexing
from minivt.interpolation import Interpolation
from minivt.movement import Movement
from minivt.ordering import Ordering
from minivt.padding import Padding
from minivt.pooling import Pooling
from minivt.promotion import default_dtype
from minivt.reduction import Reduction
from minivt.runtime import realize as runtime
from minivt.spectral import Spectral
from minivt.variable import prod, shape_text, wrap

class Tensor(Elementwise, RealFunctions, Reduction, Cumulative, Movement, Indexing, Contraction,
             Ordering, Convolution, Pooling, Padding, Interpolation, Spectral):
    """An array of elements of one dtype on one device, computed when it is read.

    data: Python numbers in nested lists, a Variable, or a NumPy array, whose memory is used without a copy where it
    is contiguous: do not change it while the Tensor lives. dtype: default int64, float32 and bool for Python numbers,
    the array's own for arrays. device: where it lives, like "cpu" or "cuda:0"; default MINIVT's default device.
    Errors: ShapeError for ragged lists, DTypeError for elements that are no numbers.
    """
    __slots__ = ("node", "device", "__weakref__")
    __array_ufunc__ = None  # a NumPy array on the left leaves the operator to the Tensor

    _trace = None  # while a function is captured: told what is read and assigned

    def __init__(self, data, dtype=None, device: str | None = None):
        dtype = None if dtype is None else as_dtype(dtype)
        self.device = device if device is not None else runtime.default_device()
        self.node = _node_of(data, dtype, self.device)
        runtime.LIVE[id(self)] = self  # by id, for == of tensors is elementwise

    @classmethod
    def _from_node(cls, made: Node, device: str) -> Tensor:
        tensor = cls.__new__(cls)
        tensor.node, tensor.device = made, device
        runtime.LIVE[id(tensor)] = tensor
        return tensor

    def _make(self, made: Node) -> Tensor:
        """A tensor of this one's device."""
        return Tensor._from_node(made, self.device)

    def _coerce(self, value) -> Tensor:
        """A Tensor from what an operation was given, on this one's device."""
        return value if isinstance(value, Tensor) else Tensor(value, device=self.device)

    def _replace(self, made: Node):
        """Become the next version."""
        self.node = made
        if Tensor._trace is not None:
            Tensor._trace.assigned(self)

    # --- description ------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple:
        """The size of each axis: an int, or a SymbolicInt where it depends on Variables."""
        return tuple(map(wrap, self.node.shape))

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def size(self):
        """The number of elements."""
        return wrap(prod(self.node.shape))

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def is_realized(self) -> bool:
        return self.node.op in (ops.BUFFER, ops.CONST)

    def __len__(self) -> int:
        if not self.ndim:
            raise ShapeError("len: the tensor has no axes; its only value is read by item()")
        if not isinstance(self.shape[0], int):
            raise ShapeError(f"len: axis 0 of {shape_text(self.node.shape)} is symbolic; use shape[0]")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        head = f"Tensor(shape={shape_text(self.node.shape)}, dtype={self.dtype}, device={self.device!r}"
        if not self.is_realized or Tensor._trace is not None:
            return head + ", lazy)"
        values = np.array2string(self.numpy(), separator=", ", prefix="Tensor(")
        return f"Tensor({values}, dtype={self.dtype}, device={self.device!r})"

    # --- reading values ---------------------------------------------------------------------------------------------

    def realize(self) -> Tensor:
        """Compute the elements now and keep them in memory; returns self."""
        self.node, = runtime.realize([self.node], self.device)
        return self

    def contiguous(self) -> Tensor:
        """The same elements, in memory of their own when realised."""
        return self._make(node(ops.CONTIGUOUS, (self.node,)))

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array; bfloat16, which NumPy lacks, as float32."""
        return self._read("numpy()")

    def _read(self, what: str) -> np.ndarray:
        if Tensor._trace is not None:
            Tensor._trace.read(self, what)
        array = runtime.to_numpy(self.realize().node)
        return bfloat16_to_float(array) if self.dtype is dtypes.bfloat16 else array

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        array = self._read("numpy()")
        array = array if dtype is None else array.astype(dtype, copy=False)
        return array.copy() if copy else array

    def item(self):
        """The only element as a Python number; ShapeError where there are more or none."""
        return self._item("item()")

    def _item(self, what: str):
        if any(s != 1 for s in self.node.shape):
            raise ShapeError(f"{what}: the tensor has shape {shape_text(self.node.shape)}; one element is needed: "
                             "index or reduce it first")
        return self._read(what).item()

    def tolist(self):
        """The elements as nested lists of Python numbers."""
        return self._read("tolist()").tolist()

    def __bool__(self) -> bool:
        return bool(self._item("bool()"))

    def __int__(self) -> int:
        return int(self._item("int()"))

    def __float__(self) -> float:
        return float(self._item("float()"))

    # --- other tensors like this ------------------------------------------------------------------------------------

    def to(self, target) -> Tensor:
        """The same values on another device ("cpu", "cuda:0") or, like cast, in another dtype."""
        if isinstance(target, str) and target not in dtypes.BY_NAME:
            return self._make(self.node) if target == self.device else \
                Tensor._from_node(node(ops.COPY, (self.node,), target), target)
        return self.cast(target)

    def float(self) -> Tensor:
        """Cast to float32."""
        return self.cast(dtypes.float32)

    def zeros_like(self) -> Tensor:
        return self.full_like(0)

    def ones_like(self) -> Tensor:
        return self.full_like(1)

    def full_like(self, value) -> Tensor:
        """A tensor of this shape, dtype and device with one value everywhere."""
        return self._make(expand_node(scalar_node("full_like", value, self.dtype), self.node.shape))


def _node_of(data, dtype: DType | None, device: str) -> Node:
    """The node of what a Tensor is made from."""
    if isinstance(data, Tensor):
        raise DTypeError("Tensor: data is a Tensor already; use cast, to or contiguous")
    if isinstance(data, Node):
        raise DTypeError("Tensor: data is a Node; use numbers, lists, NumPy arrays or Variables")
    kind = scalar_kind(data)
    if kind is not None:
        return scalar_node("Tensor", data, dtype or default_dtype(kind))
    array = data if isinstance(data, np.ndarray) else _array_of(data)
    if dtype is dtypes.bfloat16 and array.dtype.kind in "biuf":
        return runtime.from_numpy(float_to_bfloat16(array.astype(np.float32)), dtype, device)
    own = as_dtype(array.dtype.name)
    if dtype is not None and dtype is not own:
        array, own = array.astype(dtype.numpy), dtype
    return runtime.from_numpy(np.ascontiguousarray(array).reshape(array.shape), own, device)


def _array_of(data) -> np.ndarray:
    """Nested lists of numbers as an array of the default dtype of their kind."""
    if isinstance(data, (list, tuple)) and any(isinstance(v, Tensor) for v in data):
        raise DTypeError("Tensor: data is a list of Tensors; join them with stack or cat")
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"Tensor: data is a ragged list ({error}); all rows need the same length") from None
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"Tensor: data has elements of type {array.dtype}; numbers or bools are needed")
    if isinstance(data, (np.generic, np.ndarray)) or hasattr(data, "__array__"):
        return array
    return array.astype(np.float32) if array.dtype.kind == "f" or not array.size else array
