"""Which statements of a block share one nest of loops: those over the same points, where each needs of another only
what that computed at the same point. Not for contractions, which have nests of their own.

before:  SET p[i, j] = exp2(s[i, j]); SET m[i] = n[i]; SET l[i] += sum over j of p[i, j]
after:   {SET p, SET l}, {SET m}
"""
from __future__ import annotations

from minivt.codegen.lane_choice import Task
from minivt.codegen.tile import LOAD, READ, SET, Param, Tile
from minivt.graph import Node, walk


def group_statements(tasks: list[Task], lane_of: dict[Task, Node | None]) -> list[list[Task]]:
    """The statements of straight code in groups, in an order that means the same."""
    groups: list[list[Task]] = []
    for task in tasks:
        place = _home(groups, task, lane_of)
        if place is None:
            groups.append([task])
        else:
            place.append(task)
    return groups


def _home(groups: list[list[Task]], task: Task, lane_of: dict) -> list[Task] | None:
    """The last group that the statement can join without passing one that it depends on."""
    for group in reversed(groups):
        if _joins(group, task, lane_of):
            return group
        if any(_conflict(member, task) for member in group):
            return None
    return None


def _joins(group: list[Task], task: Task, lane_of: dict) -> bool:
    first = group[0]
    if task.product or first.product or lane_of[first] is not lane_of[task] or set(first.axes) != set(task.axes):
        return False
    sums = [set(t.summed) for t in (*group, task) if t.statement.op is SET and t.statement.arg.reduce is not None]
    return all(s == sums[0] for s in sums) and all(_pointwise(member, task) for member in group)


def _pointwise(before: Task, after: Task) -> bool:
    """Whether `after` may follow at each point instead of after all points."""
    if written(before) == written(after):
        return False
    if written(before) in read_by(after) and not _whole(before, before.axes):
        return False
    return written(after) not in read_by(before) or _whole(after, after.axes)


def _whole(task: Task, axes: tuple[Node, ...]) -> bool:
    """Whether it sets a tile with an element for every point."""
    return task.statement.op is SET and task.statement.arg.reduce is None and \
        set(task.statement.arg.tile.axes) == set(axes)


def _conflict(before: Task, after: Task) -> bool:
    return written(before) == written(after) or written(before) in read_by(after) or written(after) in read_by(before)


def written(task: Task) -> Tile | Param:
    statement = task.statement
    return statement.arg.tile if statement.op is SET else statement.arg[0]


def read_by(task: Task) -> set[Tile | Param]:
    found = {n.arg for n in walk(*task.statement.src) if n.op in (READ, LOAD)}
    if task.statement.op is SET and task.statement.arg.accumulate:
        found.add(task.statement.arg.tile)
    return found
