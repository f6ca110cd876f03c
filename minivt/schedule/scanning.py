"""SCAN as one tile program, where a step needs of the carries only what lies at its own place.

Such places are independent of each other: a block owns a stretch of them, keeps their carries in tiles and goes through
the steps. Not for scans whose steps mix places, by a product say.
"""
from __future__ import annotations

from minivt import ops
from minivt.codegen.target import Target
from minivt.codegen.tile import Param, Tile, TileProgram, block, loop, read, set_tile, store
from minivt.graph import Node, substitute, toposort
from minivt.ops import Op
from minivt.schedule.indexing import Lowering, unflatten
from minivt.schedule.kernel import capacity
from minivt.scan import ScanBody
from minivt.symbolic import add, as_index, axis, bounds, build, ceil_div, lt, mul

OUTPUTS = Op("OUTPUTS", "kernel", ("values",), meaning="outputs of one SCAN that one kernel computes", dtype=None)
STRETCH = {"cpu": 512, "gpu": 128}  # places that one block owns
OWN_PLACE = ops.ELEMENTWISE | {ops.RESHAPE, ops.EXPAND, ops.CONST, ops.VARIABLE, ops.ARANGE, ops.BUFFER, ops.GATHER,
                               ops.PERMUTE, ops.PAD, ops.SHRINK, ops.FLIP, ops.CONTIGUOUS}


class _StepLowering(Lowering):
    """Lowers one step: carries are tiles, an x is its source at the step, a captured value is its source."""

    def __init__(self, params, root: Node, step: Node, place: tuple[Node, ...]):
        super().__init__(params, root)
        body: ScanBody = root.arg[0]
        n, m = body.carries, body.carries + len(body.x_placeholders)
        self.step, self.place = step, place
        self.carry_tiles: dict[Node, Tile] = {}
        self.rows = dict(zip(body.x_placeholders, root.src[n:m]))
        self.captured = dict(zip(body.captured_placeholders, root.src[m:]))

    def _rule(self, current: Node, index, valid: Node):
        if current in self.carry_tiles:
            assert index == self.place, "keeps_places tells which scans are one kernel"
            return read(self.carry_tiles[current])
        if current in self.rows:
            return (yield self.rows[current], (self.step, *index), valid)
        if current in self.captured:
            return (yield self.captured[current], index, valid)
        return (yield from super()._rule(current, index, valid))


def keeps_places(body: ScanBody) -> bool:
    """Whether a step computes each place of its carries from the same place alone, so that one kernel is the scan."""
    shapes = {o.shape for o in body.outputs}
    order = toposort(*body.outputs)
    if len(shapes) != 1 or any(n.op not in OWN_PLACE for n in order):
        return False
    shape, = shapes
    moving = set(body.carry_placeholders)
    for current in order:  # what a carry goes through on its way up may not move it
        if any(s in moving for s in current.src):
            if current.op not in ops.ELEMENTWISE or current.shape != shape:
                return False
            moving.add(current)
    return True


def scan_program(root: Node, target: Target) -> TileProgram:
    """The program of OUTPUTS of one SCAN over placeholders.

    before:  h[t] = a * h[t - 1] + x[t] at each of N places
    after:   grid (block): SET h = h0; LOOP t: SET next = a * h + x[t]; STORE y[t] = next; SET h = next
    """
    outputs = {s.arg[1]: n for n, s in enumerate(root.src)}
    scan = root.src[0]
    body: ScanBody = scan.arg[0]
    inputs = sorted((n for n in toposort(*scan.src) if n.op is ops.BUFFER), key=lambda n: n.arg.slot)
    params = {n: Param(n.arg.slot, n.dtype, capacity(n.shape)) for n in inputs}
    written = [Param(len(inputs) + n, s.dtype, capacity(s.shape), written=True) for n, s in enumerate(root.src)]
    shape = body.outputs[0].shape
    places = capacity(shape)
    grid, position, axes = _stretch(places, target)
    inside = lt(position, places)
    step = axis("step", body.length, "loop")
    index = unflatten(position, shape)
    lowering = _StepLowering(params, scan, step, index)
    starts = [set_tile(Tile(f"carry{n}", axes, c.dtype), lowering.lower(source, index, inside))
              for n, (c, source) in enumerate(zip(body.carry_placeholders, scan.src))]
    lowering.carry_tiles = dict(zip(body.carry_placeholders, (s.arg.tile for s in starts)))
    values = [lowering.lower(o, index, inside) for o in body.outputs]
    following = [Tile(f"next{n}", axes, c.dtype) for n, c in enumerate(body.carry_placeholders)]
    statements = [set_tile(tile, value) for tile, value in zip(following, values)]
    made = {}
    for value, tile in zip(values, following):
        made.setdefault(value, read(tile))
    for number, value in enumerate(values):
        if number >= body.carries and number in outputs:
            value, = substitute([value], made, build)
            statements.append(store(written[outputs[number]], axes, add(mul(step, places), position), value, inside))
    carries = [s.arg.tile for s in starts]
    statements += [set_tile(tile, read(new)) for tile, new in zip(carries, following)]
    ends = [store(written[outputs[n]], axes, position, read(tile), inside)
            for n, tile in enumerate(carries) if n in outputs]
    body_loop = loop(step, 0, body.length, *statements)
    return TileProgram("kernel", (*params.values(), *written), grid, block(*starts, body_loop, *ends))


def _stretch(places, target: Target):
    """The grid, the place and the tile axes of a block."""
    most = bounds(as_index(places))[1]
    stretch = min(most, STRETCH[target.kind])
    while stretch > 16 and -(-most // stretch) < 2 * target.units:
        stretch = -(-stretch // 2)
    blocks = ceil_div(places, max(1, stretch))
    grid = () if blocks == 1 else (axis("block", blocks, "grid"),)
    position = mul(grid[0], stretch) if grid else as_index(0)
    if stretch <= 1:
        return grid, position, ()
    counter = axis("place", stretch, "tile")
    return grid, add(position, counter), (counter,)
