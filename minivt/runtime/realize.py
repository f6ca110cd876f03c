"""Graphs to values: schedule, compile, allocate, launch. Also where NumPy arrays enter and leave.

Not for repeated runs of one function (jit.py) nor for what a device does (seam.py, backends).
"""
from __future__ import annotations

import json
import sys
import time
import weakref
from dataclasses import dataclass, field
from math import prod

import numpy as np

from minivt import ops
from minivt.dtypes import DType
from minivt.errors import BoundsError, CaptureError
from minivt.graph import Node, node, substitute, toposort, walk
from minivt.runtime import stats
from minivt.runtime.buffer import Buffer
from minivt.runtime.cache import content_key, disk_cache, source_version
from minivt.runtime.explain import debug_level, show_schedule
from minivt.runtime.seam import Backend, Call, Runnable, backend_of, default_device
from minivt.runtime.variables import VARIABLES, check_bound, variables_of
from minivt.scan import ScanBody
from minivt.schedule.schedule import Schedule, make_schedule
from minivt.symbolic import evaluate

LIVE: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # id -> every living Tensor
_REALIZED: weakref.WeakKeyDictionary[Node, Node] = weakref.WeakKeyDictionary()
REMEMBERED_KERNELS = 16  # schedules of more kernels are worth a file
capturing = False  # while a function is traced, nothing may run


def from_numpy(array: np.ndarray, dtype: DType, device: str) -> Node:
    """A BUFFER node over an array; its memory is used as it is where it is contiguous and the device can read it."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    memory = backend_of(device).from_host(array)
    return node(ops.BUFFER, (), Buffer(array.shape, dtype, device, memory, owner=array), dtype)


def to_numpy(buffer_node: Node) -> np.ndarray:
    """The elements of a realised node, as an array of dtype.storage."""
    if buffer_node.op is not ops.BUFFER:
        buffer_node, = realize([buffer_node])
    buffer = buffer_node.arg
    check_extents([buffer_node])
    array = backend_of(buffer.device).to_host(buffer.memory, buffer.extent, buffer.dtype)
    buffer.owner = array if buffer.owner is None else buffer.owner  # no later version may write where it looks
    return array


def check_extents(nodes: list[Node]) -> None:
    """BoundsError where memory below the nodes was computed for other values of its Variables."""
    for n in walk(*nodes):
        if n.op is ops.BUFFER and any(isinstance(s, Node) for s in n.shape):
            asked = tuple(evaluate(s, VARIABLES) for s in n.shape)
            if asked != n.arg.extent:
                raise BoundsError(f"realize: a tensor was computed with shape {n.arg.extent} and its variables now ask "
                                  f"{asked}; bind them as they were, or compute it again")


def realize(nodes: list[Node], device: str | None = None) -> list[Node]:
    """The nodes as BUFFER nodes, computed by as few kernels as the schedule finds.

    device: where to compute what reads no memory; default_device() where it is not given.
    """
    if capturing:
        raise CaptureError("realize: nothing can be computed inside a captured function; return the tensor instead")
    check_bound(variables_of(*nodes))
    copied = _copy_between_devices(nodes)
    wanted = substitute_realized(copied)
    missing = list(dict.fromkeys(n for n in wanted if n.op is not ops.BUFFER))
    if missing:
        made = _run(missing, device)
        wanted = [made.get(n, n) for n in wanted]
        settled = _settled(nodes)
        for original, result in zip(nodes, wanted):
            if original.op is not ops.BUFFER and original in settled:
                _REALIZED[original] = result
    return wanted


def _settled(roots: list[Node]) -> set[Node]:
    """The nodes below the roots that always have one value: they read memory and depend on no VARIABLE."""
    reading, symbolic = set(), set()
    for current in toposort(*roots):
        if current.op is ops.BUFFER or not reading.isdisjoint(current.src):
            reading.add(current)
        if _is_symbolic(current) or not symbolic.isdisjoint(current.src):
            symbolic.add(current)
    return reading - symbolic


def _is_symbolic(current: Node) -> bool:
    return current.op is ops.VARIABLE or _holds_symbol(current.shape) or _holds_symbol(current.arg)


def _holds_symbol(value) -> bool:
    if isinstance(value, ScanBody):
        return any(map(_is_symbolic, walk(*value.outputs)))
    return isinstance(value, Node) or isinstance(value, tuple) and any(map(_holds_symbol, value))


def substitute_realized(nodes: list[Node]) -> list[Node]:
    """The nodes with everything that is in memory already replaced by its BUFFER."""
    below = toposort(*nodes, enter=lambda n: n not in _REALIZED)
    known = {n: _REALIZED[n] for n in below if n in _REALIZED}
    return substitute(nodes, known) if known else list(nodes)


def _copy_between_devices(nodes: list[Node]) -> list[Node]:
    """The nodes with every COPY done, sources first."""
    done: dict[Node, Node] = {}
    for current in toposort(*nodes):
        if current.op is ops.COPY and current not in _REALIZED:
            source, = substitute([current.src[0]], done)
            source, = realize([source])
            array = to_numpy(source)
            done[current] = _REALIZED[current] = from_numpy(array, current.dtype, current.arg)
    return substitute(nodes, done) if done else list(nodes)


def device_of(nodes: list[Node], default: str | None = None) -> str:
    """The device of the buffers below the nodes; the default where there are none."""
    devices = {n.arg.device for n in walk(*nodes) if n.op is ops.BUFFER}
    if len(devices) > 1:
        raise BoundsError(f"realize: operands are on {' and '.join(sorted(devices))}; move them with to(device)")
    return devices.pop() if devices else default or default_device()


def _run(nodes: list[Node], device: str | None) -> dict[Node, Node]:
    device = device_of(nodes, device)
    check_extents(nodes)
    backend = backend_of(device)
    if hasattr(backend, "evaluate"):
        return {n: from_numpy(a, n.dtype, device) for n, a in zip(nodes, backend.evaluate(nodes, VARIABLES))}
    others = [t.node for t in list(LIVE.values()) if t.node not in nodes]
    plan = Plan.make(nodes, backend, device, _overwritable(others))
    memories = plan.allocate(backend, VARIABLES)
    plan.prepare(backend, memories).run(VARIABLES)
    plan.record(VARIABLES)
    return {n: buffer_node(n, device, memories[plan.home(n)]) for n in nodes}


def buffer_node(computed: Node, device: str, memory) -> Node:
    """A BUFFER node over the memory that holds a node's value for the present values of its Variables."""
    extent = tuple(evaluate(s, VARIABLES) for s in computed.shape)
    made = Buffer(computed.shape, computed.dtype, device, memory, extent=extent)
    return node(ops.BUFFER, (), made, computed.dtype)


