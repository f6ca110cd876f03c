"""Writes docs/ops.md from the table of primitives: `python docs/generate_ops.py` after a change of minivt/ops.py.

Names, inputs, arguments and meanings are the table's own; the dtypes that a rule takes are found by asking it. Only
the shape rules, which are functions, are put into words here. Not for the tensor's methods.
"""
from pathlib import Path

from minivt import dtypes, ops
from minivt.errors import DTypeError

PAGE = Path(__file__).with_name("ops.md")
HEAD = """# Primitives

Everything that a model computes is a composition of these {count} primitives. This page is made from the table in
`minivt/ops.py` by `python docs/generate_ops.py`. What each computes is defined in NumPy in
`minivt/backends/reference.py`; where that departs from NumPy, [numerics.md](numerics.md) says so.

A shape is a tuple of sizes; a size is an integer or a bounded symbolic integer. Inputs do not broadcast: EXPAND first.
Kinds of dtypes: bool; integers (int8 to int64, uint8 to uint64); floats (float16, bfloat16, float32, float64).
"""
GROUPS = {
    "source": "values from outside the graph",
    "movement": "no arithmetic, only another way to index",
    "elementwise": "each output element from the input elements at the same place",
    "reduce": "axes removed by a sum or a maximum",
    "loop": "a sequential walk along an axis",
    "index": "elements chosen by other elements",
    "effect": "where values live, and foreign code",
}
SHAPES = {
    "CONST": "()", "BUFFER": "the buffer's", "VARIABLE": "()", "ARANGE": "(n,)",
    "RESHAPE": "the argument; as many elements as x", "PERMUTE": "x's sizes in the new order",
    "EXPAND": "the argument; where x's size is not 1 it stays", "PAD": "before + size + after on each axis",
    "SHRINK": "the sizes of the argument", "FLIP": "x's",
    "SUM": "x's without the axes", "MAX": "x's without the axes",
    "SCAN": "a carry's, or (steps, *y's)",
    "GATHER": "source's, with index's in place of the axis", "SCATTER": "base's; updates as GATHER of base would give",
    "COPY": "x's", "CONTIGUOUS": "x's", "ASSIGN": "the version's; value has the sizes of the region",
    "CUSTOM": "as the kernel declares",
}
SPECIAL_DTYPES = {
    "BUFFER": "the buffer's", "VARIABLE": "int64", "CONST": "given with the node", "ARANGE": "given with the node",
    "CAST": "the argument", "BITCAST": "the argument, of the same size", "WHERE": "condition bool; x's, y the same",
    "SCAN": "the carry's, or the y's", "GATHER": "source's; index of integers",
    "SCATTER": "base's, updates the same; index of integers", "CUSTOM": "as the kernel declares",
}
KINDS = {"biuf": "any", "iuf": "integers or floats", "biu": "bool or integers", "iu": "integers", "f": "floats"}


def accepts(op: ops.Op, dtype: dtypes.DType) -> bool:
    try:
        op.dtype([dtype] * len(op.inputs), None)
    except DTypeError:
        return False
    return True


def dtype_words(op: ops.Op) -> str:
    if op.name in SPECIAL_DTYPES:
        return SPECIAL_DTYPES[op.name]
    taken = [d for d in dtypes.ALL if accepts(op, d)]
    kinds = "".join(kind for kind in "biuf" if any(d.kind == kind for d in taken))
    assert all(d in taken for d in dtypes.ALL if d.kind in kinds), op
    same = all(op.dtype([d] * len(op.inputs), None) is d for d in taken)
    return f"{KINDS[kinds]}{', all one' if len(op.inputs) > 1 else ''}; gives {'the same' if same else 'bool'}"


def shape_words(op: ops.Op) -> str:
    if op.group == "elementwise":
        return "x's" if len(op.inputs) == 1 else "that of all inputs"
    return SHAPES[op.name]


def page() -> str:
    parts = [HEAD.format(count=len(ops.PRIMITIVES))]
    for group, about in GROUPS.items():
        rows = [op for op in ops.PRIMITIVES.values() if op.group == group]
        parts.append(f"\n## {group.capitalize()}: {about}\n\n"
                     "| name | inputs | argument | meaning | shape | dtype |\n|---|---|---|---|---|---|\n")
        for op in rows:
            cells = (f"`{op.name}`", ", ".join(op.inputs), op.arg, op.meaning, shape_words(op), dtype_words(op))
            parts.append("| " + " | ".join(cells) + " |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
