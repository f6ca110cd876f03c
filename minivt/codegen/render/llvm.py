"""LLVM IR text of functions: with llvm_module.py the only place of LLVM instruction strings.

A Builder writes one function as nested scopes, one for each open loop. A Value knows the depth of the scope that
defines it, and an instruction goes to the deepest scope among its operands, so whatever does not depend on a loop's
counter lands before the loop, and equal instructions of one scope are written once. A Value is one scalar or one
vector; operands of mixed width are widened by repeating the scalar. Not for deciding loops or lanes (vectorize.py).
"""
from __future__ import annotations

import struct
from typing import Iterable, NamedTuple

import numpy as np

from minivt import dtypes
from minivt.dtypes import DType

HALF = (dtypes.float16, dtypes.bfloat16)
_TYPES = {dtypes.bool_: "i1", dtypes.float16: "half", dtypes.bfloat16: "i16", dtypes.float32: "float",
          dtypes.float64: "double"}
_MANGLED = {"float": "f32", "double": "f64", "half": "f16"}


class Value(NamedTuple):
    """One scalar (lanes 0) or vector of LLVM; depth: the scope that defines it, 0 for constants and arguments."""
    text: str
    dtype: DType | None  # None: a pointer
    lanes: int = 0
    depth: int = 0


class Scope:
    """The instructions of one loop body so far; `label` is the basic block that is being written."""

    def __init__(self, label: str):
        self.lines: list[str] = []
        self.label = label
        self.known: dict[str, Value] = {}


