"""Capture and replay: a function of tensors is traced once and from then on runs as one program.

    @minivt.jit
    def step(tokens, start):          # Tensors and bound Variables
        ...
        return logits

The first call traces and runs. A later call copies nothing and builds nothing: it binds the arguments' memory, sets the
Variables and replays. State, tensors that the function assigned into, advances in place at each replay. Whatever
cannot be replayed raises CaptureError at the line that did it. Not for what a backend makes of the launches (seam.py).
"""
from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any, Callable, Hashable

from minivt import ops
from minivt.errors import CaptureError
from minivt.graph import Node, node, walk
from minivt.runtime import realize as runtime
from minivt.runtime.buffer import Buffer
from minivt.runtime.realize import Plan
from minivt.runtime.seam import Progress, backend_of
from minivt.runtime.variables import VARIABLES, check_bound, variables_of
from minivt.symbolic import evaluate


def user_line() -> str:
    """'file:line' of the innermost frame outside minivt."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "minivt" \
            and not frame.f_globals["__name__"].startswith("minivt.models"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "<unknown>"


class Trace:
    """What Tensor tells while a function is captured. before: ids of the tensors that already lived."""

    def __init__(self):
        self.before = set(runtime.LIVE.keys())
        self.states: list = []

    def read(self, tensor, what: str) -> None:
        raise CaptureError(f"{user_line()}: {what} reads a value inside a captured function; return the tensor instead")

    def assigned(self, tensor) -> None:
        if id(tensor) in self.before and not any(s is tensor for s in self.states):
            self.states.append(tensor)


def _flatten(value, tensors: list, key: list) -> Any:
    """Take the tensors out of nested tuples, lists and dicts; the key is everything that must not change."""
    if hasattr(value, "node") and hasattr(value, "device"):
        tensors.append(value)
        key.append(("tensor", value.node.shape, value.dtype, value.device))
        return len(tensors) - 1
    if hasattr(value, "bounds") and hasattr(value, "node"):
        key.append(("variable", value.node))
        return None
    if isinstance(value, (tuple, list)):
        key.append((type(value).__name__, len(value)))
        return _sequence(value, (_flatten(v, tensors, key) for v in value))
    if isinstance(value, dict):
        key.append(("dict", tuple(value)))
        return {k: _flatten(v, tensors, key) for k, v in value.items()}
    if not isinstance(value, Hashable):
        raise CaptureError(f"jit: an argument is a {type(value).__name__}; arguments are Tensors, Variables and plain "
                           "hashable values: make an array a Tensor")
    key.append(value)
    return None


def _sequence(like, items):
    """A tuple, named tuple or list of the kind of `like`."""
    return like._make(items) if hasattr(like, "_make") else type(like)(items)


def _map(value, change: Callable):
    """The same nest with every tensor changed."""
    if hasattr(value, "node") and hasattr(value, "device"):
        return change(value)
    if isinstance(value, (tuple, list)):
        return _sequence(value, (_map(v, change) for v in value))
    if isinstance(value, dict):
        return {k: _map(v, change) for k, v in value.items()}
    return value


def jit(function: Callable, progress: Progress | None = None) -> Callable:
    """A function that is traced at its first call and replayed afterwards.

    Arguments: Tensors, bound Variables and plain hashable values, also nested. CaptureError for a read value, another
    shape, dtype or plain value than at the first call, an argument returned as it came, a computation forced inside.
    progress: called as the first call compiles, with the number of kernels done and of all.
    """
    captured: list[Captured] = []

    @functools.wraps(function)
    def call(*args, **kwargs):
        if captured:
            return captured[0].replay(args, kwargs)
        made, results = Captured.trace(function, args, kwargs, progress)
        captured.append(made)
        return results
    call.captured = captured
    return call


@dataclass
class State:
    """A tensor that the function assigns into.

    first: the BUFFER node that the plan starts from; home: the node in whose memory the last version lies, `first`
    itself where the plan writes in place. reads, writes: the launch arguments that are first and home. bound: the
    version whose memory `reads` point to.
    """
    tensor: Any
    first: Node
    last: Node
    home: Node
    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]
    bound: Node | None = None


class _Output:
    """Stands in the nest of results where a tensor goes."""
    node = device = None


class Captured:
    """One traced function: its plan, its memory, and which launch arguments change from run to run."""

    @staticmethod
    def trace(function, args, kwargs, progress):
        tensors: list = []
        key: list = []
        _flatten((args, kwargs), tensors, key)
        made = Captured()
        made.name, made.key, made.progress = function.__qualname__, tuple(key), progress
        results = made._trace(function, args, kwargs, tensors)
        return made, results

    def _trace(self, function, args, kwargs, tensors):
        owner = type(tensors[0]) if tensors else _tensor_class()
        pending = [t for t in list(runtime.LIVE.values()) if t.node.op is ops.ASSIGN]
        for t in (*tensors, *pending):  # what was assigned before the capture is not a part of it
            t.realize()
        inputs = [node(ops.BUFFER, (), Buffer(t.node.shape, t.dtype, t.device, t.node.arg.memory, owner=t), t.dtype)
                  for t in tensors]
        trace = self._call(function, args, kwargs, inputs, owner)
        if _privatise(trace.states):  # the graph shows a version that other tensors share: trace again on copies
            trace = self._call(function, args, kwargs, inputs, owner)
        outputs: list = []
        _map(self.results, outputs.append)
        for out in outputs:
            if out.node in inputs:
                raise CaptureError(f"{self.name}: an argument is returned as it came; a replay cannot alias it: "
                                   "return argument.contiguous() instead")
        return self._build(owner, inputs, outputs, trace.states, tensors)

    def _call(self, function, args, kwargs, inputs: list[Node], owner) -> Trace:
        """Run the function on stand-ins for its tensors, computing nothing."""
        stand_ins = iter([owner._from_node(n, n.arg.device) for n in inputs])
        args, kwargs = _map((args, kwargs), lambda t: next(stand_ins))
        trace = Trace()
        owner._trace, runtime.capturing = trace, True
        try:
            self.results = function(*args, **kwargs)
        except BaseException:
            for tensor in trace.states:
                tensor.node = _first_version(tensor.node)
            raise
        finally:
            owner._trace, runtime.capturing = None, False
        return trace

    def _build(self, owner, inputs, outputs, states, tensors):
        roots = runtime.substitute_realized([o.node for o in outputs] + [s.node for s in states])
        self.out_nodes, state_nodes = roots[:len(outputs)], roots[len(outputs):]
        self.device = runtime.device_of(roots, outputs[0].device if outputs else None)
        self.backend = backend_of(self.device)
        versions = [_first_version(s.node) for s in states]
        sinks = list(dict.fromkeys(n for n in roots if n.op is not ops.BUFFER))
        self.plan = Plan.make(sinks, self.backend, self.device, lambda b: b in versions, self.progress)
        self.variables = variables_of(*roots)
        self.memories = self.plan.allocate(self.backend, {v.arg[0]: v.arg[2] for v in self.variables})
        self.runnable = self.plan.prepare(self.backend, self.memories)
        self.inputs = [self._slots(n) for n in inputs]
        self.outputs = [(n, self._slots(self.plan.home(n)) if n.op is not ops.BUFFER else []) for n in self.out_nodes]
        self.states = [State(tensor, first, last, self.plan.home(last), self._slots(first),
                             self._slots(self.plan.home(last)))
                       for tensor, first, last in zip(states, versions, state_nodes)]
        self.read = self._read_tensors(roots, {*inputs, *versions}, states)
        self.owner = owner
        self.results = _map(self.results, lambda t: _Output())  # not the tensors of the trace: they would look alive
        outputs.clear()
        for state in self.states:
            state.tensor.node = state.first
        return self._run(tensors)

    def _read_tensors(self, roots, bound: set[Node], states) -> list[list]:
        """[weak tensor, the BUFFER node it showed, launch arguments] for what the function read from outside."""
        leaves = {n for n in walk(*roots) if n.op is ops.BUFFER} - bound
        return [[weakref.ref(t), t.node, self._slots(t.node)] for t in list(runtime.LIVE.values())
                if t.node in leaves and not any(t is s for s in states)]

    def _follow(self) -> None:
        """Read the present values of tensors that were assigned outside since the capture."""
        for entry in self.read:
            tensor, shown, slots = entry[0](), entry[1], entry[2]
            if tensor is None or tensor.node is shown:
                continue
            if any(other is not entry and other[1] is shown for other in self.read):
                raise CaptureError(f"{self.name}: a tensor that shared its memory with another at the capture was "
                                   "assigned since; which of them was read is not known: capture the function again")
            if (tensor.node.shape, tensor.dtype) != (shown.shape, shown.dtype):
                raise CaptureError(f"{self.name}: a tensor read at the capture as {shown.dtype}{list(shown.shape)} is "
                                   f"{tensor.dtype}{list(tensor.node.shape)} now; capture the function again")
            entry[1] = tensor.realize().node
            self._rebind(slots, entry[1].arg.memory)

    def _slots(self, argument: Node) -> list[tuple[int, int]]:
        """Where a storage node is an argument: (launch, slot) pairs."""
        storage = self.plan.schedule.storage
        return [(number, slot) for number, launch in enumerate(self.plan.schedule.launches)
                for slot, a in enumerate(launch.arguments) if storage.get(a, a) is argument]

    # --- replay ---

    def replay(self, args, kwargs):
        tensors: list = []
        key: list = []
        _flatten((args, kwargs), tensors, key)
        if tuple(key) != self.key:
            was, now = next(((a, b) for a, b in zip(self.key, key) if a != b), (self.key, key))
            raise CaptureError(f"{self.name}: called with {now} where it was captured with {was}; "
                               "shapes, dtypes and plain values are fixed by the first call: capture another function")
        if runtime.capturing:
            raise CaptureError(f"{self.name}: a captured function is called inside another; call the plain function")
        return self._run(tensors)

    def _run(self, tensors):
        check_bound(self.variables)
        for t, slots in zip(tensors, self.inputs):
            if t.node.op is not ops.BUFFER:
                t.realize()
            self._rebind(slots, t.node.arg.memory)
        self._follow()
        held = _held_versions() if self.states else set()
        results: dict[Node, Node] = {s.last: self._next_version(s, held) for s in self.states}
        for n, slots in self.outputs:
            if n not in results and n.op is not ops.BUFFER:
                results[n] = self._fresh(n, slots)
        self.runnable.run(VARIABLES)
        self.plan.record(VARIABLES)
        for state in self.states:
            state.tensor.node = results[state.last]
        made = iter([self.owner._from_node(results.get(n, n), self.device) for n, _ in self.outputs])
        return _map(self.results, lambda t: next(made))

    def _fresh(self, n: Node, slots) -> Node:
        """New memory for a result: an earlier one may still be alive."""
        memory = self.backend.allocate(prod(evaluate(s, VARIABLES) for s in n.shape) * n.dtype.itemsize)
        self._rebind(slots, memory)
        return runtime.buffer_node(n, self.device, memory)

    def _rebind(self, slots, memory) -> None:
        for call, slot in slots:
            self.runnable.rebind(call, slot, memory)

    def _next_version(self, state: State, held: set[Node]) -> Node:
        """Bind the state's present version, wherever it lies now, and say where the next one will lie.

        A version that another tensor still holds, or memory that was lent to us, is copied before it is overwritten.
        """
        current = state.tensor.node
        if current.op is not ops.BUFFER:
            current, = runtime.realize([current], state.tensor.device)
        in_place = state.home is state.first
        if in_place and (current.arg.owner is not None or current in held):
            current, = runtime.realize([node(ops.CONTIGUOUS, (current,), object())])
        if current is not state.bound:
            state.tensor.node = state.bound = current
            self._rebind(state.reads, current.arg.memory)
        return current if in_place else self._fresh(state.last, state.writes)


def _held_versions() -> set[Node]:
    """The BUFFER nodes that more than one living tensor shows, or that an uncomputed one is built over."""
    living = [t.node for t in list(runtime.LIVE.values())]
    shown = Counter(n for n in living if n.op is ops.BUFFER)
    held = {n for n, count in shown.items() if count > 1}
    return held | {n for n in walk(*(n for n in living if n.op is not ops.BUFFER)) if n.op is ops.BUFFER}


def _first_version(version: Node) -> Node:
    while version.op is ops.ASSIGN:
        version = version.src[0]
    return version


def _privatise(states: list) -> bool:
    """Give every state that starts from a shared, lent or uncomputed version one of its own; whether any did.

    The states go back to their first versions, ready to be traced again.
    """
    firsts = [_first_version(s.node) for s in states]
    shown = [t.node for t in list(runtime.LIVE.values())]
    shared = [n for n in firsts if n.op is not ops.BUFFER or n.arg.owner is not None or firsts.count(n) > 1
              or any(other is n for other in shown)]
    if not shared:
        return False
    for tensor, first in zip(states, firsts):
        if first in shared:
            first, = runtime.realize([first], tensor.device)
            first, = runtime.realize([node(ops.CONTIGUOUS, (first,), object())])
        tensor.node = first
    return True


def _tensor_class():
    from minivt.tensor import Tensor  # only for functions without tensor arguments; tensor.py imports this package
    return Tensor
