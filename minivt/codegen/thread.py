"""The thread level of the kernel IR: what one thread of a block does, and how threads share staged memory.

Values are elementwise primitives over CONST, VARIABLE, AXIS (loop and register counters, the thread number, the block
number), LOAD and the rows below; statements are nodes too. `distribute` makes this level out of tiles and C-family
renderers print it. Not for tiles (tile.py) and not for any device's instructions (render).

A staged operand is a ring: `stages` slots of shared memory that a producer role fills by bulk copies and consumer
roles empty. Producer: ACQUIRE (the slot is free), FILL, ADVANCE. Consumer: AWAIT (the slot is full), use, RELEASE,
ADVANCE. A resident operand is a ring of one slot that is filled once.
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minivt import dtypes
from minivt.codegen.layout import SharedTile
from minivt.codegen.target import MatrixInstruction
from minivt.codegen.tile import Param
from minivt.dtypes import DType
from minivt.graph import Node, const, node
from minivt.ops import Op
from minivt.symbolic import TRUE, Size, add, as_index, axis

SLOT_ALIGNMENT = 1024  # bytes; a swizzle permutes within 8 lines of 128 bytes


@dataclass(frozen=True)
class Array:
    """Elements of one thread ('register', indices are known to the compiler) or of the block ('shared')."""
    name: str
    dtype: DType
    size: int
    space: str = "register"


@dataclass(frozen=True)
class Box:
    """What a bulk-copy descriptor describes: a parameter as a strided array, and the rectangle of one copy.

    sizes, box: elements along each dimension, the contiguous one first; strides: elements, of the other dimensions.
    Coordinates outside the sizes read as zero. span: bytes of a row in shared memory, which is swizzled so.
    """
    param: Param
    offset: int
    sizes: tuple[Size, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    span: int


@dataclass(frozen=True)
class Ring:
    """Slots of shared memory at `offset`; each holds all `tiles`, one after the other."""
    name: str
    stages: int
    tiles: tuple[SharedTile, ...]
    offset: int = 0

    @property
    def slot_bytes(self) -> int:
        return sum(_aligned(tile.nbytes) for tile in self.tiles)

    @property
    def copied_bytes(self) -> int:
        return sum(tile.copied_bytes for tile in self.tiles)

    def tile_offset(self, position: int) -> int:
        return sum(_aligned(tile.nbytes) for tile in self.tiles[:position])


def _aligned(nbytes: int) -> int:
    return -(-nbytes // SLOT_ALIGNMENT) * SLOT_ALIGNMENT


@dataclass(frozen=True)
class Multiply:
    """One matrix instruction on accumulator registers from `first`; a is shared or an Array, registers from `a_first`.

    Node sources: whether the old accumulator counts, the address of a (0 for registers), the address of b.
    """
    instruction: MatrixInstruction
    accumulator: Array
    first: int
    a: Array | SharedTile
    a_first: int
    a_contracted: str  # 'rows' or 'columns' of the shared tile
    b: SharedTile
    b_contracted: str


@dataclass(frozen=True)
class RegisterMultiply:
    """One matrix instruction whose operands and accumulator are registers; 16-bit operands are two a word.

    Node sources of its statement: where the accumulator, a and b start in their arrays.
    """
    instruction: MatrixInstruction
    accumulator: Array
    a: Array
    b: Array


@dataclass(frozen=True)
class ThreadProgram:
    """A kernel at thread level.

    grid: for each block counter its expression over BLOCK; blocks: how many; threads: of one block; consumers: of
    them, those that compute when roles exist; boxes: descriptors to pass, in order.
    """
    name: str
    params: tuple[Param, ...]
    variables: tuple[Node, ...]
    boxes: tuple[Box, ...]
    grid: tuple[tuple[Node, Node], ...]
    blocks: Size
    threads: int
    consumers: int
    arrays: tuple[Array, ...]
    rings: tuple[Ring, ...]
    body: Node

    @property
    def dynamic_shared_bytes(self) -> int:
        """Slots and barriers of the rings, with room to align them; shared arrays have space of their own."""
        if not self.rings:
            return 0
        slots = sum(ring.stages * ring.slot_bytes for ring in self.rings)
        return slots + sum(2 * 8 * ring.stages for ring in self.rings) + SLOT_ALIGNMENT


def _row(name: str, group: str, inputs: tuple[str, ...], arg: str, meaning: str) -> Op:
    return Op(name, group, inputs, meaning, arg, shape=None, dtype=None)


# values
ELEMENT = _row("ELEMENT", "thread", ("index",), "the Array", "an element of an array")
VECTOR = _row("VECTOR", "thread", ("index", "valid"), "(Param, width)", "`width` elements from an aligned index")
LANE = _row("LANE", "thread", ("vector",), "the position", "one element of a vector")
PACK = _row("PACK", "thread", ("low", "high"), "", "two 16-bit elements as one word")
SHUFFLE = _row("SHUFFLE", "thread", ("value",), "an integer", "the value of the lane of this one's number XOR arg")
ADDRESS = _row("ADDRESS", "thread", (), "(Ring, position)", "where a tile starts in the ring's current slot")

# statements
WRITE = _row("WRITE", "thread statement", ("index", "value"), "the Array",
             "array[index] = value; a third input, for shared arrays only, says where")
STAGE = _row("STAGE", "thread statement", ("index", "value"), "(the shared Array, tile axes)",
             "for all counters of the axes: array[index] = value; becomes WRITE when tiles are dealt to threads")
PUT = _row("PUT", "thread statement", ("index", "valid", "values"), "the Param",
           "where valid: param[index], param[index + 1], ... = values")
UNROLL = _row("UNROLL", "thread statement", ("body",), "the counters, outermost first", "body for all counter values")
WHEN = _row("WHEN", "thread statement", ("condition", "body"), "", "body where the condition holds")
BARRIER = _row("BARRIER", "thread statement", (), "", "all computing threads of the block meet")
ROLES = _row("ROLES", "thread statement", ("producer", "consumer"), "", "each role runs its own body")
ACQUIRE = _row("ACQUIRE", "thread statement", (), "the Ring", "wait until the slot is free, then announce a filling")
FILL = _row("FILL", "thread statement", ("coordinates",), "(Ring, position, Box)", "bulk copies of a tile to the slot")
AWAIT = _row("AWAIT", "thread statement", (), "the Ring", "wait until the current slot is full")
RELEASE = _row("RELEASE", "thread statement", (), "(Ring, back)", "the slot `back` steps ago is free again")
ADVANCE = _row("ADVANCE", "thread statement", (), "the Ring", "the next slot becomes current")
MULTIPLY = _row("MULTIPLY", "thread statement", ("keep", "a", "b"), "a Multiply", "start accumulator += a * b")
MULTIPLY_REGISTERS = _row("MULTIPLY_REGISTERS", "thread statement", ("accumulator", "a", "b"), "a RegisterMultiply",
                          "accumulator += a * b, finished at once")
OPEN = _row("OPEN", "thread statement", (), "the Arrays", "what follows multiplies into and from these registers")
COMMIT = _row("COMMIT", "thread statement", (), "the accumulators", "the multiplications since OPEN are one group")
SETTLE = _row("SETTLE", "thread statement", (), "(n, the Arrays)",
              "wait until at most n groups run; the arrays are done")

BLOCK_NUMBER = "block"
THREAD_NUMBER = "thread"


def block_number(count: Size) -> Node:
    return axis(BLOCK_NUMBER, count, "block")


def thread_number(count: int) -> Node:
    return axis(THREAD_NUMBER, count, "thread")


def register_counter(key, size: int) -> Node:
    return axis(key, size, "register")


def element(array: Array, index: Size) -> Node:
    return node(ELEMENT, (as_index(index),), array, array.dtype)


def write(array: Array, index: Size, value: Node, valid: Node = TRUE) -> Node:
    return node(WRITE, (as_index(index), value) + (() if valid is TRUE else (valid,)), array, array.dtype)


def put(param: Param, index: Node, values: tuple[Node, ...], valid: Node = TRUE) -> Node:
    return node(PUT, (index, valid, *values), param, param.dtype)


def statement(op: Op, arg=None, *src: Node) -> Node:
    return node(op, src, arg, dtypes.index)


def when(condition: Node, body: Node) -> Node:
    return body if condition is TRUE else statement(WHEN, None, condition, body)


def unroll(counters: tuple[Node, ...], body: Node) -> Node:
    return statement(UNROLL, tuple(counters), body) if counters else body


def address(ring: Ring, position: int, offset: Size = 0) -> Node:
    return add(node(ADDRESS, (), (ring, position), dtypes.index), offset)


def multiply(how: Multiply, keep: bool, a: Node, b: Node) -> Node:
    return statement(MULTIPLY, how, const(keep, dtypes.bool_), a, b)


def register_count(counters: tuple[Node, ...]) -> int:
    return prod(c.arg[1] for c in counters)
