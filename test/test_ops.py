"""The table of primitives: its size, its page in docs, and the shape and dtype rule of every row."""
import importlib.util
from pathlib import Path

import pytest

from minivt import dtypes, ops
from minivt.errors import DTypeError, ShapeError
from minivt.graph import node
from minivt.runtime.buffer import Buffer
from minivt.symbolic import add, variable

DOCS = Path(__file__).parent.parent / "docs"
F32, I32, BOOL = dtypes.float32, dtypes.int32, dtypes.bool_


def buffer(*shape, dtype=F32):
    return node(ops.BUFFER, (), Buffer(shape, dtype, "cpu"), dtype)


def test_the_table_stays_small():
    assert 36 <= len(ops.PRIMITIVES) <= 48


def test_every_row_is_complete():
    for name, op in ops.PRIMITIVES.items():
        assert op.name == name == name.upper() and repr(op) == name
        assert op.meaning and op.shape is not None and op.group in (
            "source", "movement", "elementwise", "reduce", "loop", "index", "effect")
        assert (op.dtype is None) == (op.name in ("CONST", "BUFFER", "VARIABLE", "ARANGE"))


def test_groups():
    assert len(ops.ELEMENTWISE) == 22 and len(ops.MOVEMENT) == 6 and ops.REDUCE == {ops.SUM, ops.MAX}


def test_the_page_in_docs_is_the_tables():
    spec = importlib.util.spec_from_file_location("generate_ops", DOCS / "generate_ops.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (DOCS / "ops.md").read_text(encoding="utf-8") == generate.page(), "run python docs/generate_ops.py"
    for name in ops.PRIMITIVES:
        assert f"`{name}`" in generate.page()


# --- shapes -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op, shape, arg, want", [
    (ops.RESHAPE, (2, 3), (3, 2), (3, 2)), (ops.RESHAPE, (), (1, 1), (1, 1)), (ops.RESHAPE, (0, 3), (5, 0), (5, 0)),
    (ops.PERMUTE, (2, 3, 4), (2, 0, 1), (4, 2, 3)), (ops.PERMUTE, (), (), ()),
    (ops.EXPAND, (1, 3), (2, 3), (2, 3)), (ops.EXPAND, (1,), (0,), (0,)),
    (ops.PAD, (2, 3), ((1, 0), (0, 2)), (3, 5)), (ops.SHRINK, (4, 5), ((1, 2), (0, 5)), (2, 5)),
    (ops.FLIP, (2, 3), (1,), (2, 3)), (ops.SUM, (2, 3, 4), (0, 2), (3,)), (ops.MAX, (2,), (0,), ()),
    (ops.SUM, (2,), (), (2,)), (ops.CONTIGUOUS, (2, 3), None, (2, 3)), (ops.COPY, (2,), "cpu", (2,)),
], ids=str)
def test_shapes_of_one_input(op, shape, arg, want):
    made = node(op, (buffer(*shape),), arg)
    assert made.shape == want and made.dtype is F32


@pytest.mark.parametrize("op, shape, arg", [
    (ops.RESHAPE, (2, 3), (4,)), (ops.PERMUTE, (2, 3), (0, 0)), (ops.PERMUTE, (2, 3), (0,)),
    (ops.EXPAND, (2, 3), (4, 3)), (ops.EXPAND, (2,), (1, 2)), (ops.SUM, (2,), (1,)), (ops.SUM, (2,), (0, 0)),
    (ops.MAX, (2,), (-1,)),
], ids=str)
def test_shapes_that_do_not_fit_raise(op, shape, arg):
    with pytest.raises(ShapeError, match=r"\(2"):
        node(op, (buffer(*shape),), arg)


def test_symbolic_sizes_flow_through():
    n = variable("n", 1, 8)
    row = node(ops.ARANGE, (), n, I32)
    assert row.shape == (n,)
    padded = node(ops.PAD, (node(ops.SHRINK, (buffer(8, 2),), ((0, 8), (0, 2))),), ((0, 0), (1, 1)))
    assert padded.shape == (8, 4)
    assert node(ops.ADD, (row, node(ops.ARANGE, (), n, I32))).shape == (n,)
    with pytest.raises(ShapeError, match="expand them"):
        node(ops.ADD, (row, node(ops.ARANGE, (), add(n, 1), I32)))


