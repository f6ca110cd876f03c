"""Every stage of a graph on its way to code, as text: minivt.explain(t) and MINIVT_DEBUG. Runs nothing."""
from __future__ import annotations

import os
from importlib import import_module

from minivt import ops
from minivt.codegen.show import show_program
from minivt.codegen.target import Target
from minivt.graph import Node, toposort
from minivt.schedule.schedule import Schedule, make_schedule


def explain(tensor, target: Target | None = None) -> str:
    """The graph, the kernels that the schedule makes of it and the code of each, for any target.

    tensor: anything with a graph, computed or not; target: by default that of the tensor's device.
    """
    from minivt.runtime import realize as runtime  # which shows schedules itself when MINIVT_DEBUG is set
    from minivt.runtime.seam import backend_of
    root, = runtime.substitute_realized([tensor.node])
    target = target or backend_of(runtime.device_of([root])).target
    if root.op is ops.BUFFER:
        return "\n".join(["graph", show_graph(root), "already in memory: no kernels"])
    schedule = make_schedule([root], target, lambda buffer: False)
    return "\n".join(["graph", show_graph(root), show_schedule(schedule, target, with_code=True)])


def debug_level() -> int:
    """MINIVT_DEBUG: 0 or unset nothing, 1 every kernel that is scheduled, 2 its code too."""
    return int(os.environ.get("MINIVT_DEBUG") or 0)


def show_schedule(schedule: Schedule, target: Target, with_code: bool) -> str:
    """The distinct kernels of a schedule, each with how often it is launched."""
    programs: dict = {}
    for launch in schedule.launches:
        programs[launch.program] = programs.get(launch.program, 0) + 1
    sections = [f"schedule: {len(schedule.launches)} kernels, {len(programs)} of them distinct"]
    for number, (program, count) in enumerate(programs.items()):
        sections += [f"kernel {number} for {target.name}, launched {count} times", show_program(program)]
        if with_code:
            sections += ["code", import_module(target.lowering).code_of(program, target)]
    return "\n".join(sections)


def show_graph(root: Node) -> str:
    """The primitives below a node, sources first, one a line."""
    order = toposort(root)
    number = {n: i for i, n in enumerate(order)}
    lines = []
    for n in order:
        arg = "" if n.arg is None else f" {n.arg!r}"
        sources = ", ".join(f"%{number[s]}" for s in n.src)
        lines.append(f"  %{number[n]} = {n.op.name}({sources}){arg}  # {n.dtype}{list(n.shape)}")
    return "\n".join(lines)
