"""Bounded integers: whatever is built, whichever way it folds, its value is Python's for every value of its atoms."""
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivt import dtypes, ops
from minivt.graph import node, toposort
from minivt.symbolic import (AXIS, FALSE, TRUE, UNBOUNDED, ZERO, add, as_index, as_size, axis, both, bounds, build,
                             ceil_div, conjuncts, evaluate, idiv, is_below, le, linear, lt, maximum, minimum, mod, mul,
                             sub, variable)

ATOMS = [variable("a", 0, 9), variable("b", -7, 5), variable("c", 1, 100), axis("i", 4, "tile"), axis("j", 6, "loop"),
         axis("k", variable("c", 1, 100), "grid")]
RULES = {
    "add": (add, lambda x, y: x + y), "sub": (sub, lambda x, y: x - y), "mul": (mul, lambda x, y: x * y),
    "maximum": (maximum, max), "minimum": (minimum, min),
}
DIVISIONS = {"idiv": (idiv, lambda x, y: x // y), "mod": (mod, lambda x, y: x % y),
             "ceil_div": (lambda x, y: as_index(ceil_div(x, y)), lambda x, y: -(-x // y))}


def value_of(expression, point):
    """The integer at a point, by plain rules over Python integers, one node at a time."""
    known = {}
    for current in toposort(as_index(expression)):
        src = [known[s] for s in current.src]
        op = current.op
        known[current] = (
            current.arg if op is ops.CONST else point[current] if op is AXIS or op is ops.VARIABLE
            else src[1] if op is ops.WHERE and src[0] else src[2] if op is ops.WHERE
            else {ops.ADD: lambda x, y: x + y, ops.MUL: lambda x, y: x * y, ops.IDIV: lambda x, y: x // y,
                  ops.MOD: lambda x, y: x % y, ops.LT: lambda x, y: x < y, ops.AND: lambda x, y: x and y,
                  ops.MAXIMUM: max}[op](*src))
    return known[as_index(expression)]


@st.composite
def expressions(draw, depth=4):
    """An expression and a function from a point to the integer that it must have."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.booleans()):
            number = draw(st.integers(-30, 30))
            return as_index(number), lambda point: number
        atom = draw(st.sampled_from(ATOMS))
        return atom, lambda point: point[atom]
    left, left_value = draw(expressions(depth - 1))
    name = draw(st.sampled_from([*RULES, *DIVISIONS]))
    if name in DIVISIONS:
        positive = st.sampled_from([ATOMS[2], add(ATOMS[0], 1), mul(ATOMS[2], 3), *range(1, 13)])
        divisor = draw(positive)
        make, want = DIVISIONS[name]
        return make(left, divisor), lambda point: want(left_value(point), value_of(divisor, point))
    make, want = RULES[name]
    right, right_value = draw(expressions(depth - 1))
    return make(left, right), lambda point: want(left_value(point), right_value(point))


@st.composite
def points(draw):
    point = {}
    for atom in ATOMS:
        low, high = bounds(atom)
        if atom.op is AXIS:
            size = atom.arg[1]
            high = (size if isinstance(size, int) else point[size]) - 1
        point[atom] = draw(st.integers(low, high))
    return point


@settings(max_examples=400, deadline=None, derandomize=True)
@given(expressions(), st.lists(points(), min_size=4, max_size=4))
def test_expressions_have_pythons_value_within_their_bounds(made, where):
    expression, want = made
    low, high = bounds(as_index(expression))
    for point in where:
        got = value_of(expression, point)
        assert got == want(point)
        assert low <= got <= high


@settings(max_examples=300, deadline=None, derandomize=True)
@given(expressions(3), expressions(3), st.lists(points(), min_size=4, max_size=4))
def test_comparisons(first, second, where):
    (a, a_value), (b, b_value) = first, second
    less, at_most, certain = lt(a, b), le(a, b), is_below(as_index(a), as_index(b))
    for point in where:
        x, y = a_value(point), b_value(point)
        assert value_of(less, point) == (x < y) and value_of(at_most, point) == (x <= y)
        assert x < y or not certain
        conjunction = both(both(less, at_most), lt(ZERO, b))
        assert bool(value_of(conjunction, point)) == (x < y and 0 < y)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(expressions(3), expressions(3))
def test_equal_sums_are_one_node(first, second):
    a, b = first[0], second[0]
    assert add(a, b) is add(b, a) and mul(a, b) is mul(b, a)
    assert add(sub(a, b), b) is add(a) and sub(a, a) is ZERO
    assert add(a, a) is mul(a, 2) and sub(0, sub(a, b)) is sub(b, a)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(expressions(3))
def test_build_and_linear_give_the_value_back(made):
    expression = add(made[0])
    terms, constant = linear(expression)
    assert add(constant, *(mul(atom, c) for atom, c in terms)) is expression
    if expression.op in (ops.ADD, ops.MUL, ops.IDIV, ops.MOD, ops.MAXIMUM):
        assert build(expression, expression.src) is expression


@settings(max_examples=200, deadline=None, derandomize=True)
@given(points(), expressions(3))
def test_evaluate_at_variables(point, made):
    if not any(n.op is AXIS for n in toposort(made[0])):
        assert evaluate(made[0], {"a": point[ATOMS[0]], "b": point[ATOMS[1]], "c": point[ATOMS[2]]}) == made[1](point)


def test_evaluate_needs_every_variable_and_takes_numbers():
    assert evaluate(7, {}) == 7
    with pytest.raises(KeyError):
        evaluate(ATOMS[0], {})


# --- what must fold ---------------------------------------------------------------------------------------------------
I, J, N = axis("i", 7, "tile"), axis("j", 5, "tile"), variable("n", 1, 64)
R, S = axis("r", N, "grid"), axis("s", N, "grid")


@pytest.mark.parametrize("divided, divisor, quotient, rest", [
    (add(mul(I, 5), J), 5, I, J),
    (add(mul(I, 10), mul(J, 2)), 10, I, mul(J, 2)),
    (add(mul(I, 5), J, 15), 5, add(I, 3), J),
    (add(mul(I, 5), J, -5), 5, add(I, -1), J),
    (J, 5, ZERO, J),
    (mul(I, 15), 5, mul(I, 3), ZERO),
    (add(mul(I, N), R), N, I, R),
    (add(mul(R, N), S), N, R, S),
    (add(mul(I, mul(N, 4)), mul(R, 4), axis("l", 4, "tile")), mul(N, 4), I, add(mul(R, 4), axis("l", 4, "tile"))),
    (mul(I, N), N, I, ZERO),
], ids=str)
def test_divisions_of_split_indices_vanish(divided, divisor, quotient, rest):
    assert idiv(divided, divisor) is quotient and mod(divided, divisor) is rest


def test_splitting_and_joining_gives_the_index_back():
    x = axis("x", 1000, "grid")
    for size in (2, 7, 64):
        assert add(mul(idiv(x, size), size), mod(x, size)) is x
    assert add(mul(idiv(x, 6), 12), mul(mod(x, 6), 2)) is mul(x, 2)
    for other in (5, 7, 12, -6):  # not the coefficient that joins
        total = add(mul(idiv(x, 6), other), mod(x, 6))
        assert all(value_of(total, {x: v}) == v // 6 * other + v % 6 for v in range(0, 1000, 11))
    three = add(mul(idiv(x, 35), 35), mul(mod(idiv(x, 7), 5), 7), mod(x, 7))
    assert all(value_of(three, {x: v}) == v for v in range(0, 1000, 13))


def test_nested_divisions_join():
    x = axis("x", 1000, "grid")
    assert idiv(idiv(x, 4), 5) is idiv(x, 20)
    assert mod(mod(x, 20), 5) is mod(x, 5)
    assert idiv(mul(x, 4), 8) is idiv(x, 2) and mod(mul(x, 4), 8) is mul(mod(x, 2), 4)
    assert idiv(add(mul(x, 4), 3), 8) is idiv(x, 2) and mod(add(mul(x, 4), 3), 8) is add(mul(mod(x, 2), 4), 3)


def test_comparisons_within_bounds_are_decided():
    assert lt(I, 7) is TRUE and lt(I, 0) is FALSE and le(0, I) is TRUE
    assert lt(R, N) is TRUE and lt(add(mul(R, 4), axis("l", 4, "tile")), mul(N, 4)) is TRUE
    assert lt(add(I, J), add(I, 5)) is TRUE and lt(add(I, 3), I) is FALSE
    assert minimum(I, 7) is I and maximum(I, -1) is I and minimum(N, 64) is N and maximum(N, 1) is N


def test_comparisons_that_hold_only_at_times_are_not_decided():
    backwards = sub(sub(N, 1), R)
    for condition in (lt(backwards, 1), lt(R, 1), lt(I, 6), le(R, S), lt(add(R, 1), N), lt(sub(S, R), 1)):
        assert condition not in (TRUE, FALSE)
    assert not is_below(backwards, as_index(1))


def test_conjunctions_are_flat_and_without_repeats():
    a, b, c = lt(I, 3), lt(J, 2), lt(I, 5)
    assert both(TRUE, a) is a and both(a, TRUE) is a and both(a, FALSE) is FALSE and both(a, a) is a
    assert conjuncts(both(both(a, b), both(b, c))) == [a, b, c] and conjuncts(TRUE) == []


def test_constants_fold_to_sizes():
    assert as_size(add(2, 3)) == 5 and as_size(N) is N and as_size(idiv(17, 5)) == 3 and ceil_div(17, 5) == 4
    assert as_size(mod(-1, 5)) == 4 and as_size(idiv(-1, 5)) == -1


def test_bounds_of_axes_of_no_steps_and_of_loaded_values():
    assert bounds(axis("e", 0)) == (0, 0) and bounds(R) == (0, 63)
    loaded = node(ops.CAST, (node(ops.BITCAST, (ZERO,), dtypes.float64),), dtypes.index)
    assert bounds(loaded) == (-UNBOUNDED, UNBOUNDED)


# --- size and order ---------------------------------------------------------------------------------------------------

def test_evaluate_visits_shared_work_once():
    x = variable("x", 0, 1000)
    y, want = x, 3
    for step in range(200):  # 2**200 paths
        y = node(ops.MAXIMUM, (node(ops.MOD, (y, as_index(1000 - step))), node(ops.IDIV, (y, as_index(2)))))
        want = max(want % (1000 - step), want // 2)
    assert evaluate(y, {"x": 3}) == want


def test_deep_expressions_do_not_recurse():
    x = variable("x", 0, 1000)
    deep = x
    for step in range(5000):
        deep = node(ops.MAXIMUM, (node(ops.IDIV, (deep, as_index(2))), x))
    assert bounds(deep) == (0, 1000)
    assert evaluate(deep, {"x": 7}) == 7
    long = lt(x, 1)
    for step in range(3000):
        long = node(ops.AND, (long, lt(x, step + 2)))
    assert len(conjuncts(long)) > 900
    total = x
    for step in range(3000):
        total = node(ops.ADD, (total, variable(f"v{step}", 0, 1)))
    assert len(linear(total)[0]) == 3001


def test_the_order_of_terms_is_the_same_in_every_process():
    script = ("from minivt.symbolic import *\n"
              "junk = [object() for _ in range(int(__import__('sys').argv[1]))]\n"
              "x = axis('x', 1000)\n"
              "parts = [mod(idiv(x, n), 7) for n in (3, 11, 5, 13)]\n"
              "total = add(*(parts if len(junk) % 2 else parts[::-1]))\n"
              "print([(a.src[0].src[1].arg, c) for a, c in linear(total)[0]])")
    path = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
    seen = {subprocess.run([sys.executable, "-c", script, str(n)], env={**os.environ, "PYTHONPATH": path},
                           capture_output=True, text=True, check=True).stdout for n in (1, 2, 1001, 5000)}
    assert len(seen) == 1
