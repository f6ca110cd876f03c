"""Graph to a list of kernel launches: partition, kernels by structure, order of versions, memory plan.

Equal kernels, the layers of a model say, are one kernel: the nodes of a kernel are rebuilt over numbered placeholders
and everything that follows is kept by that structure. Not for compiling or running (runtime).
"""
from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Callable

from minivt import ops
from minivt.codegen.target import Target
from minivt.codegen.tile import Param, TileProgram
from minivt.dtypes import DType
from minivt.errors import BackendError
from minivt.graph import Node, node, rebuild, substitute, toposort, users
from minivt.schedule.cost import Verdict, verdict
from minivt.schedule.indexing import Lowering, flatten
from minivt.schedule.kernel import Kernel, Sink, capacity, merge_axes, split_axes
from minivt.schedule.partition import ALWAYS_CUT, Partition, climb, partition
from minivt.schedule.scanning import OUTPUTS, keeps_places, scan_program
from minivt.schedule.scatter import scatter_program, widen_sums
from minivt.schedule.tiling import tile_kernel
from minivt.symbolic import TRUE, ZERO, Size, add, axis, describe


@dataclass(frozen=True)
class Placeholder:
    """Stands for whatever array is bound to a slot."""
    slot: int
    shape: tuple[Size, ...]
    dtype: DType


@dataclass(frozen=True)
class Launch:
    """One kernel. arguments: graph nodes in slot order; the last ones, the results, are what it writes.

    source: the kernel's graph over placeholders, which names it; its program is made when it is asked for.
    """
    source: Node
    target: Target
    arguments: tuple[Node, ...]
    results: tuple[Node, ...]

    @property
    def program(self) -> TileProgram:
        return program_of(self.source, self.target)


@dataclass
class Schedule:
    """launches in order; results: the node that computes each sink; storage: whose memory each result lies in.

    A result's storage is itself, unless it is an ASSIGN or SCATTER that writes into the version before it.
    """
    launches: list[Launch]
    results: dict[Node, Node]
    storage: dict[Node, Node]


# --- kernels by structure --------------------------------------------------------------------------------------------

def canonical(root: Node, part: Partition) -> tuple[Node, tuple[Node, ...]]:
    """The root over placeholders, and the nodes that they stand for in slot order."""
    made: dict[Node, Node] = {}
    leaves: list[Node] = []
    for current in part.cone(root):
        is_root = current in part.root_set and current is not root
        if current.op is ops.BUFFER or is_root:
            slot = Placeholder(len(leaves), current.shape, current.dtype)
            made[current] = node(ops.BUFFER, (), slot, current.dtype)
            leaves.append(current)
        else:
            made[current] = rebuild(current, (made[s] for s in current.src))
    if root.op is ops.CONTIGUOUS:  # which copy it is does not matter to its kernel
        return node(ops.CONTIGUOUS, made[root].src), tuple(leaves)
    return made[root], tuple(leaves)


@lru_cache(maxsize=4096)
def lower_kernel(root: Node) -> Kernel:
    """The kernel that computes a canonical root and writes it to the slot after its placeholders."""
    order = toposort(root)
    params = {n: Param(n.arg.slot, n.dtype, capacity(n.shape)) for n in order if n.op is ops.BUFFER}
    lowering = Lowering(params, root)
    inputs = tuple(sorted(params.values(), key=lambda p: p.slot))
    value, shape = root, root.shape
    if root.op is ops.ASSIGN:
        value = root.src[1]
        shape = value.shape
        if root.src[0] not in toposort(value):  # the version is written, not read
            inputs = tuple(p for p in inputs if p is not params.get(root.src[0]))
    axes = tuple(axis(n, size, "grid") for n, size in enumerate(shape) if size != 1)
    counters = iter(axes)
    index = tuple(ZERO if size == 1 else next(counters) for size in shape)
    where = index
    if root.op is ops.ASSIGN:
        where = tuple(add(i, start) for i, (start, _) in zip(index, root.arg))
    slots = {p.slot: n for n, p in enumerate(inputs)}
    if any(slot != n for slot, n in slots.items()):
        lowering.params = {n: Param(slots[p.slot], p.dtype, p.size) for n, p in params.items() if p.slot in slots}
        inputs = tuple(Param(n, p.dtype, p.size) for n, p in enumerate(inputs))
    out = Param(len(inputs), root.dtype, capacity(root.shape), written=True)
    source = value.src[0] if value.op is ops.CONTIGUOUS else value
    lowered = lowering.lower(source, index)
    sink = Sink(out, axes, flatten(where, root.shape), TRUE, lowered)
    return merge_axes(split_axes(Kernel((*inputs, out), (sink,))))