def test_index_shapes():
    source, index = buffer(2, 3, 4), buffer(5, 6, dtype=I32)
    assert node(ops.GATHER, (source, index), 1).shape == (2, 5, 6, 4)
    assert node(ops.SCATTER, (source, index, buffer(2, 5, 6, 4)), (1, "add")).shape == (2, 3, 4)
    with pytest.raises(ShapeError, match="updates have shape"):
        node(ops.SCATTER, (source, index, buffer(5, 6)), (1, "store"))


def test_assign_shapes():
    assert node(ops.ASSIGN, (buffer(4, 2), buffer(1, 2)), ((3, 1), (0, 2))).shape == (4, 2)
    for value, region in [((2, 2), ((3, 1), (0, 2))), ((1,), ((3, 1),))]:
        with pytest.raises(ShapeError, match="assign"):
            node(ops.ASSIGN, (buffer(4, 2), buffer(*value)), region)


# --- dtypes -----------------------------------------------------------------------------------------------------------
ANY, NUMBERS, BITS, INTEGERS, FLOATS = "biuf", "iuf", "biu", "iu", "f"
TAKEN = {
    "NEG": NUMBERS, "SQRT": FLOATS, "EXP2": FLOATS, "LOG2": FLOATS, "SIN": FLOATS, "TRUNC": FLOATS, "ADD": ANY,
    "MUL": ANY, "DIV": FLOATS, "IDIV": INTEGERS, "MOD": INTEGERS, "MAXIMUM": ANY, "LT": ANY, "NE": ANY, "AND": BITS,
    "OR": BITS, "XOR": BITS, "SHL": INTEGERS, "SHR": INTEGERS, "SUM": NUMBERS, "MAX": ANY,
}


@pytest.mark.parametrize("name", TAKEN)
def test_dtypes_taken_and_given(name):
    op = ops.PRIMITIVES[name]
    arg = (0,) if op in ops.REDUCE else None
    for dtype in dtypes.ALL:
        inputs = [buffer(3, dtype=dtype) for _ in op.inputs]
        if dtype.kind in TAKEN[name]:
            assert node(op, inputs, arg).dtype is (BOOL if name in ("LT", "NE") else dtype)
        else:
            with pytest.raises(DTypeError, match=f"{dtype}.*cast first"):
                node(op, inputs, arg)


@pytest.mark.parametrize("name", [n for n in TAKEN if len(ops.PRIMITIVES[n].inputs) == 2])
def test_mixed_dtypes_raise(name):
    for first, second in [(F32, dtypes.float64), (I32, dtypes.int64), (I32, dtypes.uint32), (BOOL, I32), (I32, F32)]:
        with pytest.raises(DTypeError, match=f"{first}, {second}"):
            node(ops.PRIMITIVES[name], (buffer(3, dtype=first), buffer(3, dtype=second)))


def test_where_takes_a_bool_condition_and_one_dtype():
    condition = buffer(3, dtype=BOOL)
    for dtype in dtypes.ALL:
        assert node(ops.WHERE, (condition, buffer(3, dtype=dtype), buffer(3, dtype=dtype))).dtype is dtype
    with pytest.raises(DTypeError, match="bool is needed"):
        node(ops.WHERE, (buffer(3, dtype=I32), buffer(3), buffer(3)))
    with pytest.raises(DTypeError, match="cast first"):
        node(ops.WHERE, (condition, buffer(3), buffer(3, dtype=I32)))


def test_casts():
    for dtype in dtypes.ALL:
        assert node(ops.CAST, (buffer(3),), dtype).dtype is dtype
    assert node(ops.BITCAST, (buffer(3),), dtypes.uint32).dtype is dtypes.uint32
    with pytest.raises(DTypeError, match="bytes"):
        node(ops.BITCAST, (buffer(3),), dtypes.int64)


def test_an_index_is_of_integers():
    for dtype in dtypes.ALL:
        if dtype.is_int:
            assert node(ops.GATHER, (buffer(3), buffer(2, dtype=dtype)), 0).dtype is F32
        else:
            with pytest.raises(DTypeError, match="integer dtype"):
                node(ops.GATHER, (buffer(3), buffer(2, dtype=dtype)), 0)


def test_assign_keeps_the_dtype():
    with pytest.raises(DTypeError, match="cast first"):
        node(ops.ASSIGN, (buffer(3), buffer(3, dtype=I32)), ((0, 3),))
