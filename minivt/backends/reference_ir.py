"""An interpreter of tile programs in NumPy that distrusts them: it computes what a kernel means and reports its races.

Blocks run in a random order. A tile is poison until a SET of its own block fills it, and reading it before is an error.
A LOAD or STORE outside its array, two blocks that store to one element, a block that loads what another stores, and a
STORE whose points disturb one another are errors with the kernel's name and the element. Floating-point sums are in
NumPy's order. Not fast; not for graphs (reference.py) and not for what a target makes of a program (its own layouts,
rings and roles).
"""
from __future__ import annotations

import itertools

import numpy as np

from minivt import ops, symbolic
from minivt.backends.reference import MEANING, apply, lowest, narrow, widen
from minivt.codegen.tile import BLOCK, LOAD, LOOP, READ, SET, STORE, Param, Tile, TileProgram
from minivt.dtypes import DType
from minivt.errors import BoundsError, MinivtError
from minivt.graph import Node, toposort

NOBODY, MANY = -1, -2  # in tables of who touched an element; else a block's number


class KernelError(MinivtError, RuntimeError):
    """A tile program that breaks a rule of the IR: a race between blocks or points, an unwritten tile."""


def poison(shape, dtype: DType) -> np.ndarray:
    """An array in storage form of values that no kernel should let through: NaN, or an odd pattern for integers."""
    if dtype.is_float:
        return narrow(np.full(shape, np.nan, np.float64), dtype)
    return np.full(np.prod(shape, dtype=int) * dtype.itemsize, 0x55, np.uint8).view(dtype.storage).reshape(shape)


def run(program: TileProgram, arrays: list[np.ndarray], variables: dict[str, int], seed: int = 0) -> None:
    """Run every block of the program once, in an order drawn from `seed`, writing into the arrays.

    arrays: one C-contiguous array in storage form a param, in slot order; one array in two slots is an update in place.
    BoundsError for an element outside its array, KernelError for a broken rule.
    """
    launch = _Launch(program, arrays, variables)
    with np.errstate(all="ignore"):
        sizes = [launch.block(NOBODY, {}).number_of(size) for size in map(symbolic.axis_size, program.grid)]
        counters = list(itertools.product(*map(range, sizes)))
        for number in np.random.default_rng(seed).permutation(len(counters)):
            launch.block(int(number), dict(zip(program.grid, counters[number]))).run(program.body)


class _Memory:
    """The flat elements behind a param, and which block has stored and loaded each."""

    def __init__(self, flat: np.ndarray):
        self.flat = flat
        self.stored_by = np.full(flat.size, NOBODY, np.int64)
        self.loaded_by = np.full(flat.size, NOBODY, np.int64)


class _Launch:
    """What the blocks of one run share: arguments, variables, orders of evaluation."""

    def __init__(self, program: TileProgram, arrays: list[np.ndarray], variables: dict[str, int]):
        self.program, self.variables = program, variables
        self.orders: dict[tuple[Node, ...], list[Node]] = {}
        if len(arrays) != len(program.params):
            raise KernelError(f"{program.name}: {len(arrays)} arrays came for {len(program.params)} params; pass one "
                              "each")
        memories: dict[tuple, _Memory] = {}
        self.memories: dict[int, _Memory] = {}
        for param, array in zip(program.params, arrays):
            size = symbolic.evaluate(param.size, variables)
            if array.dtype != param.dtype.storage or not array.flags.c_contiguous or array.size < size:
                raise KernelError(f"{program.name}: param {param.slot} asks {size} contiguous elements of "
                                  f"{param.dtype.storage}, got {array.dtype}{list(array.shape)}; convert it first")
            flat = array.reshape(-1)[:size]
            key = (flat.__array_interface__["data"][0], flat.size, flat.dtype)
            self.memories[param.slot] = memories.setdefault(key, _Memory(flat))

    def block(self, number: int, counters: dict[Node, int]) -> _Block:
        return _Block(self, number, counters)

    def order(self, *roots: Node) -> list[Node]:
        """The nodes below the roots, sources first; found once for all blocks."""
        if roots not in self.orders:
            self.orders[roots] = toposort(*roots)
        return self.orders[roots]


