"""Rings of staged operands: which products share a slot, how many slots fit, and what the producer role does.

Neighbouring products whose operands are all staged share one slot of one ring (gate and up projections read their
common operand once). An operand that no loop counter moves is resident: a ring of one slot, filled once. Not for
waiting and releasing, which distribute puts beside the products.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from minivt.codegen import thread as t
from minivt.codegen.stage import Operand, Product
from minivt.codegen.target import Target
from minivt.codegen.tile import BLOCK, LOOP, block, loop
from minivt.graph import Node, walk
from minivt.symbolic import AXIS

STAGES = 4          # slots of a ring where they fit: loads of three steps are under way while one is multiplied
RESERVED = 4096     # bytes of shared memory for alignment, barriers and exchanges


@dataclass(frozen=True)
class Group:
    """Products that wait for one slot: ring and its operands in slot order; ring None when all are resident."""
    statements: tuple[Node, ...]
    ring: t.Ring | None
    operands: tuple[Operand, ...]

    @property
    def streamed(self) -> bool:
        return self.ring is not None


@dataclass(frozen=True)
class Feed:
    """group: of each product statement; residents: operand -> its ring; rings: all of them."""
    group: dict[Node, Group]
    residents: dict[Operand, t.Ring]
    rings: tuple[t.Ring, ...]

    def slot(self, statement: Node, operand: Operand) -> tuple[t.Ring, int]:
        """The ring of an operand and its position in the ring's slots."""
        if operand in self.residents:
            return self.residents[operand], 0
        group = self.group[statement]
        return group.ring, group.operands.index(operand)


def feeds(body: Node, products: dict[Node, Product], target: Target) -> Feed | None:
    """Rings for all staged operands; None when not even one slot of each fits the shared memory."""
    groups = [(g, _staged(g, products)) for g in _neighbours(body, products)]
    residents = {o: t.Ring(f"once{i}", 1, (o.tile,)) for i, o in enumerate(dict.fromkeys(
        o for _, operands in groups for o in operands if not _moves(o)))}
    keys = dict.fromkeys(_key(operands, residents) for _, operands in groups)
    keys.pop((), None)
    room = target.shared_bytes - RESERVED - sum(r.slot_bytes for r in residents.values())
    stages = min(STAGES, room // max(1, sum(_ring("", 1, key).slot_bytes for key in keys)))
    if stages < 1:
        return None
    rings, offset = {}, 0
    for i, key in enumerate(keys):
        rings[key] = replace(_ring(f"ring{i}", stages, key), offset=offset)
        offset += stages * rings[key].slot_bytes
    for operand, ring in residents.items():
        residents[operand] = replace(ring, offset=offset)
        offset += ring.slot_bytes
    made = {}
    for statements, operands in groups:
        streamed = tuple(o for o in operands if o not in residents)
        group = Group(statements, rings.get(_key(operands, residents)), streamed)
        made.update(dict.fromkeys(statements, group))
    return Feed(made, residents, (*rings.values(), *residents.values()))


def _neighbours(body: Node, products: dict[Node, Product]) -> list[tuple[Node, ...]]:
    """Runs of adjacent products; one whose first operand is computed stands alone, since it reads what came before."""
    found, stack = [], [body]
    while stack:
        current = stack.pop()
        run: list[Node] = []
        for s in (*current.src, None) if current.op is BLOCK else (current, None):
            joins = s in products and isinstance(products[s].a, Operand)
            if run and not (joins and isinstance(products[run[-1]].a, Operand)):
                found.append(tuple(run))
                run = []
            if s in products:
                run.append(s)
            elif s is not None and s.op in (LOOP, BLOCK):
                stack.append(s.src[0] if s.op is LOOP else s)
    return found


def _staged(statements: tuple[Node, ...], products: dict[Node, Product]) -> tuple[Operand, ...]:
    both = (o for s in statements for o in (products[s].a, products[s].b))
    return tuple(dict.fromkeys(o for o in both if isinstance(o, Operand)))


def _key(operands: tuple[Operand, ...], residents: dict) -> tuple:
    """Products share a ring when the same parameters pass through it in the same form, masked or not."""
    return tuple((o.box.param, o.tile) for o in operands if o not in residents)


def _ring(name: str, stages: int, key: tuple) -> t.Ring:
    return t.Ring(name, stages, tuple(tile for _, tile in key))


def _moves(operand: Operand) -> bool:
    return any(n.op is AXIS and n.arg[2] == "loop" for n in walk(*operand.origin))


def produce(body: Node, products: dict[Node, Product], feed: Feed) -> Node:
    """The producer role: the block's loops with nothing but copies in them.

    before:  LOOP kb: SET acc += a[i, kb * 64 + k] * b[kb * 64 + k, j]
    after:   LOOP kb: ACQUIRE ring; FILL a at (kb * 64, i0); FILL b at (j0, kb * 64); ADVANCE ring
    """
    first = [_fill(ring, (operand,)) for operand, ring in feed.residents.items()]
    return block(*first, _copies(body, products, feed))


def _copies(body: Node, products: dict[Node, Product], feed: Feed) -> Node:
    out = []
    for s in body.src if body.op is BLOCK else (body,):
        if s.op is LOOP:
            inner = _copies(s.src[0], products, feed)
            if inner.src:
                out.append(loop(s.arg, s.src[1], s.src[2], inner))
        elif s.op is BLOCK:
            out.append(_copies(s, products, feed))
        elif s in products and feed.group[s].statements[0] is s and feed.group[s].streamed:
            group = feed.group[s]
            out += [_fill(group.ring, group.operands), t.statement(t.ADVANCE, group.ring)]
    return block(*out)


def _fill(ring: t.Ring, operands: tuple[Operand, ...]) -> Node:
    copies = [t.statement(t.FILL, (ring, i, o.box), *o.origin) for i, o in enumerate(operands)]
    return block(t.statement(t.ACQUIRE, ring), *copies)
