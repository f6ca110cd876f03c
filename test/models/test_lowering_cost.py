"""What lowering a decode step costs, counted in graph nodes: rewriting must stay in proportion to the graph."""
import numpy as np

from minivt import Tensor, Variable, graph
from minivt.codegen.target import cpu_target
from minivt.models.decoder import Decoder
from minivt.schedule.schedule import make_schedule

NODES_PER_NODE = 2     # measured 1.6 where nothing was lowered before
KERNELS_PER_LAYER = 10


def decode_step(decoder):
    """The graph of one token: logits and the caches' next versions."""
    for block in decoder.blocks:
        block.attention.cache.keys.realize()
        block.attention.cache.values.realize()
    start, last = Variable("start0", 0, decoder.context).bind(0), Variable("last0", 0, 0).bind(0)
    count = Variable("count0", 0, 1).bind(1)
    logits = decoder.forward(Tensor(np.zeros((1, 1), np.int32)), (start,), (count,), (last,), start)
    caches = [c for b in decoder.blocks for c in (b.attention.cache.keys, b.attention.cache.values)]
    return [logits.node, *(c.node for c in caches)]


def test_rewrites_a_node_and_kernels_a_layer(small_model):
    decoder = Decoder(small_model, context=64)
    roots = decode_step(decoder)
    before = graph.nodes_made
    schedule = make_schedule(roots, cpu_target(64, 32, 1 << 21, 2, ("fma",)), lambda buffer: True)
    assert all(launch.program.params for launch in schedule.launches)
    assert graph.nodes_made - before <= NODES_PER_NODE * len(graph.toposort(*roots))
    assert len(schedule.launches) <= KERNELS_PER_LAYER * len(decoder.blocks) + 3
    assert len({launch.program for launch in schedule.launches}) <= 14