@lru_cache(maxsize=4096)
def _verdict(root: Node, target: Target) -> Verdict | None:
    return verdict(lower_kernel(root), target)


@lru_cache(maxsize=4096)
def program_of(root: Node, target: Target) -> TileProgram:
    if root.op is ops.SCATTER:
        return scatter_program(root, target)
    if root.op is OUTPUTS:
        return scan_program(root, target)
    return tile_kernel(lower_kernel(root), target, "kernel")


# --- cuts ------------------------------------------------------------------------------------------------------------

def _wanted_cuts(target: Target):
    """A judge for partition: it looks only at kernels that have changed since it last saw them."""
    judged: dict[Node, tuple[set[Node], set[Node]]] = {}  # root -> the nodes inside its kernel, the roots it reads

    def wanted(part: Partition) -> set[Node]:
        cuts: set[Node] = set()
        readers = users(part.order)
        for root in part.roots:
            if root.op in ALWAYS_CUT and root.op not in (ops.ASSIGN, ops.CONTIGUOUS):
                continue
            inside, read = judged.get(root, ({root}, set()))
            if inside.isdisjoint(part.root_set) and read <= part.root_set:
                continue
            cone = part.cone(root)
            judged[root] = {n for n in cone if n not in part.root_set}, {n for n in cone if n in part.root_set} - {root}
            source, _ = canonical(root, part)
            found = _verdict(source, target)
            if found is not None:
                cuts |= _cuts(root, part, readers, found)
        return cuts
    return wanted


def _cuts(root: Node, part: Partition, readers, found: Verdict) -> set[Node]:
    """Which nodes of a kernel to store: the reductions that the verdict names, else the products nearest below its
    last reduction, else whatever the last reduction reads that needs a reduction itself."""
    cone = [n for n in part.cone(root) if n is root or n not in part.root_set and n.op is not ops.BUFFER]
    inside = set(cone)
    reduced = [n for n in cone if n.op in ops.REDUCE]
    below = {n: _reductions_below(n, inside) for n in reduced}
    last = [n for n in reduced if not any(n in below[m] for m in reduced)]
    local = {n: [r for r in readers[n] if r in inside] for n in cone}
    if found.repeated:
        cuts = {climb(reduced[origin], local, part.root_set) for origin in found.repeated}
    elif found.nested:
        nearest = set().union(*(below[n] for n in last)) if last else set()
        products = {n for n in nearest if n.op is ops.SUM and _without_movement(n.src[0]).op is ops.MUL} or nearest
        cuts = {climb(n, local, part.root_set) for n in products}
    else:
        cuts = set().union(*(_operands_with_reductions(n, inside) for n in last)) if last else set()
    cuts = {n for n in cuts if n is not root and n.op not in ops.MOVEMENT}
    return cuts or {n for n in reduced if n is not root and not below[n]}


def _reductions_below(current: Node, inside: set[Node]) -> set[Node]:
    """The reductions that a node needs, without those that they need in turn."""
    found, seen, stack = set(), set(), list(current.src)
    while stack:
        n = stack.pop()
        if n in seen or n not in inside:
            continue
        seen.add(n)
        if n.op in ops.REDUCE:
            found.add(n)
        else:
            stack.extend(n.src)
    return found


def _operands_with_reductions(reduction: Node, inside: set[Node]) -> set[Node]:
    """The factors of a reduction's product that hold reductions themselves, without the expansions around them."""
    product = _without_movement(reduction.src[0])
    factors = product.src if product.op is ops.MUL else (product,)
    found = (_without_movement(f) for f in factors)
    return {f for f in found if f in inside and
            any(n.op in ops.REDUCE and n in inside for n in toposort(f, enter=inside.__contains__))}


def _without_movement(current: Node) -> Node:
    while current.op in ops.MOVEMENT or current.op is ops.CAST:
        current = current.src[0]
    return current


# --- launches --------------------------------------------------------------------------------------------------------

