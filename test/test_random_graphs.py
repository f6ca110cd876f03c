"""Random graphs mean the same on a device that schedules them as in NumPy, in tiles of a few elements as in large ones.

A graph grows by steps that Hypothesis draws. Whole numbers are followed exactly: on them all backends agree to the bit.
"""
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minivt
import scheduled
from minivt import Tensor, Variable, arange, cat, where

N, START = Variable("random_n", 1, 6), Variable("random_start", 0, 3)
EXACT = 1 << 20  # whole numbers up to here; sums of products of them are exact in float32
TYPES = ("float32", "float32", "int32", "int64", "uint8", "bool")


class Pair:
    """One value on both devices. bound: of the whole numbers that it holds, None where it is rounded."""

    def __init__(self, tensors, bound):
        self.tensors, self.bound = tensors, bound
        self.shape, self.ndim, self.dtype = tensors[0].shape, tensors[0].ndim, tensors[0].dtype

    def map(self, function, *others, bound=None):
        """bound: of the result; it is followed for dtypes in which it cannot wrap around."""
        tensors = [function(*operands) for operands in zip(self.tensors, *(o.tensors for o in others))]
        exact = bound is not None and bound < EXACT and tensors[0].dtype.itemsize >= 4
        return Pair(tensors, bound if exact else None)

    @property
    def is_fixed(self) -> bool:
        return all(isinstance(s, int) and s > 0 for s in self.shape)


def most(shape) -> int:
    return int(np.prod([s if isinstance(s, int) else s.bounds[1] for s in shape]))


def product(*bounds):
    return None if None in bounds else int(np.prod(bounds))