class _Block:
    """One block: its counters, its tiles, and the statements it runs."""

    def __init__(self, launch: _Launch, number: int, counters: dict[Node, int]):
        self.launch, self.number, self.counters = launch, number, dict(counters)
        self.tiles: dict[Tile, np.ndarray] = {}

    # --- statements ---

    def run(self, statement: Node) -> None:
        if statement.op is BLOCK:
            for inner in statement.src:
                self.run(inner)
        elif statement.op is LOOP:
            body, start, stop = statement.src
            for count in range(self.number_of(start), self.number_of(stop)):
                self.counters[statement.arg] = count
                self.run(body)
            self.counters.pop(statement.arg, None)
        elif statement.op is SET:
            self.set(statement)
        elif statement.op is STORE:
            self.store(statement)
        else:
            raise KernelError(f"{self.name}: {statement.op} is no statement; use SET, STORE, LOOP or BLOCK")

    def set(self, statement: Node) -> None:
        how, (value,) = statement.arg, statement.src
        tile, axes = how.tile, (*how.tile.axes, *how.reduce_axes)
        if value.dtype is not tile.dtype or (how.reduce is None and (how.reduce_axes or how.accumulate)):
            raise KernelError(f"{self.name}: SET {tile.name} of {tile.dtype} takes a value of that dtype and reduces "
                              f"only with an op; got {value.dtype}, {how.reduce} over {len(how.reduce_axes)} axes")
        result, = self.values(axes, value)
        if how.reduce is not None:
            start = self.tile(tile) if how.accumulate else np.full(tile.shape, self.identity(how.reduce, tile.dtype))
            combine = np.add if how.reduce is ops.SUM else np.maximum
            result = widen(np.broadcast_to(result, [a.arg[1] for a in axes]), tile.dtype)
            result = combine.reduce(result, tuple(range(len(tile.axes), len(axes))), dtype=result.dtype)
            result = narrow(combine(widen(start, tile.dtype), result), tile.dtype)
        self.tiles[tile] = np.array(np.broadcast_to(result, tile.shape))

    @staticmethod
    def identity(op: ops.Op, dtype: DType) -> np.ndarray:
        return narrow(0 if op is ops.SUM else lowest(widen(np.empty(0, dtype.storage), dtype).dtype), dtype)

    def store(self, statement: Node) -> None:
        (param, axes), (index, valid, value) = statement.arg, statement.src
        if not param.written or value.dtype is not param.dtype:
            raise KernelError(f"{self.name}: STORE of {value.dtype} to param {param.slot}, {param.dtype} and "
                              f"written={param.written}; it must be written and of one dtype")
        shape = tuple(a.arg[1] for a in axes)
        loads: list[tuple] = []
        where, holds, what = (np.broadcast_to(v, shape) for v in self.values(axes, index, valid, value, loads=loads))
        memory = self.launch.memories[param.slot]
        places = self.inside(param, memory, where[holds], "STORE")
        found, counts = np.unique(places, return_counts=True)
        if np.any(counts > 1):
            raise self.conflict("STORE writes twice", param, found[counts > 1][0])
        for other, read_at, read_valid in loads:
            if self.launch.memories[other.slot] is memory:
                read_at = np.broadcast_to(read_at, shape)
                apart = holds & np.broadcast_to(read_valid, shape) & (read_at != where) & np.isin(read_at, found)
                if apart.any():
                    raise self.conflict("one point loads what another point of the same STORE writes,", param,
                                        read_at[apart].flat[0])
        for table, text in ((memory.stored_by, "two blocks store"),
                            (memory.loaded_by, "a block loads, another stores")):
            strange = (table[places] != NOBODY) & (table[places] != self.number)
            if strange.any():
                raise self.conflict(text, param, places[strange][0])
        memory.stored_by[places] = self.number
        memory.flat[places] = what[holds]

    # --- values ---

    def number_of(self, value) -> int:
        """A size, start or stop: a value of no tile counters."""
        return int(self.values((), value)[0]) if isinstance(value, Node) else value

    def values(self, axes: tuple[Node, ...], *roots: Node, loads: list | None = None) -> list[np.ndarray]:
        """Each root at every point of the axes, as arrays that broadcast to their sizes in order.

        `loads`, if given, receives (param, index, valid) of each LOAD on the way.
        """
        known: dict[Node, np.ndarray] = {}
        for current in self.launch.order(*roots):
            src = [known[s] for s in current.src]
            known[current] = self.value(current, src, axes)
            if current.op is LOAD and loads is not None:
                loads.append((current.arg, *src))
        return [known[r] for r in roots]

    def value(self, current: Node, src: list[np.ndarray], axes: tuple[Node, ...]) -> np.ndarray:
        op = current.op
        if op is symbolic.AXIS:
            if current in self.counters:
                return np.asarray(self.counters[current], np.int64)
            if current not in axes:
                raise KernelError(f"{self.name}: axis {current.arg} has no value here; it is neither of the "
                                  "grid, nor of a loop around, nor an axis of the statement")
            return self.along(np.arange(current.arg[1]), (current,), axes)
        if op is READ:
            return self.along(self.tile(current.arg), current.arg.axes, axes)
        if op is LOAD:
            return self.load(current.arg, *src)
        if op is ops.VARIABLE:
            return MEANING[op](current.arg, self.launch.variables)
        if op is not ops.CONST and op not in ops.ELEMENTWISE:
            raise KernelError(f"{self.name}: {op} is no value of a tile program; tiling must have replaced it")
        return apply(op, src, [s.dtype for s in current.src], current.dtype, current.arg)

    def along(self, values: np.ndarray, own: tuple[Node, ...], axes: tuple[Node, ...]) -> np.ndarray:
        """An array over `own` axes with its dimensions moved to their places among `axes`."""
        if not set(own) <= set(axes):
            raise KernelError(f"{self.name}: a tile over {[a.arg for a in own]} is read in a statement over "
                              f"{[a.arg for a in axes]}; every axis of the tile must be there")
        values = values.transpose([own.index(a) for a in axes if a in own])
        return values.reshape([a.arg[1] if a in own else 1 for a in axes])

    def tile(self, tile: Tile) -> np.ndarray:
        if tile not in self.tiles:
            raise KernelError(f"{self.name}: tile {tile.name} is read before any SET of block {self.number} filled it")
        return self.tiles[tile]

    def load(self, param: Param, index: np.ndarray, valid: np.ndarray) -> np.ndarray:
        index, valid = np.broadcast_arrays(index, valid)
        memory = self.launch.memories[param.slot]
        places = self.inside(param, memory, index[valid], "LOAD")
        if self.number != NOBODY:
            strange = (memory.stored_by[places] != NOBODY) & (memory.stored_by[places] != self.number)
            if strange.any():
                raise self.conflict("a block stores, another loads", param, places[strange][0])
            first = memory.loaded_by[places] == NOBODY
            same = memory.loaded_by[places] == self.number
            memory.loaded_by[places] = np.where(first | same, self.number, MANY)
        out = np.zeros(index.shape, param.dtype.storage)
        out[valid] = memory.flat[places]
        return out

    def inside(self, param: Param, memory: _Memory, places: np.ndarray, what: str) -> np.ndarray:
        outside = (places < 0) | (places >= memory.flat.size)
        if outside.any():
            raise BoundsError(f"{self.name}: {what} of param {param.slot} at {places[outside][0]} in block "
                              f"{self.number}, which has {memory.flat.size} elements; its valid mask must exclude this")
        return places

    # --- messages ---

    @property
    def name(self) -> str:
        return self.launch.program.name

    def conflict(self, what: str, param: Param, place) -> KernelError:
        return KernelError(f"{self.name}: {what} element {place} of param {param.slot} (block {self.number})")
