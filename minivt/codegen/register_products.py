"""Matrix products on register operands: fragments are read from panels by their layouts, then multiplied.

Not for filling the panels (panels) nor for products on bulk-copied operands (distribute).
"""
from __future__ import annotations

from minivt import dtypes
from minivt.codegen import thread as t
from minivt.codegen.layout import OPERANDS, SECONDS, Fragment
from minivt.codegen.panels import Panel, PanelProduct
from minivt.codegen.stage import padded
from minivt.codegen.tile import block
from minivt.graph import Node, const
from minivt.symbolic import add, as_index, idiv, mod, mul


def register_product(lowering, s: Node) -> Node:
    """One product of a block: in each step along k the fragments of all rows and columns, then all instructions.

    before:  SET acc[i, j] += sum over k in 32 of panel_a[i, k] * panel_b[j, k]
    after:   UNROLL step in 2:  a[...] = panel_a[...]; b[...] = panel_b[...]; acc[0..4] += a[0..4] * b[0..2]; ...
    """
    product: PanelProduct = lowering.products[s]
    how, sums = product.instruction, lowering.array(s.arg.tile)
    groups = lowering.threads // how.group
    rows, columns = padded(product.m.arg[1], how.m) // how.m // groups, padded(product.n.arg[1], how.n) // how.n
    step = t.register_counter(("step", s.arg.tile.name), product.k.arg[1] // how.k)
    first, second = OPERANDS[how.name](how.k), SECONDS[how.name](how.k)
    number = t.thread_number(lowering.threads)
    out, body = [] if s.arg.accumulate else [clear(sums)], []
    words = first.size // 2
    if isinstance(product.a, Panel):
        a = lowering.declare("a_words", dtypes.uint32, rows * words)
        group = idiv(number, how.group)
        body += [fragment(a, r * words, product.a, first, "m", add(mul(group, how.m), r * groups * how.m),
                          mul(step, how.k), number) for r in range(rows)]
        starts = [as_index(r * words) for r in range(rows)]
    else:
        a, fill = lowering.operand(s)
        out.append(fill)
        starts = [mul(step, words)] * rows
    b = lowering.declare("b_words", dtypes.uint32, columns * second.size // 2)
    body += [fragment(b, c * second.size // 2, product.b, second, "n", as_index(c * how.n), mul(step, how.k), number)
             for c in range(columns)]
    call, part = t.RegisterMultiply(how, sums, a, b), how.m * how.n // how.group
    body += [t.statement(t.MULTIPLY_REGISTERS, call, as_index((r * columns + c) * part), starts[r],
                         as_index(c * second.size // 2)) for r in range(rows) for c in range(columns)]
    return block(*out, t.unroll((step,), block(*body)))


def clear(sums: t.Array) -> Node:
    counter = t.register_counter(("clear", sums.name), sums.size)
    return t.unroll((counter,), t.write(sums, counter, const(0, sums.dtype)))


def fragment(array: t.Array, first: int, panel: Panel, layout: Fragment, free: str, row: Node, k: Node,
             number: Node) -> Node:
    """Read one instruction's operand: word w of a thread is the pair of elements 2 w, 2 w + 1 of its layout."""
    out = []
    for word in range(layout.size // 2):
        place = {axis: coordinate(layout, axis, number, 2 * word) for axis in (free, "k")}
        index = panel.index(add(row, place[free]), idiv(add(k, place["k"]), 2))
        out.append(t.write(array, first + word, t.element(panel.array, index)))
    return block(*out)


def coordinate(layout: Fragment, axis: str, number: Node, register: int) -> Node:
    """Where along an axis a thread's register lies."""
    place = layout(0, register).get(axis, 0)
    return add(place, *(mul(mod(idiv(number, divisor), size), step)
                        for divisor, size, step in layout.spread(axis).threads))