class Growth:
    """A pool of values and the steps that add to it."""

    def __init__(self, draw, device):
        self.draw, self.devices = draw, (device, "reference")
        self.pool = [self.source((4, 6)), self.source()]

    def number(self, low, high):
        return self.draw(st.integers(low, high))

    def choose(self, values):
        return self.draw(st.sampled_from(list(values)))

    def source(self, shape=None):
        shape = tuple(self.number(1, 6) for _ in range(self.number(0, 3))) if shape is None else shape
        rng, dtype = np.random.default_rng(self.number(0, 9)), self.choose((*TYPES, "rounded", "counter"))
        if dtype == "counter":
            return Pair([arange(max(1, most(shape)), device=d).reshape(shape) for d in self.devices], most(shape) + 1)
        rounded = dtype == "rounded"
        least = 0 if dtype in ("uint8", "bool") else -4
        array = rng.standard_normal(shape) if rounded else rng.integers(least, 5, shape)
        array = array.astype("float32" if rounded else dtype)
        return Pair([Tensor(array.copy(), device=d) for d in self.devices], None if rounded or dtype == "uint8" else 4)

    def fitting(self, value):
        """Something that broadcasts with the value."""
        other = self.choose(self.pool)
        ends = zip(other.shape[::-1], value.shape[::-1])
        if other.ndim <= value.ndim and all(a == b or isinstance(a, int) and a == 1 for a, b in ends):
            return other
        shape = tuple(s if isinstance(s, int) and self.number(0, 2) else 1 for s in value.shape)
        return self.source(shape[self.number(0, len(shape)):])

    def step(self):
        value = self.choose(self.pool)
        made = self.choose((self.move, self.move, self.move, self.unary, self.binary, self.binary, self.choice,
                            self.reduce, self.reduce, self.normalise, self.contract, self.gather, self.join,
                            self.assign))(value)
        if made is not None and most(made.shape) <= 2000 and made.ndim <= 4:
            self.pool.append(made)

    # --- steps: a value to a new one, or None where the step does not fit ---

    def move(self, value):
        if not value.ndim:
            return value.map(lambda t: t.reshape(1, 1), bound=value.bound)
        axis = self.number(0, value.ndim - 1)
        size = value.shape[axis]
        front = (slice(None),) * axis
        kind = self.choose(("reshape", "permute", "expand", "pad", "slice", "stride", "flip", "variable", "repeat"))
        if kind == "reshape":
            rows = self.choose([n for n in range(1, most(value.shape) + 1) if most(value.shape) % n == 0] or [1])
            how = (lambda t: t.reshape(rows, -1)) if value.is_fixed else (lambda t: t.flatten())
        elif kind == "permute":
            order = self.draw(st.permutations(range(value.ndim)))
            how = lambda t: t.permute(*order)  # noqa: E731
        elif kind == "expand":
            count = self.number(1, 3)
            how = lambda t: t.unsqueeze(axis).expand(*t.shape[:axis], count, *t.shape[axis:])  # noqa: E731
        elif kind == "pad":
            widths = [(self.number(0, 2), self.number(0, 2)) for _ in value.shape]
            how = lambda t: t.pad(widths)  # noqa: E731
        elif kind == "variable" and isinstance(size, int) and size >= 6:
            part = self.choose((slice(0, N), slice(START, START + 3)))
            how = lambda t: t[(*front, part)]  # noqa: E731
        elif kind == "slice" and isinstance(size, int):
            low = self.number(0, size)
            part = slice(low, self.number(low, size))
            how = lambda t: t[(*front, part)]  # noqa: E731
        elif kind == "stride" and isinstance(size, int):
            every = self.choose((2, 3, -1, -2))
            how = lambda t: t[(*front, slice(None, None, every))]  # noqa: E731
        elif kind == "flip":
            how = lambda t: t.flip(axis)  # noqa: E731
        else:
            how = lambda t: t.repeat(2, axis)  # noqa: E731
        return value.map(how, bound=value.bound)

    def unary(self, value):
        kind = self.choose(("scale", "shift", "cast", "exp2", "sqrt", "sin", "reciprocal", "absolute"))
        if kind == "cast" and value.bound is not None and value.bound <= 100:
            dtype = self.choose(("float32", "int32", "int64", "float16", "bfloat16", "int8", "float64"))
            made = value.map(lambda t: t.cast(dtype), bound=value.bound)
            return made
        value = self.numbers(value)
        if kind == "scale":
            return value.map(lambda t: t * 3, bound=product(value.bound, 3))
        if kind == "shift":
            return value.map(lambda t: t + 2, bound=None if value.bound is None else value.bound + 2)
        if kind == "absolute":
            return value.map(lambda t: abs(t), bound=value.bound)
        value = self.floats(value)
        functions = {"exp2": lambda t: t.clip(-9.0, 3.0).exp2(), "sqrt": lambda t: abs(t).sqrt(),
                     "reciprocal": lambda t: 1.0 / (abs(t) + 1.0), "sin": lambda t: t.clip(-9.0, 9.0).sin()}
        return value.map(functions[kind]) if kind in functions else None

    def numbers(self, value):
        """The value in a dtype that mixes with all others: no bool, and no uint64 of a sum."""
        mixes = value.dtype.name not in ("bool", "uint64")
        return value if mixes else value.map(lambda t: t.cast("int64"), bound=value.bound)

    def floats(self, value):
        return value if value.dtype.is_float else value.map(lambda t: t.cast("float32"), bound=value.bound)

    def binary(self, value):
        value, other = self.numbers(value), self.numbers(self.fitting(value))
        both = value.bound is not None and other.bound is not None
        kind = self.choose(("add", "subtract", "multiply", "maximum", "divide", "floor", "modulo"))
        total = value.bound + other.bound if both else None
        if kind in ("floor", "modulo"):
            if not both or value.dtype.is_float or other.dtype.is_float:
                return None
            return value.map((lambda a, b: a // b) if kind == "floor" else (lambda a, b: a % b), other, bound=total)
        if kind == "divide":
            return self.floats(value).map(lambda a, b: a / (abs(b) + 1.0), self.floats(other))
        functions = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
                     "maximum": lambda a, b: a.maximum(b)}
        bound = product(value.bound, other.bound) if kind == "multiply" else total
        return value.map(functions[kind], other, bound=bound)

    def choice(self, value):
        value, other = self.numbers(value), self.numbers(self.fitting(value))
        if value.bound is None or other.bound is None:
            return None
        compare = self.choose((lambda a, b: a < b, lambda a, b: a == b, lambda a, b: a >= b))
        if self.number(0, 1):
            return value.map(compare, other)
        third = self.numbers(self.fitting(value))
        bound = None if third.bound is None else max(value.bound, third.bound)
        return value.map(lambda a, b, c: where(compare(a, b), a, c), other, third, bound=bound)

    def axes(self, value):
        return tuple(sorted(self.draw(st.sets(st.integers(0, value.ndim - 1), min_size=1))))

    def reduce(self, value):
        if not value.ndim or 0 in value.shape:
            return None
        value, axes, keep = self.numbers(value), self.axes(value), bool(self.number(0, 1))
        kind = self.choose(("sum", "max", "argmax"))
        if kind == "sum":
            count = most([value.shape[a] for a in axes])
            return value.map(lambda t: t.sum(axes, keepdims=keep), bound=product(value.bound, count))
        if kind == "max":
            return value.map(lambda t: t.max(axes, keepdims=keep), bound=value.bound)
        return None if value.bound is None else value.map(lambda t: t.argmax(axes[0], keepdims=keep), bound=2000)

    def normalise(self, value):
        if not value.ndim or 0 in value.shape:
            return None
        value, axes = self.floats(self.numbers(value)), self.axes(value)
        return value.map(self.choose((
            lambda t: t.softmax(axes[0]), lambda t: t.logsumexp(axes[0]), lambda t: t.mean(axes),
            lambda t: t * ((t * t).mean(axes, keepdims=True) + 1.0).rsqrt())))

    def contract(self, value):
        if not value.ndim or not isinstance(value.shape[-1], int):
            return None
        value, size = self.floats(self.numbers(value)), value.shape[-1]
        candidates = [p for p in self.pool if p.ndim == 2 and p.shape[0] == size]
        other = self.choose(candidates) if candidates else self.source((size, self.number(1, 5)))
        other = self.numbers(other).map(lambda t: t.cast(value.dtype), bound=other.bound)
        return value.map(lambda a, b: a @ b, other, bound=product(value.bound, other.bound, max(1, size)))

    def gather(self, value):
        if not value.ndim:
            return None
        index = self.choose(self.pool)
        if not index.dtype.is_int or index.bound is None or most(index.shape) > 30:
            places = np.random.default_rng(self.number(0, 5)).integers(-8, 8, (self.number(1, 4),))
            index = Pair([Tensor(places, device=d) for d in self.devices], 8)
        axis = self.number(0, value.ndim - 1)
        return value.map(lambda t, i: t[(*(slice(None),) * axis, i)], index, bound=value.bound)

    def join(self, value):
        if not value.ndim or not value.is_fixed:
            return None
        axis = self.number(0, value.ndim - 1)
        other = self.source(tuple(self.number(1, 3) if a == axis else s for a, s in enumerate(value.shape)))
        bound = None if value.bound is None or other.bound is None else max(value.bound, other.bound)
        return self.numbers(value).map(lambda a, b: cat([a, b], axis), self.numbers(other), bound=bound)

    def assign(self, value):
        """A state made from the value, with one region assigned; what it held before joins the pool too."""
        if not value.ndim or not value.is_fixed or value.dtype.name == "bool":
            return None
        region = []
        for size in value.shape:
            low = self.number(0, size - 1)
            region.append(slice(low, self.number(low + 1, size)))
        moved = tuple(slice(0, r.stop - r.start) for r in region)
        realised, source = self.number(0, 1), self.choose(("one", "itself", "value"))
        states, old = [], []
        for t in value.tensors:
            x = t.contiguous().realize() if realised else t.contiguous()
            old.append(x + 0)
            x[tuple(region)] = {"one": lambda: 1, "itself": lambda: x[moved], "value": lambda: t[moved] + 0}[source]()
            states.append(x)
        bound = value.bound
        self.pool.append(Pair(old, bound))
        return Pair(states, None if bound is None else max(1, bound))


def agree(pair):
    got, expected = (t.numpy() for t in pair.tensors)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if pair.bound is not None or expected.dtype.kind != "f":
        assert np.array_equal(got, expected)
        return
    tolerance = 2e-2 if pair.dtype.itemsize == 2 else 1e-4
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * (1 + finite.max(initial=0)))


def grow_and_compare(draw, device, steps):
    growth = Growth(draw, device)
    N.bind(growth.number(1, 6)), START.bind(growth.number(0, 3))
    for _ in range(growth.number(1, steps)):
        growth.step()
    sinks = growth.pool[-growth.number(1, 3):]
    with np.errstate(all="ignore"):
        for side in range(2):
            minivt.realize(*(s.tensors[side] for s in sinks))
        for s in sinks:
            agree(s)


def graphs(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None,
                    suppress_health_check=list(HealthCheck))


@graphs(400)
@given(st.data())
def test_scheduled_graphs(data):
    grow_and_compare(data.draw, "interpret", 16)


@graphs(60)
@given(st.data())
def test_compiled_graphs(data):
    grow_and_compare(data.draw, "cpu", 10)


@pytest.fixture(scope="module")
def tiny_tiles():
    with pytest.MonkeyPatch.context() as patch:
        scheduled.small_tiles(patch, 8, 4, 2, 2, (3, 2))
        yield
    scheduled.forget_kernels()


@graphs(300)
@given(st.data())
def test_graphs_in_tiny_tiles(tiny_tiles, data):
    grow_and_compare(data.draw, "interpret", 16)
