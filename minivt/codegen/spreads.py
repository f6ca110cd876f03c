"""Deals every tile axis of a block to threads and registers, once for all tiles that have the axis.

Because an axis has one spread in the whole block, an element that one statement wrote is in the thread and register
where the next one reads it, a row statistic is automatically a slice of the tile's layout, and a reduction is a loop
over registers and then an exchange between the threads of its axis. Matrix instructions dictate the spreads of their
axes; the others are dealt by the work that each choice leaves to a thread. Not for statements (distribute).
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from minivt.codegen import thread as t
from minivt.codegen.layout import ACCUMULATORS, OPERANDS, Spread
from minivt.codegen.panels import Panel, PanelProduct
from minivt.codegen.stage import Operand, Product, statements
from minivt.codegen.tile import LOAD, SET, STORE, contraction, tile_axes
from minivt.graph import Node, walk
from minivt.symbolic import linear

THREADS, LANES = 256, 32          # of a block without matrix instructions; of a warp
COMPUTING_THREADS = 256           # that share a block's rows in matrix products; more leave too few registers to each
EXCHANGE_COST = 4                 # of one step of a reduction between threads, in steps within a thread


@dataclass(frozen=True)
class Use:
    """The axes of one statement: of its points, those that it reduces, and those along which memory is contiguous.

    factors: of a contraction, the axes of either side, whose elements a thread reads once for all that it multiplies.
    """
    points: tuple[Node, ...]
    reduced: tuple[Node, ...]
    contiguous: tuple[Node, ...]
    itemsize: int
    factors: tuple[frozenset[Node], ...] = ()

    @property
    def axes(self) -> tuple[Node, ...]:
        return self.points + self.reduced


def is_staged(operand) -> bool:
    return isinstance(operand, (Operand, Panel))


def matrix_spreads(products: list[Product | PanelProduct]) -> tuple[dict[Node, Spread], int] | None:
    """Spreads of the axes of matrix products and the number of threads; None where two products disagree.

    An axis that one product yields as columns and the next contracts (scores, then weights times values) must lie as
    the first leaves it and as the second takes it.
    """
    spreads: dict[Node, Spread] = {}

    def agree(axis: Node, spread: Spread) -> bool:
        return spreads.setdefault(axis, spread).same_places(spread)

    threads = 0
    for p in products:
        rows, columns = -(-p.m.arg[1] // p.instruction.m), -(-p.n.arg[1] // p.instruction.n)
        groups = min(rows & -rows, COMPUTING_THREADS // p.instruction.group)  # a power of 2 that divides the rows
        threads = groups * p.instruction.group
        result = ACCUMULATORS[p.instruction.name](p.instruction.n).rename({"m": p.m, "n": p.n})
        result = result.repeat(p.n, registers=columns).repeat(p.m, threads=groups, registers=rows // groups)
        if not agree(p.m, result.spread(p.m)) or not agree(p.n, result.spread(p.n)):
            return None
        if not is_staged(p.a):
            operand = OPERANDS[p.instruction.name](p.k.arg[1]).rename({"m": p.m, "k": p.k})
            if rows != groups or not agree(p.k, operand.spread(p.k)):
                return None
    return spreads, threads


def uses(body: Node, products: dict[Node, Product | PanelProduct]) -> list[Use]:
    """What each statement asks of its axes; a matrix product asks nothing beyond its first operand's registers."""
    found = []
    for s in statements(body):
        if s in products:
            value = products[s].a
            if not is_staged(value):
                found.append(_use((products[s].m, products[s].k), (), (value,)))
        elif s.op is SET:
            use, how = _use(s.arg.tile.axes, s.arg.reduce_axes, s.src), contraction(s)
            found.append(replace(use, factors=(tile_axes(how.a), tile_axes(how.b))) if how else use)
        elif s.op is t.STAGE:
            found.append(_use(s.arg[1], (), s.src[1:]))
        elif s.op is STORE:
            found.append(_use(s.arg[1], (), s.src[1:], s))
    return found


def _use(points: tuple, reduced: tuple, values: tuple[Node, ...], store: Node | None = None) -> Use:
    axes, contiguous, itemsize = points + reduced, [], 1
    accesses = [n for n in walk(*values) if n.op is LOAD] + ([store] if store else [])
    for access in accesses:
        for atom, step in linear(access.src[0])[0]:
            if step == 1 and atom in axes:
                contiguous.append(atom)
                itemsize = max(itemsize, access.dtype.itemsize)
    return Use(tuple(points), tuple(reduced), tuple(contiguous), itemsize)