def _overwritable(others: list[Node]):
    """Whether a version's memory may be reused: no living tensor but the assigned one can still read it."""
    def allowed(buffer_node: Node) -> bool:
        return buffer_node.arg.owner is None and not any(buffer_node in walk(n) for n in others)
    return allowed


class _Cuts:
    """Where graphs were cut, by structure: in this process, and on disk for the next one."""

    def __init__(self):
        self.known: dict[str, list[int]] = {}

    def get(self, key: str) -> list[int] | None:
        if key not in self.known:
            stored = disk_cache().get(self._key(key))
            if stored is None:
                return None
            self.known[key] = json.loads(stored)
        return self.known[key]

    def __setitem__(self, key: str, positions: list[int]) -> None:
        self.known[key] = positions
        if len(positions) > REMEMBERED_KERNELS:
            disk_cache().put(self._key(key), json.dumps(positions).encode())

    def _key(self, key: str) -> str:
        return content_key("cuts", key, source_version())


_cuts = _Cuts()


@dataclass
class Plan:
    """A schedule with its executables: what eager runs do once and captured functions many times."""
    nodes: list[Node]
    device: str
    schedule: Schedule
    executables: list = field(default_factory=list)

    @staticmethod
    def make(nodes: list[Node], backend: Backend, device: str, may_overwrite, progress=None) -> Plan:
        started = time.perf_counter()
        schedule = make_schedule(nodes, backend.target, may_overwrite, cuts=_cuts)
        if debug_level():
            print(show_schedule(schedule, backend.target, with_code=debug_level() > 1), file=sys.stderr)
        executables = backend.compile(schedule.launches, progress)
        stats.record_compile(time.perf_counter() - started)
        return Plan(nodes, device, schedule, executables)

    def allocate(self, backend: Backend, values: dict[str, int], given: dict[Node, object] | None = None) -> dict:
        """Memory for every storage node: results of their own, temporaries shared when their lives do not overlap."""
        given = given or {}
        memories: dict[Node, object] = dict(given)
        last_use = self._last_use()
        kept = {self.home(n) for n in self.nodes}
        free: list[tuple[int, object]] = []
        for position, launch in enumerate(self.schedule.launches):
            homes = [self.schedule.storage[r] for r in launch.results]
            for argument in (*launch.arguments, *homes):
                argument = self.schedule.storage.get(argument, argument)
                if argument.op is ops.BUFFER and argument not in memories:
                    memories[argument] = argument.arg.memory
            for home in homes:
                if home not in memories:
                    size = prod(evaluate(s, values) for s in home.shape) * home.dtype.itemsize
                    memories[home] = backend.allocate(size) if home in kept else _take(free, size, backend)
            for done in last_use.get(position, ()):
                if done not in kept and done.op is not ops.BUFFER and done not in given:
                    size = prod(evaluate(s, values) for s in done.shape) * done.dtype.itemsize
                    free.append((size, memories[done]))
        for home in kept - memories.keys():  # results without elements have no launch
            memories[home] = home.arg.memory if home.op is ops.BUFFER else backend.allocate(0)
        return memories

    def _last_use(self) -> dict[int, list[Node]]:
        last: dict[Node, int] = {}
        for position, launch in enumerate(self.schedule.launches):
            for argument in launch.arguments:
                last[self.schedule.storage.get(argument, argument)] = position
        by_position: dict[int, list[Node]] = {}
        for storage, position in last.items():
            by_position.setdefault(position, []).append(storage)
        return by_position

    def prepare(self, backend: Backend, memories: dict) -> Runnable:
        storage = self.schedule.storage
        return backend.prepare([Call(executable, [memories[storage.get(a, a)] for a in launch.arguments])
                                for launch, executable in zip(self.schedule.launches, self.executables)])

    def home(self, sink: Node) -> Node:
        """The node whose memory holds a sink's value."""
        result = self.schedule.results[sink]
        return self.schedule.storage[result]

    def record(self, values: dict[str, int]) -> None:
        if stats.active():
            for launch in self.schedule.launches:
                stats.record(launch.program, values)


def _take(free: list, size: int, backend: Backend):
    """The smallest free temporary that is large enough, else new memory."""
    fitting = [(held, n) for n, (held, _) in enumerate(free) if held >= size]
    if not fitting:
        return backend.allocate(size)
    return free.pop(min(fitting)[1])[1]
