"""Nodes are made once, walks never recurse, and shared work is visited once however many paths lead to it."""
import gc
import math
import weakref

import pytest

from minivt import dtypes, graph, ops
from minivt.graph import const, node, rebuild, substitute, toposort, users, walk
from minivt.runtime.buffer import Buffer

F32, I32 = dtypes.float32, dtypes.int32


def buffer(*shape, dtype=F32):
    return node(ops.BUFFER, (), Buffer(shape, dtype, "cpu"), dtype)


def add(a, b):
    return node(ops.ADD, (a, b))


def doubled(x, times):
    """A graph of `times` nodes with 2**times paths to x."""
    for _ in range(times):
        x = add(x, x)
    return x


def test_equal_nodes_are_one_object():
    a, b = buffer(3), buffer(3)
    assert a is not b
    assert add(a, b) is add(a, b) and add(a, b) is not add(b, a)
    assert node(ops.SUM, (a,), (0,)) is node(ops.SUM, (a,), (0,))
    assert node(ops.CAST, (a,), I32) is not node(ops.CAST, (a,), dtypes.int64)


@pytest.mark.parametrize("x, y, dtype", [(0.0, -0.0, F32), (1.0, 2.0, F32), (0.0, math.nan, F32)])
def test_constants_that_differ_are_different_nodes(x, y, dtype):
    assert const(x, dtype) is not const(y, dtype)


def test_constants_are_told_apart_by_dtype_and_bits():
    assert len({const(1, d) for d in dtypes.ALL}) == len(dtypes.ALL)
    assert const(math.nan, F32) is const(float("nan"), F32)
    assert const(1, dtypes.bool_).arg is True and type(const(True, I32).arg) is int and type(const(1, F32).arg) is float


def test_a_node_cannot_be_built_or_pickled_around_the_table():
    import pickle
    with pytest.raises(TypeError, match="node"):
        graph.Node()
    with pytest.raises(TypeError, match="process"):
        pickle.dumps(const(1, F32))


def test_unused_nodes_are_freed():
    made = add(buffer(), const(123.5, F32))
    alive = weakref.ref(made)
    del made
    gc.collect()
    assert alive() is None


def test_a_chain_of_100000_nodes_builds_walks_and_is_freed():
    x, one = buffer(), const(1.0, F32)
    before = len(graph._TABLE)
    chain = x
    for _ in range(100_000):
        chain = add(chain, one)
    order = toposort(chain)
    assert len(order) == 100_002 and order[-1] is chain
    assert sum(1 for _ in walk(chain)) == 100_002
    readers = users(order)
    assert readers[chain] == [] and len(readers[one]) == 100_000
    y = buffer()
    swapped, = substitute([chain], {x: y})
    assert swapped is not chain and sum(n is x for n in walk(swapped)) == 0
    del order, readers, swapped, chain
    gc.collect()
    assert len(graph._TABLE) <= before + 2


def test_walks_visit_a_graph_of_2_to_the_200_paths_once():
    x = buffer(2)
    top = doubled(x, 200)
    order = toposort(top)
    assert len(order) == 201 and len(list(walk(top))) == 201
    assert all(len(r) == 1 for r in list(users(order).values())[:-1])
    y = buffer(2)
    assert substitute([top], {x: y})[0] is doubled(y, 200)
    assert len(toposort(top, top)) == 201


def test_toposort_lists_sources_first():
    a, b = buffer(3), buffer(3)
    c = add(a, b)
    d = add(c, a)
    for roots in [(d,), (d, c), (a, d), (c, d)]:
        order = toposort(*roots)
        place = {n: i for i, n in enumerate(order)}
        assert len(place) == len(order) and set(order) == {a, b, c, d}
        assert all(place[s] < place[n] for n in order for s in n.src)
    assert toposort() == []


def test_toposort_does_not_enter_what_it_is_told_not_to():
    a, b = buffer(3), buffer(3)
    c = add(a, b)
    d = add(c, c)
    assert toposort(d, enter=lambda n: n is not c) == [c, d]


def test_users_names_each_reader_once():
    a = buffer(3)
    b = add(a, a)
    assert users(toposort(b)) == {a: [b], b: []}


def test_rebuild_and_substitute_keep_what_did_not_change():
    a, b, c = buffer(3), buffer(3), buffer(3)
    s = add(a, b)
    assert rebuild(s, (a, b)) is s and rebuild(s, (a, c)) is add(a, c)
    kept, changed = substitute([add(a, a), add(s, s)], {b: c})
    assert kept is add(a, a) and changed is add(add(a, c), add(a, c))
    assert substitute([s], {s: a, a: c}) == [a]  # a replacement is not searched again


def test_substitute_builds_changed_parents_with_make():
    a, b = buffer(3), buffer(3)
    seen = []

    def make(current, src):
        seen.append(current)
        return rebuild(current, src)

    substitute([add(add(a, a), b)], {b: a}, make)
    assert seen == [add(add(a, a), b)]
