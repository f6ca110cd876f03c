"""Kernel IR as text a person can read; what minivt.explain prints. Not parsed by anything."""
from __future__ import annotations

from minivt import ops
from minivt.codegen.tile import BLOCK, LOAD, LOOP, READ, REDUCE, SET, STORE, TileProgram
from minivt.graph import Node, toposort
from minivt.symbolic import AXIS, TRUE

INFIX = {ops.ADD: "+", ops.MUL: "*", ops.DIV: "/", ops.IDIV: "//", ops.MOD: "%", ops.LT: "<", ops.NE: "!=",
         ops.AND: "&", ops.OR: "|", ops.XOR: "^", ops.SHL: "<<", ops.SHR: ">>"}


def counter_name(counter: Node) -> str:
    """A short name: 'g0' for grid counter 0, 'lr2' for the loop over reduced counter 2."""
    key, _, kind = counter.arg
    flat = []
    stack = [key]
    while stack:
        part = stack.pop()
        stack.extend(reversed(part)) if isinstance(part, tuple) else flat.append(str(part))
    text = "".join(flat)
    return text if not text.isdigit() else kind[0] + text


def show_value(value: Node) -> str:
    """One expression, on one line."""
    text: dict[Node, str] = {}
    for current in toposort(value):
        src = [text[s] for s in current.src]
        op = current.op
        if op is ops.CONST:
            text[current] = str(current.arg)
        elif op is ops.VARIABLE:
            text[current] = current.arg[0]
        elif op is AXIS:
            text[current] = counter_name(current)
        elif op is READ:
            axes = ", ".join(map(counter_name, current.arg.axes))
            text[current] = f"{current.arg.name}[{axes}]"
        elif op is LOAD:
            mask = "" if current.src[1] is TRUE else f" if {src[1]}"
            text[current] = f"p{current.arg.slot}[{src[0]}{mask}]"
        elif op is REDUCE:
            axes = ", ".join(map(counter_name, current.arg[1]))
            text[current] = f"{current.arg[0].name.lower()}({axes}: {src[0]})"
        elif op in INFIX:
            text[current] = f"({src[0]} {INFIX[op]} {src[1]})"
        elif op in (ops.CAST, ops.BITCAST):
            text[current] = f"{op.name.lower()}_{current.dtype}({src[0]})"
        else:
            text[current] = f"{op.name.lower()}({', '.join(src)})"
    return text[value]


def show_program(program: TileProgram) -> str:
    """A TileProgram, a line for each statement."""
    lines = [f"{program.name}: " + ", ".join(f"p{p.slot} {p.dtype}[{_size(p.size)}]{' out' if p.written else ''}"
                                             for p in program.params)]
    grid = ", ".join(f"{counter_name(g)} < {_size(g.arg[1])}" for g in program.grid)
    lines.append(f"grid {grid or 'of one block'}")
    stack = [(program.body, 1)]
    while stack:
        current, depth = stack.pop()
        if current.op is BLOCK:
            stack.extend((s, depth) for s in reversed(current.src))
            continue
        lines.append("  " * depth + _statement(current))
        if current.op is LOOP:
            stack.append((current.src[0], depth + 1))
    return "\n".join(lines)


def _statement(current: Node) -> str:
    if current.op is LOOP:
        start, stop = map(show_value, current.src[1:])
        return f"LOOP {counter_name(current.arg)} in {start} .. {stop}"
    if current.op is SET:
        how = current.arg
        value = show_value(current.src[0])
        if how.reduce is not None:
            value = f"{how.reduce.name.lower()}({', '.join(map(counter_name, how.reduce_axes))}: {value})"
        axes = ", ".join(f"{counter_name(a)}:{a.arg[1]}" for a in how.tile.axes)
        return f"SET {how.tile.name}[{axes}] {'op=' if how.accumulate else '='} {value}"
    if current.op is STORE:
        param, axes = current.arg
        index, valid, value = map(show_value, current.src)
        mask = "" if current.src[1] is TRUE else f" if {valid}"
        points = ", ".join(f"{counter_name(a)}:{a.arg[1]}" for a in axes)
        return f"STORE p{param.slot}[{index}{mask}] over [{points}] = {value}"
    raise AssertionError(current.op)


def _size(size) -> str:
    return show_value(size) if isinstance(size, Node) else str(size)
