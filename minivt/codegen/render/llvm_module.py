"""LLVM IR text of a whole kernel: its entry, its body and its number of tasks. Not for what the body does (llvm.py)."""
from __future__ import annotations

from minivt.codegen.render.llvm import Builder, Value


def module_text(name: str, body: Builder, count: tuple[Builder, Value], slots: list[int], variables: int) -> str:
    """The module of a kernel: its entry, which fetches arguments, its body, where no two pointers alias, its count."""
    counting, total = count
    pointers = [f"ptr noalias %p{slot}" for slot in slots]
    integers = [f"i64 %var{i}" for i in range(variables)]
    arguments = [*pointers, *integers, "i64 %begin", "i64 %end", "ptr noalias %scratch"]
    fetch = [line for position, slot in enumerate(slots) for line in (
        f"%a{slot} = getelementptr ptr, ptr %bufs, i64 {position}", f"%p{slot} = load ptr, ptr %a{slot}, align 8")]
    read = [line for i in range(variables) for line in (
        f"%w{i} = getelementptr i64, ptr %vars, i64 {i}", f"%var{i} = load i64, ptr %w{i}, align 8")]
    passed = ", ".join(a.replace("noalias ", "") for a in arguments)
    return "\n".join([
        *sorted({**body.declared, **counting.declared}.values()),
        f"define internal void @{name}_body({', '.join(arguments)}) noinline nounwind {{", "entry:",
        *body.scopes[0].lines, "ret void", "}",
        f"define void @{name}(ptr %bufs, ptr %vars, i64 %begin, i64 %end, ptr %scratch) nounwind {{", "entry:",
        *fetch, *read, f"call void @{name}_body({passed})", "ret void", "}",
        f"define i64 @{name}_tasks(ptr %vars) nounwind {{", "entry:", *read, *counting.scopes[0].lines,
        f"ret i64 {total.text}", "}",
        "!0 = distinct !{!0, !1, !2}", '!1 = !{!"llvm.loop.vectorize.enable", i1 false}',
        '!2 = !{!"llvm.loop.unroll.disable"}', ""])