def make_schedule(sinks: list[Node], target: Target, may_overwrite: Callable[[Node], bool], cuts=None) -> Schedule:
    """The launches that compute the sinks.

    may_overwrite(buffer node): whether nobody else can still read it. cuts: a mapping that remembers where graphs of
    one structure were cut, from graph_key to positions in graph order; a graph seen before is not judged again.
    """
    owned = own_versions(_with_wide_sums(sinks), may_overwrite)
    part = _recalled_partition(owned, target, {} if cuts is None else cuts)
    schedule = Schedule([], dict(zip(sinks, owned)), {})
    for root in part.roots:
        if root in schedule.storage:
            continue  # an output of a SCAN that is computed with another
        source, leaves = canonical(root, part)
        home = root
        if root.op is ops.SCAN:
            schedule.launches += _scan_launches(root, part, target, leaves, schedule.storage)
            continue
        if root.op in (ops.ASSIGN, ops.SCATTER):
            version = root.src[0]
            home = schedule.storage.get(version, version)
            if version not in toposort(*root.src[1:], enter=part.is_inside):
                leaves = tuple(n for n in leaves if n is not version)
        schedule.storage[root] = home
        if 0 in (root.src[1] if root.op is ops.ASSIGN else root).shape:
            continue  # nothing to compute
        schedule.launches.append(Launch(source, target, (*leaves, root), (root,)))
    return schedule


def _scan_launches(root: Node, part: Partition, target: Target, leaves, storage: dict[Node, Node]) -> list[Launch]:
    """One kernel for all outputs of a SCAN that are wanted."""
    if not keeps_places(root.arg[0]):
        raise BackendError("scan: a step reads a carry at another place than it writes, through a product, a reduction "
                           "or a movement; only device 'reference' runs such scans: move what mixes places out of it")
    outputs = tuple(n for n in part.roots if n.op is ops.SCAN and n.src == root.src and n.arg[0] == root.arg[0])
    storage.update({n: n for n in outputs})
    outputs = tuple(n for n in outputs if 0 not in n.shape)
    if not outputs:
        return []
    source = node(OUTPUTS, (canonical(n, part)[0] for n in outputs), None, outputs[0].dtype)
    return [Launch(source, target, (*leaves, *outputs), outputs)]


def _with_wide_sums(sinks: list[Node]) -> list[Node]:
    """The sinks with every SCATTER as it is computed (see widen_sums)."""
    replaced: dict[Node, Node] = {}
    for current in toposort(*sinks):
        if current.op is ops.SCATTER:
            made = widen_sums(current)
            if made is not current:
                replaced[current] = substitute([made], replaced)[0]
    return substitute(sinks, replaced) if replaced else list(sinks)


def _recalled_partition(sinks: list[Node], target: Target, cuts) -> Partition:
    order = toposort(*sinks, enter=lambda n: n.op is not ops.BUFFER)
    key = graph_key(order, sinks, target)
    positions = cuts.get(key)
    if positions is None:
        part = partition(sinks, _wanted_cuts(target))
        roots = part.root_set
        cuts[key] = [i for i, n in enumerate(order) if n in roots]
        return part
    return Partition([order[i] for i in positions], order)


def graph_key(order: list[Node], sinks: list[Node], target: Target) -> str:
    """A digest of a graph's structure, the same in every process; buffers count by shape and dtype."""
    number = {n: i for i, n in enumerate(order)}
    lines = [repr(target), repr([number[s] for s in sinks])]
    for n in order:
        arg = describe(n.shape if n.op in (ops.BUFFER, ops.CONTIGUOUS) else n.arg)
        lines.append(f"{n.op.name} {n.dtype.name} {arg} {[number[s] for s in n.src]}")
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=20).hexdigest()


def own_versions(sinks: list[Node], may_overwrite: Callable[[Node], bool]) -> list[Node]:
    """Let every ASSIGN and SCATTER write a version that nothing else reads, through a copy where it must.

    before:  y = ASSIGN(x, v); z = x + y       (x is still read)
    after:   y = ASSIGN(CONTIGUOUS(x), v); z = x + y
    """
    order = toposort(*sinks, enter=lambda n: n.op is not ops.BUFFER)
    readers, wanted = users(order), set(sinks)
    replaced: dict[Node, Node] = {}
    for number, current in enumerate(n for n in order if n.op in (ops.ASSIGN, ops.SCATTER)):
        version = current.src[0]
        alone = readers[version] == [current] and version not in wanted and version not in current.src[1:]
        fresh = version.op not in (ops.BUFFER, ops.ASSIGN) if current.op is ops.SCATTER else \
            version.op is not ops.BUFFER or may_overwrite(version)
        if alone and fresh:
            continue
        src = substitute(current.src, replaced)
        copied = node(ops.CONTIGUOUS, (src[0],), number)
        replaced[current] = node(current.op, (copied, *src[1:]), current.arg)
    return substitute(sinks, replaced) if replaced else list(sinks)