def deal(found: list[Use], spreads: dict[Node, Spread], threads: int) -> dict[Node, Spread]:
    """Spreads of the axes that no matrix instruction fixed.

    Thread bits go, one at a time, to the axis that leaves the least work; axes that never meet in one statement may
    share bits. The most contiguous axis gets the lowest bits (neighbouring lanes, neighbouring addresses) and vectors,
    then reduced axes, since lanes of one warp exchange fastest.
    """
    free = [x for x in dict.fromkeys(x for use in found for x in use.axes) if x not in spreads]
    contiguity = {x: sum(use.contiguous.count(x) for use in found) for x in free}
    reduced = {x: any(x in use.reduced for use in found) for x in free}
    bits = dict.fromkeys(free, 0)

    def taken(use: Use) -> int:
        return sum(bits[x] if x in bits else _digits(spreads[x]).bit_length() - 1 for x in use.axes)

    def cost(trial: dict[Node, int]) -> float:
        return sum(_work(use, trial, spreads) for use in found)

    limit = threads.bit_length() - 1
    while True:
        open_axes = [x for x in free if 1 << bits[x] < x.arg[1]
                     and all(taken(use) < limit for use in found if x in use.axes)]
        if not open_axes:
            break
        costs = {x: cost({**bits, x: bits[x] + 1}) for x in open_axes}
        best = min(open_axes, key=lambda x: (costs[x], -contiguity[x] if bits[x] < 5 else 0, reduced[x]))
        if costs[best] >= cost(bits):
            break
        bits[best] += 1
    done = dict(spreads)
    for x in sorted(free, key=lambda x: (-contiguity[x], not reduced[x])):
        neighbours = [done[y] for use in found if x in use.axes for y in use.axes if y in done]
        done[x] = _place(x, bits[x], neighbours, _vector(x, bits[x], found), limit)
    return done


def _digits(spread: Spread) -> int:
    return prod(size for _, size, _ in spread.threads)


def _work(use: Use, bits: dict[Node, int], spreads: dict[Node, Spread]) -> float:
    """Steps of one thread: its points, and the exchanges of its reductions."""
    def registers(x: Node) -> int:
        return -(-x.arg[1] >> bits[x]) if x in bits else spreads[x].register_count
    exchanges = sum(bits.get(x, 0) for x in use.reduced) * prod(map(registers, use.points))
    reads = sum(prod(map(registers, axes)) for axes in use.factors)
    return prod(map(registers, use.axes)) + reads + exchanges * EXCHANGE_COST


def _vector(x: Node, bits: int, found: list[Use]) -> int:
    """Neighbouring elements that one thread holds: a 16-byte access where memory is contiguous along the axis."""
    itemsize = max((use.itemsize for use in found if x in use.contiguous), default=0)
    if not itemsize:
        return 1
    width = 16 // itemsize
    while width > 1 and (x.arg[1] % width or width << bits > x.arg[1]):
        width //= 2
    return max(1, width)


def _place(x: Node, bits: int, neighbours: list[Spread], vector: int, limit: int) -> Spread:
    """The lowest thread bits that no neighbour uses, steps above the vector, then the registers that remain."""
    threads, step, divisor = [], vector, 1
    while len(threads) < bits and divisor < 1 << limit:
        bit = Spread(((divisor, 2, 0),))
        if not any(bit.threads_overlap(other) for other in neighbours):
            threads.append((divisor, 2, step))
            step *= 2
        divisor *= 2
    rest = -(-x.arg[1] // step)
    registers = ((0, vector, 1),) if vector > 1 else ()
    return Spread(_merged(threads), registers + (((2, rest, step),) if rest > 1 else ()))


def _merged(threads: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """before:  (1, 2, 4), (2, 2, 8)    after:   (1, 4, 4)"""
    joined: list[tuple[int, int, int]] = []
    for divisor, size, step in threads:
        if joined and joined[-1][0] * joined[-1][1] == divisor and joined[-1][2] * joined[-1][1] == step:
            joined[-1] = (joined[-1][0], joined[-1][1] * size, joined[-1][2])
        else:
            joined.append((divisor, size, step))
    return tuple(joined)


def block_threads(found: list[Use]) -> int:
    """Threads of a block without matrix instructions: enough for a few elements each of the largest statement."""
    largest = max((prod(x.arg[1] for x in use.axes) for use in found), default=1)
    threads = LANES
    while threads < THREADS and threads * 4 < largest:
        threads *= 2
    return threads


def unused_digits(spreads: list[Spread], threads: int) -> list[tuple[int, int]]:
    """The (divisor, size) digits of the thread number on which none of these spreads depends."""
    gaps, position = [], 1
    for divisor, size in sorted((d, n) for s in spreads for d, n, _ in s.threads):
        if divisor > position:
            gaps.append((position, divisor // position))
        position = divisor * size
    if position < threads:
        gaps.append((position, threads // position))
    return gaps
