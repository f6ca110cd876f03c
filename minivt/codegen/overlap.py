"""Which loops can multiply and compute at the same time: the schedule of attention's two products, found by structure.

A loop that starts with a product of staged operands alone (scores) and accumulates another product of what it computed
from them (weights times values) need not finish the second before it starts the next first: the statements between
run while the matrix unit works on the second product. Not for issuing or waiting (distribute).

before:  LOOP k: s = Q K[k]; p = f(s); o = o * a; o += p V[k]
after:   s = Q K[0]; p = f(s); o = o * a
         LOOP k from 1: start s = Q K[k] and o += p V[k - 1]; once s is there: p' = f(s); once o is there: o = o * a
         o += p V[last]
"""
from __future__ import annotations

from dataclasses import dataclass

from minivt.codegen.pipeline import Feed
from minivt.codegen.stage import Operand, Product
from minivt.codegen.tile import READ, SET, Tile
from minivt.graph import Node, walk


@dataclass(frozen=True)
class Overlap:
    """A loop body in parts: the fresh product, what does not touch the second sum, what does, the second product."""
    first: Node
    free: tuple[Node, ...]
    bound: tuple[Node, ...]
    last: Node


def overlap(body: tuple[Node, ...], products: dict[Node, Product], feed: Feed) -> Overlap | None:
    """The loop body in parts that may overlap; None where its dependences forbid it."""
    found = [s for s in body if s in products]
    if len(found) != 2 or found[0] is not body[0] or any(s.op is not SET for s in body):
        return None
    first, last = found
    fresh = isinstance(products[first].a, Operand) and not first.arg.accumulate
    if not fresh or isinstance(products[last].a, Operand) or not last.arg.accumulate:
        return None
    if not (feed.group[first].streamed and feed.group[last].streamed):
        return None
    total = last.arg.tile
    others = [s for s in body if s not in found]
    bound = tuple(s for s in others if total in reads(s) or s.arg.tile is total)
    free = tuple(s for s in others if s not in bound)
    delayed = {s: reads(s) for s in (*bound, last)}
    for place, s in enumerate(body):
        later = {x.arg.tile for x in body[place + 1:] if x in free}
        if s in delayed and (delayed[s] - {total}) & later:
            return None  # a statement that would now run before this one overwrites what it reads
    if any(s.arg.tile is not total for s in bound) or body.index(last) < max(map(body.index, bound), default=0):
        return None
    return Overlap(first, free, bound, last)


def reads(statement: Node) -> set[Tile]:
    """The tiles whose old values a SET needs."""
    found = {n.arg for n in walk(statement.src[0]) if n.op is READ}
    return found | {statement.arg.tile} if statement.arg.accumulate else found


