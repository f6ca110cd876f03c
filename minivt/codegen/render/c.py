"""Thread programs as C-family text: expressions, loops, register arrays. A Dialect supplies what languages differ in.

Values that several places use become constants; what a dialect's tables do not name is the same in all dialects. Not
for choosing anything: the text says what the thread program says.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Callable

import numpy as np

from minivt import dtypes, ops
from minivt.codegen import thread as t
from minivt.codegen.tile import BLOCK, LOAD, LOOP
from minivt.dtypes import DType
from minivt.graph import Node, toposort, walk
from minivt.symbolic import AXIS, TRUE, bounds

WRAPPED = {ops.ADD: "+", ops.MUL: "*"}
INFIX = {ops.LT: "<", ops.NE: "!=", ops.AND: "&", ops.OR: "|", ops.XOR: "^"}
BOOLEAN = {ops.ADD: "|", ops.OR: "|", ops.MAXIMUM: "|", ops.MUL: "&", ops.AND: "&", ops.XOR: "^"}
CALLS = {ops.IDIV: "floor_div", ops.MOD: "floor_mod", ops.SHL: "shift_left", ops.SHR: "shift_right",
         ops.MAXIMUM: "maximum", ops.SQRT: "sqrt", ops.EXP2: "exp2", ops.LOG2: "log2", ops.SIN: "sin",
         ops.TRUNC: "trunc"}
TYPED = (ops.IDIV, ops.MOD, ops.SHL, ops.SHR, ops.MAXIMUM)  # helpers whose operands must have one type
STATE = (t.ELEMENT, t.SHUFFLE)  # values that a write in between may change
SIMPLE = (t.WRITE, t.PUT)


@dataclass(frozen=True)
class Dialect:
    """What a language calls things.

    types: of elements; calls: (op, dtype) -> function, where it is not the op's usual name; statements: op -> text of
    a statement, given (renderer, node); values: op -> text of an expression; helpers: function -> its definition,
    put in front where used; kernel: the whole text from (renderer, body);
    reserved: names that arrays and variables may not have.
    """
    types: dict[DType, str]
    calls: dict[tuple, str]
    values: dict[object, Callable]
    statements: dict[object, Callable]
    helpers: dict[str, str]
    kernel: Callable
    reserved: frozenset[str]
    unroll: str = "#pragma unroll"


@dataclass
class Scope:
    """Names of values that are already computed, and the lines of a block."""
    named: dict[Node, str]
    lines: list[str] = field(default_factory=list)


class Renderer:
    """Prints one thread program in one dialect."""

    def __init__(self, program: t.ThreadProgram, dialect: Dialect, target):
        self.program, self.dialect, self.target = program, dialect, target
        self.names: dict = {}
        self.wides: dict[Node, bool] = {}
        self.addresses: set[Node] = set()  # of shared memory, which 32 bits hold
        self.count = 0
        for item in (*program.arrays, *program.variables):
            self.names[item] = self.free(item.name if isinstance(item, t.Array) else item.arg[0])

    def text(self) -> str:
        return with_helpers(self.dialect.kernel(self, self.program.body), self.dialect.helpers)

    # --- names and types ---------------------------------------------------------------------------------------------

    def free(self, name: str) -> str:
        """The name as an identifier that neither the language nor this renderer uses otherwise."""
        name = "".join(c if c.isalnum() else "_" for c in name)
        generated = name[1:].isdigit() and name[0] in "gkprt"
        while generated or not name[0].isalpha() or name in self.dialect.reserved or name in self.names.values():
            name, generated = f"n_{name}", False
        return name

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def counter(self, x: Node) -> str:
        if x.arg[0] in (t.THREAD_NUMBER, t.BLOCK_NUMBER):
            return x.arg[0]
        if x not in self.names:
            self.names[x] = self.fresh({"grid": "g", "loop": "k", "register": "r"}[x.arg[2]])
        return self.names[x]

    def type(self, value: Node) -> str:
        if value.dtype is dtypes.index:
            return "long long" if self.wide(value) else "int"
        return self.dialect.types[value.dtype]

    def wide(self, value: Node) -> bool:
        """Whether an int64 value needs 64 bits; most indices are proven to fit 32."""
        for n in toposort(value, enter=lambda n: n not in self.wides):
            if n not in self.wides:
                low, high = bounds(n)
                inside = -(1 << 31) <= low and high < 1 << 31 and not any(
                    self.wides[s] for s in n.src if n.op in (ops.IDIV, ops.MOD, ops.WHERE))
                short = n.op is t.ADDRESS or n.op in WRAPPED and any(s in self.addresses for s in n.src)
                self.addresses.update([n] if short else [])
                self.wides[n] = n.dtype is dtypes.index and not (inside or short)
        return self.wides[value]

    # --- statements --------------------------------------------------------------------------------------------------

    def body(self, statement: Node, scope: Scope) -> list[str]:
        """The lines of a statement in a block of its own."""
        inner = Scope(dict(scope.named))
        self.emit(self.flat(statement), inner)
        return ["    " + line for line in inner.lines]

    def flat(self, statement: Node) -> list[Node]:
        found, stack = [], [statement]
        while stack:
            current = stack.pop()
            if current.op is BLOCK:
                stack.extend(reversed(current.src))
            else:
                found.append(current)
        return found

    def emit(self, statements: list[Node], scope: Scope) -> None:
        uses = Counter(s for n in toposort(*(v for x in statements if x.op in SIMPLE for v in x.src)) for s in n.src)
        uses.update(v for x in statements if x.op in SIMPLE for v in x.src)
        for s in statements:
            if s.op in SIMPLE:
                self.simple(s, uses, scope)
            elif s.op is LOOP:
                self.loop(s, scope)
            elif s.op is t.UNROLL:
                self.unrolled(s, scope)
            elif s.op is t.WHEN:
                condition = self.value(s.src[0], scope)
                scope.lines += [f"if ({condition}) {{", *self.body(s.src[1], scope), "}"]
            else:
                scope.lines += self.dialect.statements[s.op](self, s, scope)

    def loop(self, s: Node, scope: Scope) -> None:
        name, start, stop = self.counter(s.arg), self.value(s.src[1], scope), self.value(s.src[2], scope)
        kind = "long long" if self.wide(s.src[2]) else "int"
        head = f"for ({kind} {name} = {start}; {name} < {stop}; {name}++) {{"
        scope.lines += [head, *self.body(s.src[0], scope), "}"]

    def unrolled(self, s: Node, scope: Scope) -> None:
        lines = self.body(s.src[0], scope)
        for c in reversed(s.arg):
            head = [self.dialect.unroll, f"for (int {self.counter(c)} = 0; {self.counter(c)} < {c.arg[1]}; "
                                         f"{self.counter(c)}++) {{"]
            lines = [*head, *lines, "}"]
            if c is not s.arg[0]:
                lines = ["    " + line for line in lines]
        scope.lines += lines

    def simple(self, s: Node, uses: Counter, scope: Scope) -> None:
        """A write or a store, after the values that it shares with itself or its neighbours."""
        local = Scope(dict(scope.named), scope.lines)
        for n in toposort(*s.src, enter=lambda n: n not in local.named):
            if n in local.named or not (n.op is t.VECTOR or uses[n] > 1 and worth_a_name(n)):
                continue
            name = self.fresh("t")
            text = self.value(n, local)
            kind = self.dialect.values["vector_type"](self, n) if n.op is t.VECTOR else self.type(n)
            scope.lines.append(f"const {kind} {name} = {text};")
            local.named[n] = name
            if not any(x.op in STATE for x in walk(n)):
                scope.named[n] = name
        index = self.value(s.src[0], local)
        if s.op is t.WRITE:
            valid = f"if ({self.value(s.src[2], local)}) " if len(s.src) > 2 else ""
            scope.lines.append(f"{valid}{self.names[s.arg]}[{index}] = {self.value(s.src[1], local)};")
        else:
            values = [self.value(v, local) for v in s.src[2:]]
            store = self.put(s.arg, index, values)
            valid = "" if s.src[1] is TRUE else f"if ({self.value(s.src[1], local)}) "
            scope.lines.append(valid + store)

    def put(self, param, index: str, values: list[str]) -> str:
        pointer = self.param(param)
        if len(values) == 1:
            return f"{pointer}[{index}] = {values[0]};"
        kind = f"Vector<{self.dialect.types[param.dtype]}, {len(values)}>"
        return f"*({kind}*)({pointer} + {index}) = {kind}{{{', '.join(values)}}};"

    def param(self, param) -> str:
        return f"p{param.slot}"

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, root: Node, scope: Scope) -> str:
        """The expression's text; operands first, so that deep expressions do not recurse."""
        texts = dict(scope.named)
        for n in toposort(root, enter=lambda n: n not in texts):
            if n not in texts:
                texts[n] = self.node(n, texts)
        text = texts[root]
        return text[1:-1] if text.startswith("(") and closes_last(text) else text

    def node(self, n: Node, texts: dict[Node, str]) -> str:
        op, src = n.op, [texts[s] for s in n.src]
        if op in self.dialect.values:
            return self.dialect.values[op](self, n, src)
        if op is ops.CONST:
            return self.literal(n.arg, n.dtype)
        if op is AXIS:
            return self.counter(n)
        if op is ops.VARIABLE:
            return self.names[n]
        if op is LOAD:
            access = f"{self.param(n.arg)}[{src[0]}]"
            return access if n.src[1] is TRUE else f"({src[1]} ? {access} : {self.literal(0, n.dtype)})"
        if op is t.ELEMENT:
            return f"{self.names[n.arg]}[{src[0]}]"
        if op is t.LANE:
            return f"{src[0]}.x[{n.arg}]"
        if op is ops.WHERE:
            return f"({src[0]} ? {src[1]} : {src[2]})"
        if op is ops.CAST:
            return self.cast(src[0], n.src[0].dtype, n.dtype)
        if op is ops.BITCAST:
            return f"bitcast<{self.dialect.types[n.dtype]}>({src[0]})"
        return self.arithmetic(n, src)

    def arithmetic(self, n: Node, src: list[str]) -> str:
        op, dtype = n.op, n.src[0].dtype
        if dtype.is_float and dtype.itemsize == 2:  # 16-bit floats are stored, not computed with
            src = [self.cast(s, dtype, dtypes.float32) for s in src]
            text = self.operation(op, dtypes.float32, src)
            return text if n.dtype is dtypes.bool_ else self.cast(text, dtypes.float32, dtype)
        if dtype is dtypes.index:
            return self.index(n, src)
        text = self.operation(op, dtype, src)
        if dtype.is_int and dtype.itemsize < 4 and n.dtype is dtype:
            return f"({self.dialect.types[dtype]}){text}"
        return text

    def index(self, n: Node, src: list[str]) -> str:
        """int64 arithmetic, in 32 bits where the bounds allow."""
        op = n.op
        if op in (ops.IDIV, ops.MOD) and bounds(n.src[0])[0] >= 0 and bounds(n.src[1])[0] > 0:
            return f"({src[0]} {'/' if op is ops.IDIV else '%'} {src[1]})"
        if op in WRAPPED or op is ops.NEG or op in CALLS:
            wide = self.wide(n)
            src = [f"(long long){s}" if wide and not self.wide(v) else s for s, v in zip(src, n.src)]
        if op in WRAPPED:
            return f"({src[0]} {WRAPPED[op]} {src[1]})"
        return self.operation(op, dtypes.index, src, self.type(n))

    def operation(self, op, dtype: DType, src: list[str], kind: str = "") -> str:
        """An elementwise operation by name or sign; kind: the operands' type where the dtype does not say."""
        if dtype is dtypes.bool_ and op in BOOLEAN:
            return f"(bool)({src[0]} {BOOLEAN[op]} {src[1]})"  # both sides always run: one may be an exchange
        if (op, dtype) in self.dialect.calls:
            return f"{self.dialect.calls[op, dtype]}({', '.join(src)})"
        if op in WRAPPED or op is ops.NEG:
            sign = WRAPPED.get(op, "-")
            if dtype.kind == "i" and dtype is not dtypes.index:  # signed overflow wraps
                name = self.dialect.types[dtypes.uint32 if dtype.itemsize <= 4 else dtypes.uint64]
                src = [f"({name}){s}" for s in src]
                text = f"({src[0]} {sign} {src[1]})" if len(src) == 2 else f"(-{src[0]})"
                return f"({self.dialect.types[dtype]}){text}"
            return f"({src[0]} {sign} {src[1]})" if len(src) == 2 else f"(-{src[0]})"
        if op is ops.DIV:
            return f"({src[0]} / {src[1]})"
        if op in INFIX:
            return f"({src[0]} {INFIX[op]} {src[1]})"
        name = CALLS[op]
        if op in TYPED and dtype is not dtypes.float32:
            name += f"<{kind or self.dialect.types[dtype]}>"
        if op in (ops.SQRT, ops.EXP2, ops.LOG2, ops.SIN, ops.TRUNC) and dtype is dtypes.float32:
            name += "f"
        return f"{name}({', '.join(src)})"

    def cast(self, text: str, source: DType, result: DType) -> str:
        if source is result:
            return text
        if source.is_float and source.itemsize == 2:
            return self.cast(f"{source.name}_to_float({text})", dtypes.float32, result)
        if result is dtypes.bool_:
            return f"({text} != 0)"
        if result.is_float and result.itemsize == 2:
            return f"float_to_{result.name}({self.cast(text, source, dtypes.float32)})"
        return f"({self.dialect.types[result]}){text}"

    def literal(self, value, dtype: DType) -> str:
        if dtype is dtypes.bool_:
            return "true" if value else "false"
        if not dtype.is_float:
            wide = dtype.itemsize == 8 and not -(1 << 31) < value < 1 << 31
            return f"{value}{'u' if dtype.kind == 'u' else ''}{'ll' if wide else ''}" if value >= 0 else (
                f"({value}{'ll' if wide else ''})" if value > -(1 << 63) else "(-9223372036854775807ll - 1)")
        if dtype.itemsize == 2:
            return f"float_to_{dtype.name}({self.literal(value, dtypes.float32)})"
        if np.isnan(value) or np.isinf(value):
            name = "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
            return name if dtype is dtypes.float32 else f"(double){name}"
        text = str(np.float32(value)) if dtype is dtypes.float32 else repr(float(value))
        text = text if any(c in text for c in ".e") else text + ".0"
        text += "f" if dtype is dtypes.float32 else ""
        return f"({text})" if text.startswith("-") else text


def worth_a_name(n: Node) -> bool:
    """Whether a value used twice is computed once; leaves and plain register reads are not worth it."""
    return bool(n.src) and n.op not in (t.ELEMENT, t.LANE) or n.op is LOAD


def closes_last(text: str) -> bool:
    """Whether the first parenthesis closes at the end."""
    depth = 0
    for place, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return place == len(text) - 1
    return False


def with_helpers(text: str, helpers: dict[str, str]) -> str:
    """The definitions that the text uses, in the table's order, then the text."""
    used: list[str] = []
    whole = text
    for name in reversed(list(helpers)):
        if name in whole:
            used.insert(0, helpers[name])
            whole += helpers[name]
    return "\n".join([*used, text])


