"""An interpreter of thread programs in NumPy that distrusts them: what a GPU block does, at its most unkind.

Roles are interleaved at random. Bulk copies arrive as late as waiting allows, matrix instructions run as late as
SETTLE allows and are emulated from descriptors and register layouts; registers, shared arrays and slots that nobody
filled are poison, and a slot is poison again as soon as it is acquired. Waiting that can never end is an error. The
threads of a group run in lockstep, as one NumPy lane each; a group is a warp, or a warpgroup where matrix
instructions are issued. Not fast; not for tile programs (reference_ir.py).
"""
from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Callable, Iterator

import numpy as np

from minivt import ops, symbolic
from minivt.backends.reference import apply, widen
from minivt.backends.reference_ir import KernelError, poison
from minivt.codegen import thread as t
from minivt.codegen.layout import ACCUMULATORS, OPERANDS, SECONDS, SharedTile, swizzled
from minivt.codegen.tile import BLOCK, LOAD, LOOP
from minivt.errors import BoundsError
from minivt.graph import Node, toposort

GROUP, WARP = 128, 32  # threads that issue matrix instructions together; that run in lockstep otherwise


def run(program: t.ThreadProgram, arrays: list[np.ndarray], variables: dict[str, int], seed: int = 0) -> None:
    """Run every block once, in an order drawn from `seed`, writing into the arrays.

    arrays: one C-contiguous array in storage form a param, in slot order. BoundsError for an element outside its
    array, KernelError for a broken rule of the thread level.
    """
    random = np.random.default_rng(seed)
    flat = {p.slot: a.reshape(-1) for p, a in zip(program.params, arrays)}
    with np.errstate(all="ignore"):
        for number in random.permutation(symbolic.evaluate(program.blocks, variables)):
            _Block(program, flat, variables, int(number), random).run()


class _Ring:
    """What happened to a ring: fills by number, and how far each consumer group has released it."""

    def __init__(self, groups: int):
        self.acquired, self.pending = 0, {}
        self.released = [0] * groups


class _Block:
    """One block: its shared memory and its roles."""

    def __init__(self, program: t.ThreadProgram, flat: dict, variables: dict, number: int, random):
        self.program, self.flat, self.variables, self.random = program, flat, variables, random
        groups = program.consumers // (GROUP if program.rings else WARP)
        slots = sum(r.stages * r.slot_bytes for r in program.rings)
        self.slots = np.full(slots, 0xFF, np.uint8)
        self.rings = {r: _Ring(groups) for r in program.rings}
        self.shared = {a: poison(a.size, a.dtype) for a in program.arrays if a.space == "shared"}
        self.counters = {t.block_number(program.blocks): number}
        self.met, self.groups = 0, groups

    def run(self) -> None:
        body = self.program.body
        size = self.program.consumers // self.groups
        consumer = body.src[1] if body.op is t.ROLES else body
        workers = [_Worker(self, np.arange(g * size, (g + 1) * size), g).run(consumer) for g in range(self.groups)]
        if body.op is t.ROLES:
            workers.append(_Worker(self, np.arange(self.program.consumers, self.program.consumers + 1), None)
                           .run(body.src[0]))
        waiting: list[Callable | None] = [None] * len(workers)
        live = list(range(len(workers)))
        while live:
            ready = [w for w in live if waiting[w] is None or waiting[w]()]
            if not ready:
                raise KernelError(f"{self.program.name}: every role of a block waits for another; a ring is filled, "
                                  "awaited or released in the wrong order")
            chosen = ready[self.random.integers(len(ready))]
            try:
                waiting[chosen] = next(workers[chosen])
            except StopIteration:
                live.remove(chosen)


