"""minivt.explain(t): every stage of a graph on its way to code, as text, for any target. Runs nothing."""
from __future__ import annotations

from minivt import ops
from minivt.codegen.show import show_program
from minivt.codegen.target import Target
from minivt.graph import Node, toposort
from minivt.runtime import realize as runtime
from minivt.runtime.seam import backend_of
from minivt.schedule.schedule import make_schedule


def explain(tensor, target: Target | None = None) -> str:
    """The graph, the kernels that the schedule makes of it and, for this machine's CPU, their LLVM text.

    tensor: anything with a graph, computed or not; target: by default that of the tensor's device.
    """
    root, = runtime.substitute_realized([tensor.node])
    target = target or backend_of(runtime.device_of([root])).target
    sections = ["graph", show_graph(root)]
    if root.op is ops.BUFFER:
        return "\n".join([*sections, "already in memory: no kernels"])
    schedule = make_schedule([root], target, lambda buffer: False)
    programs = list(dict.fromkeys(launch.program for launch in schedule.launches))
    sections.append(f"schedule: {len(schedule.launches)} kernels, {len(programs)} of them distinct")
    for number, program in enumerate(programs):
        sections += [f"kernel {number} for {target.name}", show_program(program)]
        sections += ["code", generated_code(program, target)]
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


def generated_code(program, target: Target) -> str:
    if target.kind == "cpu":
        from minivt.codegen.vectorize import lower_cpu
        return lower_cpu(program, target).ir_text
    from minivt.codegen.render.cuda import render_cuda
    return render_cuda(program, target)
