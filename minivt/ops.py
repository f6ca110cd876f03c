"""THE table of primitives: name, group, one-sentence meaning, shape rule, dtype rule.

Everything a model does is a composition of these. What each one computes is defined in NumPy by
backends/reference.py. Not for anything below the graph: the statements of kernels are in codegen/tile.py.

A shape rule takes the input shapes and the node's argument; sizes are ints or bounded symbolic integers.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Callable

from minivt import dtypes
from minivt.errors import DTypeError, ShapeError


@dataclass(frozen=True, eq=False)
class Op:
    """A row of a table of operations. Compared by identity."""
    name: str
    group: str
    inputs: tuple[str, ...] = ()
    meaning: str = ""
    arg: str = ""  # what Node.arg holds
    shape: Callable = field(default=None, repr=False)
    dtype: Callable = field(default=None, repr=False)

    def __repr__(self) -> str:
        return self.name


PRIMITIVES: dict[str, Op] = {}


def primitive(name: str, **row) -> Op:
    PRIMITIVES[name] = Op(name, **row)
    return PRIMITIVES[name]


# --- shape rules -----------------------------------------------------------------------------------------------------

def _reshaped(shapes, arg):
    sizes = (*shapes[0], *arg)
    if all(isinstance(s, int) for s in sizes) and prod(shapes[0]) != prod(arg):
        raise ShapeError(f"reshape: {shapes[0]} holds {prod(shapes[0])} elements, {tuple(arg)} asks {prod(arg)}")
    return tuple(arg)


def _equal_shapes(shapes, arg):
    for shape in shapes[1:]:
        if shape != shapes[0]:
            raise ShapeError(f"elementwise: shapes differ, {shapes[0]} and {shape}; expand them to one shape first")
    return shapes[0]


def _permuted(shapes, arg):
    if sorted(arg) != list(range(len(shapes[0]))):
        raise ShapeError(f"permute: axes {arg} are not an order of the {len(shapes[0])} axes of {shapes[0]}")
    return tuple(shapes[0][a] for a in arg)


def _expanded(shapes, arg):
    if len(arg) != len(shapes[0]) or any(s != t and s != 1 for s, t in zip(shapes[0], arg)):
        raise ShapeError(f"expand: {shapes[0]} does not expand to {tuple(arg)}; only sizes of 1 grow")
    return tuple(arg)


def _padded(shapes, arg):
    from minivt.symbolic import add, as_size  # a layer above, needed for symbolic sizes only
    if len(arg) != len(shapes[0]):
        raise ShapeError(f"pad: {len(arg)} pairs of widths came for the {len(shapes[0])} axes of {shapes[0]}")
    return tuple(as_size(add(size, before, after)) for size, (before, after) in zip(shapes[0], arg))


def _reduced(shapes, arg):
    if not all(0 <= a < len(shapes[0]) for a in arg) or len(set(arg)) != len(arg):
        raise ShapeError(f"reduce: axes {arg} are not distinct axes of {shapes[0]}")
    return tuple(s for a, s in enumerate(shapes[0]) if a not in arg)


# --- dtype rules -----------------------------------------------------------------------------------------------------

def same_as(position: int, allowed: str = "biuf") -> Callable:
    """The dtype of input `position`; every value input from there on must have it too."""
    def rule(types, arg):
        for t in types[position:]:
            if t is not types[position] or t.kind not in allowed:
                kinds = {"b": "bool", "i": "signed", "u": "unsigned", "f": "float"}
                raise DTypeError(f"operands have dtypes {', '.join(map(str, types))}; one shared dtype is needed, of "
                                 f"kind {' or '.join(kinds[k] for k in allowed)}: cast first")
        return types[position]
    return rule


def _boolean(types, arg):
    same_as(0)(types, arg)
    return dtypes.bool_


def _condition(types, arg):
    if types[0] is not dtypes.bool_:
        raise DTypeError(f"where: condition has dtype {types[0]}; bool is needed: compare first")
    return same_as(1)(types, arg)


def _same_size(types, arg):
    if types[0].itemsize != arg.itemsize:
        raise DTypeError(f"bitcast: {types[0]} has {types[0].itemsize} bytes and {arg} has {arg.itemsize}; "
                         "sizes must agree")
    return arg


def _first(types, arg):
    return types[0]


# --- source ----------------------------------------------------------------------------------------------------------
CONST = primitive("CONST", group="source", arg="a Python number",
    meaning="a scalar known when the graph is built", shape=lambda s, a: (), dtype=None)
BUFFER = primitive("BUFFER", group="source", arg="a Buffer: shape, dtype, device, memory",
    meaning="the elements of one allocation, in row-major order", shape=lambda s, a: tuple(a.shape), dtype=None)
VARIABLE = primitive("VARIABLE", group="source", arg="(name, lowest, highest)",
    meaning="an integer chosen at each run, lowest <= value <= highest", shape=lambda s, a: (), dtype=None)
ARANGE = primitive("ARANGE", group="source", arg="the length n",
    meaning="out[i] = i for 0 <= i < n", shape=lambda s, a: (a,), dtype=None)

# --- movement: no arithmetic, only another way to index -------------------------------------------------------------
RESHAPE = primitive("RESHAPE", group="movement", inputs=("x",), arg="the new shape",
    meaning="the same elements in row-major order under another shape", shape=_reshaped, dtype=_first)
PERMUTE = primitive("PERMUTE", group="movement", inputs=("x",), arg="the order of axes",
    meaning="axis a of the result is axis order[a] of x", shape=_permuted, dtype=_first)
EXPAND = primitive("EXPAND", group="movement", inputs=("x",), arg="the new shape",
    meaning="axes of size 1 repeat to the new size", shape=_expanded, dtype=_first)
PAD = primitive("PAD", group="movement", inputs=("x",), arg="((before, after), ...) for each axis",
    meaning="zeros before and after each axis",
    shape=_padded, dtype=_first)
SHRINK = primitive("SHRINK", group="movement", inputs=("x",), arg="((start, size), ...) for each axis",
    meaning="out[i...] = x[start + i...] for 0 <= i < size",
    shape=lambda s, a: tuple(size for _, size in a), dtype=_first)
FLIP = primitive("FLIP", group="movement", inputs=("x",), arg="the axes to reverse",
    meaning="out[..., i, ...] = x[..., size - 1 - i, ...] on the given axes", shape=lambda s, a: s[0], dtype=_first)


# --- elementwise: one output element from the elements at the same place ---------------------------------------------
def _elementwise(name: str, inputs: tuple[str, ...], meaning: str, dtype: Callable, arg: str = "") -> Op:
    return primitive(name, group="elementwise", inputs=inputs, meaning=meaning, arg=arg, shape=_equal_shapes,
                     dtype=dtype)


NEG = _elementwise("NEG", ("x",), "-x; unsigned integers wrap", same_as(0, "iuf"))
SQRT = _elementwise("SQRT", ("x",), "the square root, NaN below zero", same_as(0, "f"))
EXP2 = _elementwise("EXP2", ("x",), "2 to the power x", same_as(0, "f"))
LOG2 = _elementwise("LOG2", ("x",), "the base-2 logarithm, -inf at zero, NaN below", same_as(0, "f"))
SIN = _elementwise("SIN", ("x",), "the sine of x in radians", same_as(0, "f"))
TRUNC = _elementwise("TRUNC", ("x",), "x without its fraction, towards zero", same_as(0, "f"))
CAST = _elementwise("CAST", ("x",), "the nearest value of another dtype; floats to integers truncate",
                    lambda t, a: a, arg="the new dtype")
BITCAST = _elementwise("BITCAST", ("x",), "the same bits read as another dtype of the same size",
                       _same_size, arg="the new dtype")
ADD = _elementwise("ADD", ("x", "y"), "x + y; integers wrap; bools or", same_as(0))
MUL = _elementwise("MUL", ("x", "y"), "x * y; integers wrap; bools and", same_as(0))
DIV = _elementwise("DIV", ("x", "y"), "x / y in floats", same_as(0, "f"))
IDIV = _elementwise("IDIV", ("x", "y"), "the floor of x / y in integers; 0 where y is 0", same_as(0, "iu"))
MOD = _elementwise("MOD", ("x", "y"), "x - floor(x / y) * y, of y's sign; 0 where y is 0", same_as(0, "iu"))
MAXIMUM = _elementwise("MAXIMUM", ("x", "y"), "the larger; NaN if either is NaN", same_as(0))
LT = _elementwise("LT", ("x", "y"), "true where x < y", _boolean)
NE = _elementwise("NE", ("x", "y"), "true where x != y; NaN differs from everything", _boolean)
AND = _elementwise("AND", ("x", "y"), "bitwise and", same_as(0, "biu"))
OR = _elementwise("OR", ("x", "y"), "bitwise or", same_as(0, "biu"))
XOR = _elementwise("XOR", ("x", "y"), "bitwise exclusive or", same_as(0, "biu"))
SHL = _elementwise("SHL", ("x", "y"), "x shifted left by y bits; 0 from the width on", same_as(0, "iu"))
SHR = _elementwise("SHR", ("x", "y"), "x shifted right by y bits, keeping a signed x's sign", same_as(0, "iu"))
WHERE = _elementwise("WHERE", ("condition", "x", "y"), "x where condition holds, else y", _condition)

# --- reduce and loop -------------------------------------------------------------------------------------------------
SUM = primitive("SUM", group="reduce", inputs=("x",), arg="the axes to remove",
    meaning="the sum over some axes; 0 over none; float16 and bfloat16 accumulate in float32",
    shape=_reduced, dtype=same_as(0, "iuf"))
MAX = primitive("MAX", group="reduce", inputs=("x",), arg="the axes to remove",
    meaning="the largest over some axes; NaN if any is NaN; the dtype's lowest value over none",
    shape=_reduced, dtype=same_as(0))
SCAN = primitive("SCAN", group="loop", inputs=("carry", "xs", "captured"), arg="(body, output index)",
    meaning="carry, y = body(carry, x) for each x along axis 0 in order; the final carries and the stacked ys",
    shape=lambda s, a: a[0].output_shapes[a[1]], dtype=lambda t, a: a[0].output_dtypes[a[1]])


# --- index -----------------------------------------------------------------------------------------------------------
def _gathered(shapes, axis):
    source, index = shapes
    return source[:axis] + index + source[axis + 1:]


def _gather_dtype(types, axis):
    if not types[1].is_int:
        raise DTypeError(f"gather: index has dtype {types[1]}; an integer dtype is needed")
    return types[0]


def _scattered(shapes, arg):
    base, index, updates = shapes
    axis = arg[0]
    if updates != base[:axis] + index + base[axis + 1:]:
        raise ShapeError(f"scatter: updates have shape {updates}, base {base} with index {index} on axis {axis} asks "
                         f"{base[:axis] + index + base[axis + 1:]}")
    return base


GATHER = primitive("GATHER", group="index", inputs=("source", "index"), arg="the axis",
    meaning="out[a..., i..., b...] = source[a..., index[i...], b...] along the axis; 0 where the index is out of range",
    shape=_gathered, dtype=_gather_dtype)
SCATTER = primitive("SCATTER", group="index", inputs=("base", "index", "updates"), arg="(axis, 'store' or 'add')",
    meaning="base with updates[a..., i..., b...] stored or added at [a..., index[i...], b...]; out of range drops",
    shape=_scattered, dtype=lambda t, a: t[0])

# --- effect ----------------------------------------------------------------------------------------------------------
COPY = primitive("COPY", group="effect", inputs=("x",), arg="the device",
    meaning="the same elements in another device's memory", shape=lambda s, a: s[0], dtype=_first)
CONTIGUOUS = primitive("CONTIGUOUS", group="effect", inputs=("x",),
    arg="None, or what tells this copy from others of x",
    meaning="the same elements, in memory of their own", shape=lambda s, a: s[0], dtype=_first)


def _assigned(shapes, region):
    sizes = tuple(size for _, size in region)
    if sizes != shapes[1] or len(region) != len(shapes[0]):
        raise ShapeError(f"assign: the value has shape {shapes[1]}, the region of {shapes[0]} asks {sizes}")
    return shapes[0]


ASSIGN = primitive("ASSIGN", group="effect", inputs=("version", "value"), arg="((start, size), ...) for each axis",
    meaning="the next version of a state: the version before with the value stored in the region",
    shape=_assigned, dtype=same_as(0))
CUSTOM = primitive("CUSTOM", group="effect", inputs=("inputs",), arg="(kernel, output index)",
    meaning="an output of a user's own kernel with declared inputs and outputs",
    shape=lambda s, a: tuple(a[0].output_shapes[a[1]]), dtype=lambda t, a: a[0].output_dtypes[a[1]])

ELEMENTWISE = frozenset(op for op in PRIMITIVES.values() if op.group == "elementwise")
MOVEMENT = frozenset(op for op in PRIMITIVES.values() if op.group == "movement")
REDUCE = frozenset((SUM, MAX))
