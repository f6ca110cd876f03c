"""The body of a scan is closed and a value: what a step reads is a source of the node, equal bodies are equal."""
import pytest

from minivt import dtypes, ops
from minivt.errors import DTypeError, ShapeError
from minivt.graph import const, node, toposort
from minivt.runtime.buffer import Buffer
from minivt.scan import scan
from minivt.symbolic import variable

F32 = dtypes.float32


def buffer(*shape, dtype=F32):
    return node(ops.BUFFER, (), Buffer(shape, dtype, "cpu"), dtype)


def add(a, b):
    return node(ops.ADD, (a, b))


def test_shapes_dtypes_and_sources():
    h, x, bias = buffer(4), buffer(6, 4), buffer(4)
    count = node(ops.ARANGE, (), 6, dtypes.int32)

    def step(carry, rows):
        following = add(add(carry[0], rows[0]), node(ops.NEG, (bias,)))
        return (following,), (rows[1], node(ops.SUM, (following,), (0,)))

    (last,), (counts, sums) = scan(step, (h,), (x, count))
    assert [(n.shape, n.dtype) for n in (last, counts, sums)] == [((4,), F32), ((6,), dtypes.int32), ((6,), F32)]
    assert last.src == (h, x, count, node(ops.NEG, (bias,))) == sums.src  # what no step changes is computed outside
    body, index = sums.arg
    assert index == 2 and last.arg == (body, 0) and body.length == 6 and body.carries == 1
    assert [p.shape for p in body.placeholders] == [(4,), (4,), (), (4,)]
    below = [n for n in toposort(*body.outputs) if not n.src and n.op is not ops.CONST]
    assert set(below) <= set(body.placeholders)


def test_equal_scans_are_one_node():
    h, x = buffer(4), buffer(6, 4)

    def trace():
        return scan(lambda carry, rows: ((add(carry[0], rows[0]),), ()), (h,), (x,))[0][0]

    assert trace() is trace()


def test_constants_and_variables_stay_in_the_body():
    n = variable("n", 1, 9)
    (last,), _ = scan(lambda c, r: ((add(add(c[0], r[0]), n),), ()), (const(0, dtypes.int64),),
                      (node(ops.ARANGE, (), n, dtypes.int64),))
    assert len(last.src) == 2 and last.arg[0].length is n
    assert n in toposort(*last.arg[0].outputs)


def test_what_does_not_fit_raises():
    h, x = buffer(4), buffer(6, 4)
    keep = lambda carry, rows: (carry, ())
    for xs in [(), (x, buffer(5, 4)), (buffer(),)]:
        with pytest.raises(ShapeError, match="xs have shapes"):
            scan(keep, (h,), xs)
    with pytest.raises(ShapeError, match="must keep them"):
        scan(lambda carry, rows: ((rows[0],), ()), (buffer(3),), (x,))
    with pytest.raises(DTypeError, match="cast back"):
        scan(lambda carry, rows: ((node(ops.CAST, carry, dtypes.float64),), ()), (h,), (x,))