class Builder:
    """Writes the body of one function.

    native_half: the processor converts float16; otherwise float16 is held as its bits and converted by arithmetic.
    """

    def __init__(self, native_half: bool):
        self.native_half = native_half
        self.scopes = [Scope("entry")]
        self.loops: list[tuple] = []
        self.declared: dict[str, str] = {}  # declarations and constants of the module, by name
        self.count = 0

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    # --- types and constants -----------------------------------------------------------------------------------------

    def type(self, dtype: DType | None, lanes: int = 0) -> str:
        if dtype is None:
            scalar = "ptr"
        elif dtype is dtypes.float16 and not self.native_half:
            scalar = "i16"
        else:
            scalar = _TYPES.get(dtype) or f"i{8 * dtype.itemsize}"
        return f"<{lanes} x {scalar}>" if lanes else scalar

    def const(self, value, dtype: DType) -> Value:
        """A scalar constant."""
        if dtype is dtypes.bool_:
            return Value("true" if value else "false", dtype)
        if dtype.is_int:
            return Value(str(int(value)), dtype)
        with np.errstate(all="ignore"):
            single = np.float32(value)
            half = int(single.astype(np.float16).view(np.uint16))
        if dtype is dtypes.bfloat16:
            return Value(str(int(dtypes.float_to_bfloat16(single))), dtype)
        if dtype is dtypes.float16:
            return Value(f"0xH{half:04X}" if self.native_half else str(half), dtype)
        number = float(single) if dtype is dtypes.float32 else float(value)
        return Value("0x%016X" % struct.unpack("<Q", struct.pack("<d", number)), dtype)

    def like(self, value, other: Value) -> Value:
        """The constant in the dtype of `other`."""
        return self.const(value, other.dtype)

    def mask(self, bits: Iterable[bool]) -> Value:
        """A constant vector of bools."""
        bits = list(bits)
        return Value("<" + ", ".join(f"i1 {'true' if b else 'false'}" for b in bits) + ">", dtypes.bool_, len(bits))

    def iota(self, lanes: int, dtype: DType = dtypes.int64) -> Value:
        """0, 1, 2, ... one a lane."""
        kind = self.type(dtype)
        return Value("<" + ", ".join(f"{kind} {i}" for i in range(lanes)) + ">", dtype, lanes)

    def splat(self, value: Value, lanes: int) -> Value:
        if value.lanes or not lanes:
            return value
        if not value.text.startswith("%"):
            return Value(f"splat ({self.type(value.dtype)} {value.text})", value.dtype, lanes)
        kind = self.type(value.dtype, lanes)
        first = self.pure(value.dtype, lanes, f"insertelement {kind} poison, {self.type(value.dtype)} %s, i64 0", value)
        return self.pure(value.dtype, lanes, f"shufflevector {kind} %s, {kind} poison, <{lanes} x i32> zeroinitializer",
                         first)

    # --- instructions ------------------------------------------------------------------------------------------------

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def pure(self, dtype: DType | None, lanes: int, form: str, *operands: Value) -> Value:
        """An instruction without effects, in the deepest scope of its operands, once. `form` has %s for each."""
        depth = max((o.depth for o in operands), default=0)
        text = form % tuple(o.text for o in operands)
        known = self.scopes[depth].known
        if text not in known:
            known[text] = self.effect(dtype, lanes, text, depth)
        return known[text]

    def effect(self, dtype: DType | None, lanes: int, text: str, depth: int) -> Value:
        """An instruction with a result in the scope of that depth."""
        name = self.name()
        self.scopes[depth].lines.append(f"{name} = {text}")
        return Value(name, dtype, lanes, depth)

    def even(self, *values: Value) -> list[Value]:
        """All as vectors when one is."""
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values]

    def binary(self, instruction: str, x: Value, y: Value) -> Value:
        x, y = self.even(x, y)
        return self.pure(x.dtype, x.lanes, f"{instruction} {self.type(x.dtype, x.lanes)} %s, %s", x, y)

    def compare(self, predicate: str, x: Value, y: Value) -> Value:
        x, y = self.even(x, y)
        instruction = "fcmp" if x.dtype.is_float else "icmp"
        return self.pure(dtypes.bool_, x.lanes, f"{instruction} {predicate} {self.type(x.dtype, x.lanes)} %s, %s", x, y)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        x, y = self.even(x, y)
        if condition.lanes and not x.lanes:
            x, y = self.splat(x, condition.lanes), self.splat(y, condition.lanes)
        kind = self.type(x.dtype, x.lanes)
        form = f"select {self.type(dtypes.bool_, condition.lanes)} %s, {kind} %s, {kind} %s"
        return self.pure(x.dtype, x.lanes, form, condition, x, y)

    def convert(self, instruction: str, x: Value, dtype: DType) -> Value:
        kinds = self.type(x.dtype, x.lanes), self.type(dtype, x.lanes)
        return self.pure(dtype, x.lanes, f"{instruction} {kinds[0]} %s to {kinds[1]}", x)

    def call(self, intrinsic: str, dtype: DType, *args: Value) -> Value:
        """llvm.<intrinsic>, overloaded on the result and, when their type differs, the argument."""
        args = self.even(*args)
        lanes = args[0].lanes
        types = [self.type(dtype, lanes)] + [self.type(a.dtype, lanes) for a in args]
        overload = types[:1] if types[1] == types[0] else types[:2]
        name = ".".join(["@llvm." + intrinsic] + [_mangle(t) for t in overload])
        self.declare(name, types[0], types[1:])
        passed = ", ".join(f"{t} %s" for t in types[1:])
        return self.pure(dtype, lanes, f"call {types[0]} {name}({passed})", *args)

    def declare(self, name: str, result: str, args: list[str]) -> None:
        self.declared[name] = f"declare {result} {name}({', '.join(args)})"

    # --- arithmetic by kind of dtype ---------------------------------------------------------------------------------

    def add(self, x: Value, y: Value, contract: bool = False) -> Value:
        flag = " contract" if contract else ""
        return self.binary("or" if x.dtype.kind == "b" else "fadd" + flag if x.dtype.is_float else "add", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return self.binary("fsub" if x.dtype.is_float else "sub", x, y)

    def mul(self, x: Value, y: Value, contract: bool = False) -> Value:
        flag = " contract" if contract else ""
        return self.binary("and" if x.dtype.kind == "b" else "fmul" + flag if x.dtype.is_float else "mul", x, y)

    def multiply_add(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z, rounded once or twice as the target likes."""
        return self.add(self.mul(x, y, contract=True), z, contract=True)

    def add_pairs(self, total: Value, x: Value, y: Value) -> Value:
        """total + x0 * y0 + x1 * y1 for 16 lanes of two bfloat16 each, held as uint32."""
        total, x, y = (self.splat(v, 16) for v in (total, x, y))
        name, wide, pairs = "@llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>"
        self.declare(name, wide, [wide, pairs, pairs])
        halves = [self.pure(dtypes.uint32, 16, f"bitcast <16 x i32> %s to {pairs}", v) for v in (x, y)]
        return self.pure(dtypes.float32, 16, f"call {wide} {name}({wide} %s, {pairs} %s, {pairs} %s)", total, *halves)

    def less(self, x: Value, y: Value) -> Value:
        return self.compare("olt" if x.dtype.is_float else "slt" if x.dtype.kind == "i" else "ult", x, y)

    def differ(self, x: Value, y: Value) -> Value:
        return self.compare("une" if x.dtype.is_float else "ne", x, y)

    def is_nan(self, x: Value) -> Value:
        return self.compare("uno", x, x)

    def maximum(self, x: Value, y: Value) -> Value:
        """The larger; NaN if either is NaN (the first select gives y where they do not compare)."""
        if x.dtype.kind == "b":
            return self.binary("or", x, y)
        larger = self.select(self.less(y, x), x, y)
        return self.select(self.is_nan(x), x, larger) if x.dtype.is_float else larger

    def bits(self, x: Value, dtype: DType) -> Value:
        same = self.type(x.dtype) == self.type(dtype)
        return x._replace(dtype=dtype) if same else self.convert("bitcast", x, dtype)

    def both(self, x: Value, y: Value) -> Value:
        return self.binary("and", x, y)

    def either(self, x: Value, y: Value) -> Value:
        return self.binary("or", x, y)

    def exclusive(self, x: Value, y: Value) -> Value:
        return self.binary("xor", x, y)

    def shift_left(self, x: Value, y: Value) -> Value:
        return self.binary("shl", x, y)

    def shift_right(self, x: Value, y: Value) -> Value:
        return self.binary("ashr" if x.dtype.kind == "i" else "lshr", x, y)

    def sqrt(self, x: Value) -> Value:
        return self.call("sqrt", x.dtype, x)

    def trunc(self, x: Value) -> Value:
        return self.call("trunc", x.dtype, x)

    def divide(self, x: Value, y: Value) -> Value:
        return self.binary("fdiv", x, y)

    def negate(self, x: Value) -> Value:
        if not x.dtype.is_float:
            return self.sub(self.like(0, x), x)
        if self.type(x.dtype) == "i16":
            return self.exclusive(x, Value("-32768", x.dtype))
        return self.pure(x.dtype, x.lanes, f"fneg {self.type(x.dtype, x.lanes)} %s", x)

    def quotient(self, x: Value, y: Value, remainder: bool) -> Value:
        """The plain machine quotient or remainder, truncated; y is neither 0 nor, if signed, -1 with the lowest x."""
        letter = "s" if x.dtype.kind == "i" else "u"
        return self.binary(f"{letter}{'rem' if remainder else 'div'}", x, y)

    def unsigned(self, x: Value) -> Value:
        return x._replace(dtype=dtypes.BY_NAME[f"uint{8 * x.dtype.itemsize}"])

    # --- conversions -------------------------------------------------------------------------------------------------

    def cast(self, x: Value, dtype: DType) -> Value:
        """The nearest value of another dtype; floats to integers truncate and saturate, NaN gives 0."""
        source = x.dtype
        if source is dtype:
            return x
        if source in HALF:
            return self.cast(self._widen(x), dtype)
        if dtype in HALF:
            return self._narrow(self.cast(x, dtypes.float32), dtype)
        if dtype is dtypes.bool_:
            return self.differ(x, self.like(0, x))
        if source.is_float and dtype.is_float:
            return self.convert("fpext" if dtype.itemsize > source.itemsize else "fptrunc", x, dtype)
        if source.is_float:
            return self.call("fptosi.sat" if dtype.kind == "i" else "fptoui.sat", dtype, x)
        if dtype.is_float:
            return self.convert("sitofp" if source.kind == "i" else "uitofp", x, dtype)
        if source.kind != "b" and source.itemsize >= dtype.itemsize:
            return x._replace(dtype=dtype) if source.itemsize == dtype.itemsize else self.convert("trunc", x, dtype)
        return self.convert("sext" if source.kind == "i" else "zext", x, dtype)

    def _widen(self, x: Value) -> Value:
        """float16 or bfloat16 to float32, exactly."""
        if x.dtype is dtypes.float16 and self.native_half:
            return self.convert("fpext", x, dtypes.float32)
        wide = self.convert("zext", x, dtypes.uint32)
        if x.dtype is dtypes.bfloat16:
            return self.bits(self.shift_left(wide, self.like(16, wide)), dtypes.float32)
        magnitude = self.both(wide, self.like(0x7FFF, wide))
        shifted = self.shift_left(magnitude, self.like(13, wide))
        finite = self.mul(self.bits(shifted, dtypes.float32), self.const(2.0 ** 112, dtypes.float32))
        special = self.less(self.like(0x7BFF, wide), magnitude)
        number = self.select(special, self.either(shifted, self.like(0x7F800000, wide)),
                             self.bits(finite, dtypes.uint32))
        sign = self.shift_left(self.both(wide, self.like(0x8000, wide)), self.like(16, wide))
        return self.bits(self.either(number, sign), dtypes.float32)

    def _narrow(self, x: Value, dtype: DType) -> Value:
        """float32 to float16 or bfloat16, to nearest even."""
        if dtype is dtypes.float16 and self.native_half:
            return self.convert("fptrunc", x, dtype)
        bits = self.bits(x, dtypes.uint32)
        c = lambda value: self.like(value, bits)
        if dtype is dtypes.bfloat16:
            high = self.shift_right(bits, c(16))
            rounded = self.shift_right(self.add(bits, self.add(self.both(high, c(1)), c(0x7FFF))), c(16))
            chosen = self.select(self.is_nan(x), self.either(high, c(0x40)), rounded)
            return self.convert("trunc", chosen, dtype)
        size = self.both(bits, c(0x7FFFFFFF))
        odd = self.both(self.shift_right(size, c(13)), c(1))
        normal = self.shift_right(self.add(size, self.add(odd, c((0xFFF - (112 << 23)) & 0xFFFFFFFF))), c(13))
        half = self.const(0.5, dtypes.float32)  # its last bit is worth 2**-24, as a subnormal float16's
        tiny = self.sub(self.bits(self.add(self.bits(size, dtypes.float32), half), dtypes.uint32), c(0x3F000000))
        large = self.select(self.less(c(0x7F800000), size), c(0x7E00), c(0x7C00))
        small = self.select(self.less(size, c(0x38800000)), tiny, normal)
        chosen = self.select(self.less(size, c(0x47800000)), small, large)
        sign = self.both(self.shift_right(bits, c(16)), c(0x8000))
        return self.convert("trunc", self.either(chosen, sign), dtype)

    # --- lanes -------------------------------------------------------------------------------------------------------

    def shuffle(self, x: Value, y: Value, order: list[int]) -> Value:
        """Lanes of x, then of y, by number."""
        kind, picks = self.type(x.dtype, x.lanes), ", ".join(f"i32 {i}" for i in order)
        form = f"shufflevector {kind} %s, {kind} %s, <{len(order)} x i32> <{picks}>"
        return self.pure(x.dtype, len(order), form, x, y)

    def transpose(self, rows: list[Value]) -> list[Value]:
        """As many vectors as lanes, rows to columns: each round interleaves the first half with the second.

        before:  a0 a1 a2 a3, b0 b1 b2 b3, c0 c1 c2 c3, d0 d1 d2 d3
        one:     a0 c0 a1 c1, a2 c2 a3 c3, b0 d0 b1 d1, b2 d2 b3 d3
        two:     a0 b0 c0 d0, a1 b1 c1 d1, a2 b2 c2 d2, a3 b3 c3 d3
        """
        count = len(rows)
        low = [lane + half for lane in range(count // 2) for half in (0, count)]
        high = [lane + count // 2 for lane in low]
        for _ in range(count.bit_length() - 1):
            pairs = zip(rows[:count // 2], rows[count // 2:])
            rows = [self.shuffle(x, y, order) for x, y in pairs for order in (low, high)]
        return rows

    def first(self, x: Value) -> Value:
        return self.pure(x.dtype, 0, f"extractelement {self.type(x.dtype, x.lanes)} %s, i64 0", x)

    def any(self, mask: Value) -> Value:
        """Whether some lane of a vector of bools is true."""
        name, kind = f"@llvm.vector.reduce.or.v{mask.lanes}i1", self.type(mask.dtype, mask.lanes)
        self.declare(name, "i1", [kind])
        return self.pure(mask.dtype, 0, f"call i1 {name}({kind} %s)", mask)

    def halves(self, x: Value) -> tuple[Value, Value]:
        half = x.lanes // 2
        return self.shuffle(x, x, list(range(half))), self.shuffle(x, x, list(range(half, x.lanes)))

    # --- memory ------------------------------------------------------------------------------------------------------

    def memory_type(self, dtype: DType, lanes: int = 0) -> str:
        return self.type(dtypes.uint8 if dtype is dtypes.bool_ else dtype, lanes)

    def address(self, base: Value, index: Value, dtype: DType) -> Value:
        """The address, or a vector of addresses, of elements of an array."""
        return self.pure(None, index.lanes,
                         f"getelementptr {self.memory_type(dtype)}, ptr %s, {self.type(index.dtype, index.lanes)} %s",
                         base, index)

    def load(self, where: Value, dtype: DType, lanes: int, floor: int, mask: Value | None = None) -> Value:
        """A scalar, `lanes` neighbours, or for a vector of addresses their elements; 0 where the mask is false.

        floor: the least depth at which the memory may be read.
        """
        held = dtypes.uint8 if dtype is dtypes.bool_ else dtype
        depth = max(where.depth, floor, mask.depth if mask else 0)
        kind, align = self.type(held, lanes), dtype.itemsize
        if where.lanes:
            kinds = [self.type(None, lanes), "i32", self.type(dtypes.bool_, lanes), kind]
            mask = self.splat(mask or self.const(True, dtypes.bool_), lanes)
            text = self._intrinsic("masked.gather", kind, kinds, f".{_mangle(kind)}.v{lanes}p0",
                                   (where.text, align, mask.text, "zeroinitializer"))
        elif mask is None:
            text = f"load {kind}, ptr {where.text}, align {align}"
        else:
            kinds = ["ptr", "i32", self.type(dtypes.bool_, lanes), kind]
            text = self._intrinsic("masked.load", kind, kinds, f".{_mangle(kind)}.p0",
                                   (where.text, align, self.splat(mask, lanes).text, "zeroinitializer"))
        loaded = self.effect(held, lanes, text, depth)
        return self.differ(loaded, self.like(0, loaded)) if dtype is dtypes.bool_ else loaded

    def prefetch(self, where: Value, ahead: int) -> None:
        """Ask for the cache line `ahead` bytes further on, in the innermost scope."""
        self.declare("@llvm.prefetch.p0", "void", ["ptr", "i32 immarg", "i32 immarg", "i32 immarg"])
        line = self.address(where, self.const(ahead, dtypes.int64), dtypes.uint8)
        self.scopes[-1].lines.append(f"call void @llvm.prefetch.p0(ptr {line.text}, i32 0, i32 3, i32 1)")

    def store(self, where: Value, value: Value, mask: Value | None = None) -> None:
        """The reverse of load, in the innermost scope; a scalar with a mask is stored behind a branch."""
        align = value.dtype.itemsize
        if value.dtype is dtypes.bool_:
            value = self.convert("zext", value, dtypes.uint8)
        kind = self.type(value.dtype, value.lanes)
        lines = self.scopes[-1].lines
        if where.lanes:
            mask = self.splat(mask or self.const(True, dtypes.bool_), value.lanes)
            kinds = [kind, self.type(None, value.lanes), "i32", self.type(dtypes.bool_, value.lanes)]
            lines.append(self._intrinsic("masked.scatter", "void", kinds, f".{_mangle(kind)}.v{value.lanes}p0",
                                         (value.text, where.text, align, mask.text)))
        elif mask is None:
            lines.append(f"store {kind} {value.text}, ptr {where.text}, align {align}")
        elif value.lanes:
            kinds = [kind, "ptr", "i32", self.type(dtypes.bool_, value.lanes)]
            lines.append(self._intrinsic("masked.store", "void", kinds, f".{_mangle(kind)}.p0",
                                         (value.text, where.text, align, self.splat(mask, value.lanes).text)))
        else:
            self.count += 1
            then, after = f"store{self.count}", f"after{self.count}"
            lines += [f"br i1 {mask.text}, label %{then}, label %{after}", f"{then}:",
                      f"store {kind} {value.text}, ptr {where.text}, align {align}", f"br label %{after}", f"{after}:"]
            self.scopes[-1].label = after

    def _intrinsic(self, name: str, result: str, kinds: list[str], overload: str, operands: tuple) -> str:
        name = f"@llvm.{name}{overload}"
        immediate = ["i32 immarg" if k == "i32" else k for k in kinds]
        self.declare(name, result, immediate)
        return f"call {result} {name}(" + ", ".join(f"{k} {o}" for k, o in zip(kinds, operands)) + ")"

    def table(self, name: str, words: tuple[int, ...], index: Value) -> Value:
        """Elements of a constant array of 64-bit words."""
        self.declared["@" + name] = (f"@{name} = internal constant [{len(words)} x i64] ["
                                     + ", ".join(f"i64 {w}" for w in words) + "]")
        return self.load(self.address(Value("@" + name, None), index, dtypes.uint64), dtypes.uint64, index.lanes, 0)

    def zeros(self) -> Value:
        """The address of zeros, a vector of any dtype: where a load goes whose mask is false."""
        self.declared["@zeros"] = "@zeros = internal constant [512 x i8] zeroinitializer, align 64"
        return Value("@zeros", None)

    # --- loops -------------------------------------------------------------------------------------------------------

    def open_block(self) -> None:
        """Begin a scope that is no loop: what its loads give is forgotten at its end."""
        self.scopes.append(Scope(self.scopes[-1].label))

    def close_block(self) -> None:
        block = self.scopes.pop()
        self.scopes[-1].lines += block.lines
        self.scopes[-1].label = block.label

    def open_loop(self, start: Value, stop: Value, carried: list[Value] = (), guard: bool = False) -> list[Value]:
        """Begin `for start <= counter < stop`; returns the counter and the carried values as the body sees them.

        guard: the loop may run no times; otherwise it runs at least once. A guarded loop carries nothing.
        """
        self.count += 1
        number, depth = self.count, len(self.scopes)
        phis = [Value(f"%c{number}.{i}", v.dtype, v.lanes, depth) for i, v in enumerate(carried)]
        self.loops.append((number, start, stop, list(carried), phis, guard))
        self.scopes.append(Scope(f"body{number}"))
        return [Value(f"%i{number}", dtypes.int64, 0, depth), *phis]

    def close_loop(self, carried: list[Value] = ()) -> list[Value]:
        """End the innermost loop with the carried values of the next step; returns their last values."""
        number, start, stop, first, phis, guard = self.loops.pop()
        body, outer = self.scopes.pop(), self.scopes[-1]
        into, lines = f"body{number}", outer.lines
        if guard:
            lines += [f"%g{number} = icmp slt i64 {start.text}, {stop.text}",
                      f"br i1 %g{number}, label %{into}, label %exit{number}"]
        else:
            lines.append(f"br label %{into}")
        lines += [f"{into}:", f"%i{number} = phi i64 [ {start.text}, %{outer.label} ], [ %n{number}, %{body.label} ]"]
        for phi, begin, end in zip(phis, first, carried):
            lines.append(f"{phi.text} = phi {self.type(phi.dtype, phi.lanes)} [ {begin.text}, %{outer.label} ], "
                         f"[ {end.text}, %{body.label} ]")
        lines += body.lines
        lines += [f"%n{number} = add nsw i64 %i{number}, 1", f"%t{number} = icmp slt i64 %n{number}, {stop.text}",
                  f"br i1 %t{number}, label %{into}, label %exit{number}, !llvm.loop !0", f"exit{number}:"]
        outer.label = f"exit{number}"
        return [v._replace(depth=len(self.scopes) - 1) if v.depth >= len(self.scopes) else v for v in carried]


def _mangle(kind: str) -> str:
    if kind.startswith("<"):
        lanes, scalar = kind[1:-1].split(" x ")
        return f"v{lanes}{_MANGLED.get(scalar, scalar)}"
    return _MANGLED.get(kind, kind)
