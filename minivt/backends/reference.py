"""What each primitive means, in NumPy: the definition that every other backend is held to.

One short function a primitive, in the table MEANING. Arrays are held as the dtype's storage type; arithmetic on
float16 and bfloat16 is done in float32 and rounded once per primitive, as compiled code does it. Where this departs
from NumPy, docs/numerics.md says so. Not fast, and not for kernels (reference_ir.py interprets those).
"""
from __future__ import annotations

from typing import Callable

import numpy as np

from minivt import dtypes, ops, symbolic
from minivt.dtypes import DType
from minivt.errors import BoundsError
from minivt.graph import Node, toposort
from minivt.scan import ScanBody

MEANING: dict[ops.Op, Callable] = {}
WIDENED: set[ops.Op] = set()  # arithmetic: float16 and bfloat16 come in as float32, the result is rounded afterwards
HALF = (dtypes.float16, dtypes.bfloat16)


def meaning(*row: ops.Op, widened: bool = False):
    """Register the meaning of a primitive: a function of its input arrays, then its argument if it has one."""
    def register(function):
        for op in row:
            MEANING[op] = function
            if widened:
                WIDENED.add(op)
        return function
    return register


# --- element types ---------------------------------------------------------------------------------------------------

def widen(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Storage to the type arithmetic is done in: float32 for float16 and bfloat16, else the type itself."""
    if dtype is dtypes.bfloat16:
        return np.asarray(dtypes.bfloat16_to_float(values))
    return values.astype(np.float32) if dtype is dtypes.float16 else values


def narrow(values, dtype: DType) -> np.ndarray:
    """The storage of `dtype` nearest to what arithmetic gave; integers wrap."""
    values = np.asarray(values)
    if dtype in HALF:
        values = values.astype(np.float32)
    if dtype is dtypes.bfloat16:
        return dtypes.float_to_bfloat16(values)
    return values.astype(dtype.storage, copy=False)


def lowest(storage: np.dtype):
    """The identity of MAX."""
    return -np.inf if storage.kind == "f" else False if storage.kind == "b" else np.iinfo(storage).min


def apply(op: ops.Op, inputs: list[np.ndarray], types: list[DType], dtype: DType, arg=None) -> np.ndarray:
    """A primitive of one output on arrays in storage form; elementwise ones broadcast."""
    rest = () if arg is None else (arg,)
    if op in WIDENED:
        return narrow(MEANING[op](*map(widen, inputs, types), *rest), dtype)
    return np.asarray(MEANING[op](*inputs, *rest))


# --- source ----------------------------------------------------------------------------------------------------------
@meaning(ops.CONST, widened=True)
def _(value):
    return np.asarray(value)


@meaning(ops.ARANGE, widened=True)
def _(length):
    return np.arange(length)


# --- movement --------------------------------------------------------------------------------------------------------
@meaning(ops.RESHAPE)
def _(x, shape):
    return x.reshape(shape)


@meaning(ops.PERMUTE)
def _(x, order):
    return x.transpose(order)


@meaning(ops.EXPAND)
def _(x, shape):
    return np.broadcast_to(x, shape)


@meaning(ops.PAD)
def _(x, margins):
    out = np.zeros([before + n + after for n, (before, after) in zip(x.shape, margins)], x.dtype)
    out[tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, margins))] = x
    return out


@meaning(ops.SHRINK)
def _(x, region):
    return x[_slices(x.shape, region)]


@meaning(ops.FLIP)
def _(x, axes):
    return np.flip(x, axes)


def _slices(shape, region) -> tuple[slice, ...]:
    for n, (start, size) in zip(shape, region):
        if start < 0 or size < 0 or start + size > n:
            raise BoundsError(f"region: {size} elements from {start} on do not lie in an axis of size {n}; bound the "
                              "start and the size")
    return tuple(slice(start, start + size) for start, size in region)


# --- elementwise -----------------------------------------------------------------------------------------------------
for _op, _function in {
    ops.NEG: np.negative, ops.SQRT: np.sqrt, ops.EXP2: np.exp2, ops.LOG2: np.log2, ops.SIN: np.sin, ops.TRUNC: np.trunc,
    ops.ADD: np.add, ops.MUL: np.multiply, ops.DIV: np.divide, ops.IDIV: np.floor_divide, ops.MOD: np.remainder,
    ops.MAXIMUM: np.maximum, ops.LT: np.less, ops.NE: np.not_equal,
    ops.AND: np.bitwise_and, ops.OR: np.bitwise_or, ops.XOR: np.bitwise_xor,
}.items():
    meaning(_op, widened=True)(_function)


@meaning(ops.SHL)
def _(x, count):
    width = 8 * x.dtype.itemsize
    inside = (count >= 0) & (count < width)
    return np.where(inside, np.left_shift(x, np.where(inside, count, 0)), x.dtype.type(0))


@meaning(ops.SHR)
def _(x, count):
    width = 8 * x.dtype.itemsize
    inside = (count >= 0) & (count < width)
    return np.right_shift(x, np.where(inside, count, x.dtype.type(width - 1))) * (inside | (x < 0))


@meaning(ops.WHERE)
def _(condition, x, y):
    return np.where(condition, x, y)


@meaning(ops.CAST, widened=True)
def _(x, dtype):
    if dtype is dtypes.bool_:
        return x != 0
    return _truncate(x, dtype.numpy) if x.dtype.kind == "f" and dtype.is_int else x


def _truncate(x: np.ndarray, integer: np.dtype) -> np.ndarray:
    """Towards zero; beyond the ends of the integer type its ends, 0 for NaN."""
    info = np.iinfo(integer)
    x = np.trunc(x)
    below, above = x <= float(info.min), x >= float(info.max + 1)
    inside = np.where(below | above | np.isnan(x), 0, x).astype(integer)
    return np.where(above, integer.type(info.max), np.where(below, integer.type(info.min), inside))


@meaning(ops.BITCAST)
def _(x, dtype):
    return np.asarray(x).view(dtype.storage)


# --- reduce and loop -------------------------------------------------------------------------------------------------
@meaning(ops.SUM, widened=True)
def _(x, axes):
    return np.add.reduce(x, axes)


@meaning(ops.MAX, widened=True)
def _(x, axes):
    return np.maximum.reduce(x, axes, initial=lowest(x.dtype))


@meaning(ops.SCAN)
def _(inputs, body: ScanBody, variables):
    """All outputs: the last carries, then the stacked ys."""
    n, m = body.carries, body.carries + len(body.x_placeholders)
    carry, xs, captured = inputs[:n], inputs[n:m], inputs[m:]
    stacks = [np.empty((symbolic.evaluate(body.length, variables), *_sizes(y.shape, variables)), y.dtype.storage)
              for y in body.outputs[n:]]
    for t in range(symbolic.evaluate(body.length, variables)):
        step = dict(zip((p.arg for p in body.placeholders), (*carry, *(x[t] for x in xs), *captured)))
        results = evaluate(list(body.outputs), variables, step.__getitem__)
        carry = results[:n]
        for stack, y in zip(stacks, results[n:]):
            stack[t] = y
    return [*carry, *stacks]


# --- index -----------------------------------------------------------------------------------------------------------
@meaning(ops.GATHER)
def _(source, index, axis):
    size = source.shape[axis]
    index = index.astype(np.int64)
    zeros = np.zeros((*source.shape[:axis], 1, *source.shape[axis + 1:]), source.dtype)
    return np.take(np.concatenate((source, zeros), axis), np.where((index >= 0) & (index < size), index, size), axis)


@meaning(ops.SCATTER, widened=True)
def _(base, index, updates, arg):
    axis, how = arg
    out = base.copy()
    rows = np.moveaxis(out, axis, 0)
    index, places = index.astype(np.int64).reshape(-1), tuple(range(axis, axis + index.ndim))
    updates = np.moveaxis(updates, places, range(len(places))).reshape(len(index), *rows.shape[1:])
    inside = (index >= 0) & (index < len(rows))
    index, updates = index[inside], updates[inside]
    if how == "add":
        np.add.at(rows, index, updates)
        return out
    found, counts = np.unique(index, return_counts=True)
    if np.any(counts > 1):
        raise BoundsError(f"scatter: index {found[counts > 1][0]} is stored twice, so the result would depend on the "
                          "order; make the indices distinct or add instead")
    rows[index] = updates
    return out


# --- effect ----------------------------------------------------------------------------------------------------------
@meaning(ops.COPY)
def _(x, device):
    return x


@meaning(ops.CONTIGUOUS)
def _(x, number=None):  # the scheduler numbers the copies that it must keep apart
    return x


@meaning(ops.ASSIGN)
def _(version, value, region):
    out = version.copy()
    out[_slices(version.shape, region)] = value
    return out


@meaning(ops.CUSTOM)
def _(inputs, kernel):
    """All outputs: what the kernel's `meaning` returns on the arrays in storage form, one for each declared output."""
    return list(kernel.meaning(*inputs))


@meaning(ops.BUFFER)
def _(buffer, values):
    if values.size != np.prod(buffer.shape, dtype=int):
        raise BoundsError(f"buffer: {values.size} elements came for {buffer!r}; give as many as its shape asks")
    return values.reshape(buffer.shape)


@meaning(ops.VARIABLE)
def _(bounds, values):
    name, low, high = bounds
    if name not in values:
        raise BoundsError(f"variable: {name} has no value; give one from {low} to {high}")
    if not low <= values[name] <= high:
        raise BoundsError(f"variable: {name} is {values[name]}; {low} to {high} is allowed")
    return np.asarray(values[name], np.int64)


# --- graphs ----------------------------------------------------------------------------------------------------------

def _sizes(value, variables: dict[str, int]):
    """An argument with every symbolic size in it replaced by its integer."""
    if isinstance(value, tuple):
        return tuple(_sizes(v, variables) for v in value)
    return symbolic.evaluate(value, variables) if isinstance(value, Node) else value


def evaluate(roots: list[Node], variables: dict[str, int], buffers: Callable) -> list[np.ndarray]:
    """The values of the roots, each a new or read-only view of an array in its dtype's storage type.

    variables: the value of each VARIABLE by name; buffers: from a BUFFER node's argument to the array that holds it.
    BoundsError where a variable, a region or a stored index is out of bounds. Intermediates are dropped after their
    last use.
    """
    order = toposort(*roots)
    uses = {current: 0 for current in order}
    for read in (*roots, *(s for current in order for s in current.src)):
        uses[read] += 1
    values: dict[Node, np.ndarray] = {}
    shared: dict[tuple, list[np.ndarray]] = {}  # all outputs of a SCAN or CUSTOM by kernel and sources
    with np.errstate(all="ignore"):
        for current in order:
            values[current] = _value(current, [values[s] for s in current.src], variables, buffers, shared)
            for s in current.src:
                uses[s] -= 1
                if not uses[s]:
                    del values[s]
    return [values[r] for r in roots]


def _value(current: Node, inputs: list, variables: dict, buffers: Callable, shared: dict) -> np.ndarray:
    op, arg = current.op, current.arg
    if op is ops.BUFFER:
        return MEANING[op](arg, np.asarray(buffers(arg)))
    if op is ops.VARIABLE:
        return MEANING[op](arg, variables)
    if op in (ops.SCAN, ops.CUSTOM):
        key = (arg[0], current.src)
        if key not in shared:
            rest = (variables,) if op is ops.SCAN else ()
            shared[key] = MEANING[op](inputs, arg[0], *rest)
        return shared[key][arg[1]]
    return apply(op, inputs, [s.dtype for s in current.src], current.dtype, _sizes(arg, variables))