class _Worker:
    """Threads in lockstep: one consumer group, or the producer's one thread (group None)."""

    def __init__(self, block: _Block, threads: np.ndarray, group: int | None):
        self.block, self.program, self.threads, self.group = block, block.program, threads, group
        self.counters = dict(block.counters)
        self.counters[t.thread_number(self.program.consumers)] = threads
        self.arrays = {a: np.stack([poison(len(threads), a.dtype)] * a.size) for a in self.program.arrays
                       if a.space == "register"}
        self.position = dict.fromkeys(self.program.rings, 0)
        self.issued: list[Callable] = []     # multiplications since OPEN
        self.unsettled: list[list[Callable]] = []
        for axis, expression in self.program.grid:
            self.counters[axis] = self.value(expression)

    # --- statements ---

    def run(self, s: Node) -> Iterator[Callable | None]:
        """A coroutine that yields what it waits for, or None where another role may come in."""
        if s.op is BLOCK:
            for inner in s.src:
                yield from self.run(inner)
        elif s.op is LOOP:
            for count in range(int(self.uniform(s.src[1])), int(self.uniform(s.src[2]))):
                self.counters[s.arg] = count
                yield from self.run(s.src[0])
        elif s.op is t.UNROLL:
            for digits in np.ndindex(*(c.arg[1] for c in s.arg)):
                self.counters.update(zip(s.arg, map(int, digits)))
                yield from self.run(s.src[0])
        elif s.op is t.WHEN:
            if self.uniform(s.src[0]):
                yield from self.run(s.src[1])
        elif s.op is t.BARRIER:
            yield from self.meet()
        elif s.op in (t.ACQUIRE, t.AWAIT):
            yield self.may_fill(s.arg) if s.op is t.ACQUIRE else self.is_full(s.arg)
            self.acquire(s.arg) if s.op is t.ACQUIRE else self.deliver(s.arg)
        else:
            {t.WRITE: self.write, t.PUT: self.put, t.FILL: self.fill, t.RELEASE: self.release, t.ADVANCE: self.advance,
             t.OPEN: self.open, t.MULTIPLY: self.multiply, t.MULTIPLY_REGISTERS: self.multiply_registers,
             t.COMMIT: self.commit, t.SETTLE: self.settle}[s.op](s)
            if s.op is not t.PUT and not (s.op is t.WRITE and s.arg.space == "register"):
                yield None

    def meet(self) -> Iterator[Callable]:
        block = self.block
        block.met += 1
        target = -(-block.met // block.groups) * block.groups
        yield lambda: block.met >= target

    def write(self, s: Node) -> None:
        array, value = s.arg, np.broadcast_to(self.value(s.src[1]), len(self.threads))
        if array.space == "shared":
            where = np.broadcast_to(self.value(s.src[2]), len(self.threads)) if len(s.src) > 2 else slice(None)
            index = np.broadcast_to(self.value(s.src[0]), len(self.threads))
            self.block.shared[array][index[where]] = value[where]
        else:
            self.arrays[array][int(self.uniform(s.src[0]))] = value

    def put(self, s: Node) -> None:
        index, valid = (np.broadcast_to(self.value(x), len(self.threads)) for x in s.src[:2])
        self.aligned(index[valid], len(s.src) - 2)
        for lane, source in enumerate(s.src[2:]):
            value = np.broadcast_to(self.value(source), len(self.threads))
            self.inside(s.arg, index[valid] + lane)
            self.block.flat[s.arg.slot][index[valid] + lane] = value[valid]

    # --- rings ---

    def may_fill(self, ring: t.Ring) -> Callable:
        state = self.block.rings[ring]
        return lambda: min(state.released) + ring.stages > state.acquired

    def acquire(self, ring: t.Ring) -> None:
        state = self.block.rings[ring]
        state.pending[state.acquired] = []
        start = ring.offset + state.acquired % ring.stages * ring.slot_bytes
        self.block.slots[start:start + ring.slot_bytes] = 0xFF
        state.acquired += 1

    def fill(self, s: Node) -> None:
        ring, position, box = s.arg
        origin = [int(self.uniform(c)) for c in s.src]
        state = self.block.rings[ring]
        state.pending[state.acquired - 1].append((position, box, origin))

    def is_full(self, ring: t.Ring) -> Callable:
        state, number = self.block.rings[ring], self.position[ring]
        return lambda: state.acquired > number and (
            number not in state.pending or len(state.pending[number]) == len(ring.tiles))

    def deliver(self, ring: t.Ring) -> None:
        """The copies of the awaited filling arrive, unless another group had them come already."""
        number = self.position[ring]
        start = ring.offset + number % ring.stages * ring.slot_bytes
        for position, box, origin in self.block.rings[ring].pending.pop(number, ()):
            self.copy(box, origin, ring.tiles[position], start + ring.tile_offset(position))

    def copy(self, box: t.Box, origin: list[int], tile: SharedTile, start: int) -> None:
        sizes = [symbolic.evaluate(s, self.block.variables) for s in box.sizes]
        if (box.box[0] * tile.panels, prod(box.box[1:])) != (tile.columns, tile.rows):
            raise KernelError(f"{self.program.name}: a copy's box {box.box} does not make a tile of {tile}")
        flat = self.block.flat[box.param.slot]
        rows, columns = np.divmod(np.arange(tile.rows * tile.columns), tile.columns)
        places = [origin[0] + columns, origin[1] + rows, *(np.full_like(rows, o) for o in origin[2:])]
        inside = np.all([(0 <= p) & (p < n) for p, n in zip(places, sizes)], axis=0)
        index = box.offset + sum(p * step for p, step in zip(places, (1, *box.strides)))
        self.inside(box.param, index[inside])
        values = np.zeros(rows.size, flat.dtype)
        values[inside] = flat[index[inside]]
        panel, column = np.divmod(columns, tile.panel_columns)
        offsets = swizzled(panel * tile.panel_bytes + rows * tile.span + column * tile.itemsize, tile.span)
        self.block.slots[start + offsets[:, None] + np.arange(tile.itemsize)] = \
            values.view(np.uint8).reshape(-1, tile.itemsize)

    def release(self, s: Node) -> None:
        ring, back = s.arg
        state = self.block.rings[ring]
        if state.released[self.group] != self.position[ring] - back:
            raise KernelError(f"{self.program.name}: {ring.name} is released out of order")
        state.released[self.group] += 1

    def advance(self, s: Node) -> None:
        self.position[s.arg] += 1

    # --- matrix instructions ---

    def open(self, s: Node) -> None:
        self.issued = []

    def multiply(self, s: Node) -> None:
        how: t.Multiply = s.arg
        keep, a, b = bool(self.uniform(s.src[0])), int(self.uniform(s.src[1])), int(self.uniform(s.src[2]))
        registers = self.arrays[how.a][how.a_first:how.a_first + 4].copy() if isinstance(how.a, t.Array) else None
        self.issued.append(lambda: self.product(how, keep, a, b, registers))

    def multiply_registers(self, s: Node) -> None:
        """sums += a b within a warp, with every element found through the layouts."""
        how, i = s.arg, s.arg.instruction
        first, a, b = (int(self.uniform(x)) for x in s.src)
        sides = []
        for array, start, layouts, free, size in ((how.a, a, OPERANDS, "m", i.m), (how.b, b, SECONDS, "n", i.n)):
            layout = layouts[i.name](i.k)
            words = self.arrays[array][start:start + layout.size // 2].copy()
            sides.append(self.gather(words.view(i.a.storage), layout, (size, i.k), i.a, free))
        m, n = places(ACCUMULATORS[i.name](i.n), "m", "n")
        self.arrays[how.accumulator][first:first + m.shape[0]] += (
            sides[0].astype(np.float32) @ sides[1].astype(np.float32).T)[m, n]

    def commit(self, s: Node) -> None:
        self.unsettled.append(self.issued)
        self.issued = []

    def settle(self, s: Node) -> None:
        while len(self.unsettled) > s.arg[0]:
            for instruction in self.unsettled.pop(0):
                instruction()

    def product(self, how: t.Multiply, keep: bool, a: int, b: int, registers: np.ndarray | None) -> None:
        """One instruction: sums[first...] = keep * sums + a b, with every element found through the layouts."""
        i = how.instruction
        if registers is None:
            left = self.matrix(how.a, how.a_contracted, a, i.m, i.k, i.a)
        else:
            left = self.gather(registers.view(i.a.storage), OPERANDS[i.name](i.k), (i.m, i.k), i.a)
        right = self.matrix(how.b, how.b_contracted, b, i.n, i.k, i.b)
        result = left.astype(np.float32) @ right.astype(np.float32).T
        m, n = places(ACCUMULATORS[i.name](i.n), "m", "n")
        sums = self.arrays[how.accumulator][how.first:how.first + m.shape[0]]
        sums[:] = result[m, n] + (sums if keep else 0)

    def matrix(self, tile: SharedTile, contracted: str, start: int, free: int, k: int, dtype) -> np.ndarray:
        """(free, k) elements, as a matrix descriptor addresses them."""
        leading, stride = tile.descriptor(contracted)
        x, y = np.meshgrid(np.arange(free), np.arange(k), indexing="ij")
        if contracted == "columns":
            offsets = x // 8 * stride + x % 8 * tile.span + y * tile.itemsize
        else:
            panel, inside = np.divmod(x, tile.panel_columns)
            offsets = panel * leading + y // 8 * stride + y % 8 * tile.span + inside * tile.itemsize
        where = swizzled(start + offsets, tile.span)
        data = self.block.slots[where[..., None] + np.arange(tile.itemsize)]
        return widen(np.ascontiguousarray(data).view(dtype.storage)[..., 0], dtype)

    def gather(self, halves: np.ndarray, layout, shape: tuple[int, int], dtype, free: str = "m") -> np.ndarray:
        """The matrix that an operand's registers hold; a register is two neighbouring elements."""
        m, k = places(layout, free, "k")
        matrix = np.zeros(shape, dtype.storage)
        elements = halves.reshape(len(halves), len(self.threads), 2).transpose(0, 2, 1).reshape(m.shape)
        matrix[m, k] = elements
        return widen(matrix, dtype)

    # --- values ---

    def uniform(self, value: Node):
        """A value that must be the same in all threads of the group."""
        found = np.unique(self.value(value))
        if found.size != 1:
            raise KernelError(f"{self.program.name}: {value.op} differs between threads where all must agree")
        return found[0]

    def value(self, root: Node) -> np.ndarray:
        known: dict[Node, np.ndarray] = {}
        for n in toposort(root):
            known[n] = self.node(n, [known[s] for s in n.src])
        return known[root]

    def node(self, n: Node, src: list[np.ndarray]) -> np.ndarray:
        if n.op is symbolic.AXIS:
            return np.asarray(self.counters[n], np.int64)
        if n.op is ops.VARIABLE:
            return np.asarray(self.block.variables[n.arg[0]], np.int64)
        if n.op is t.ELEMENT:
            if n.arg.space == "shared":
                return self.block.shared[n.arg][src[0]]
            return self.arrays[n.arg][int(self.uniform(n.src[0]))].copy()
        if n.op is t.ADDRESS:
            ring, position = n.arg
            slot = self.position[ring] % ring.stages
            return np.asarray(ring.offset + slot * ring.slot_bytes + ring.tile_offset(position), np.int64)
        if n.op in (LOAD, t.VECTOR):
            param, width = (n.arg, 1) if n.op is LOAD else n.arg
            return self.load(param, *np.broadcast_arrays(*src, self.threads)[:2], width)
        if n.op is t.LANE:
            return src[0][n.arg]
        if n.op is t.SHUFFLE:
            lanes = np.broadcast_to(src[0], len(self.threads))
            return lanes[np.arange(len(lanes)) ^ n.arg]
        if n.op is t.PACK:
            low, high = (np.asarray(s).view(np.uint16).astype(np.uint32) for s in src)
            return low | high << 16
        return apply(n.op, src, [s.dtype for s in n.src], n.dtype, n.arg)

    def load(self, param, index: np.ndarray, valid: np.ndarray, width: int) -> np.ndarray:
        self.aligned(index[valid], width)
        out = np.zeros((width, *index.shape), param.dtype.storage)
        for lane in range(width):
            self.inside(param, index[valid] + lane)
            out[lane][valid] = self.block.flat[param.slot][index[valid] + lane]
        return out if width > 1 else out[0]

    def aligned(self, index: np.ndarray, width: int) -> None:
        if np.any(index % width):
            raise KernelError(f"{self.program.name}: a vector of {width} elements starts at "
                              f"{index[index % width > 0][0]}; it must start at a multiple")

    def inside(self, param, index: np.ndarray) -> None:
        size = self.block.flat[param.slot].size
        if np.any((index < 0) | (index >= size)):
            raise BoundsError(f"{self.program.name}: param {param.slot} has {size} elements; {index.min()} to "
                              f"{index.max()} were asked for; a mask must exclude this")


@lru_cache(maxsize=64)
def places(layout, first: str, second: str) -> tuple[np.ndarray, np.ndarray]:
    """(register, thread) arrays of the coordinates along two axes."""
    found = [[layout(thread, register) for thread in range(layout.group)] for register in range(layout.size)]
    return tuple(np.array([[c.get(x, 0) for c in row] for row in found]) for x in (first, second))


