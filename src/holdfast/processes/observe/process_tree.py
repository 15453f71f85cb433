"""Process trees: one snapshot of /proc for all runs, with the processes of each tree and the CPU time they used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from holdfast.base import clock
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.processes.port import ProcessTree

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Process:
    __slots__ = ("children_cpu", "own_cpu", "parent", "pid", "resident", "start")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.parent = int(fields[1])
        self.own_cpu = int(fields[11]) + int(fields[12])
        self.children_cpu = int(fields[13]) + int(fields[14])  # only of children that ended and were waited for
        self.start = int(fields[19])
        self.resident = int(fields[21])


def read_trees(roots: Mapping[str, ProcessIdentity]) -> dict[str, ProcessTree]:
    """Return the tree below each keeper, by run. A keeper that is gone (or whose pid was reused) has none."""
    processes: dict[int, _Process] = {}
    children: dict[int, list[_Process]] = {}
    for process in _all():
        processes[process.pid] = process
        children.setdefault(process.parent, []).append(process)
    found = {}
    for run_id, root in roots.items():
        keeper = processes.get(root.pid)
        if keeper is not None and keeper.start == root.start_ticks and root.boot_id == clock.boot_id():
            found[run_id] = _tree(keeper, children)
    return found


def _tree(keeper: _Process, children: Mapping[int, list[_Process]]) -> ProcessTree:
    members: list[_Process] = []
    waiting = list(children.get(keeper.pid, ()))
    while waiting:
        process = waiting.pop()
        members.append(process)
        waiting.extend(children.get(process.pid, ()))
    # The keeper's own CPU time is ours, not the agent's. The time of the children that it reaped is the agent's.
    ticks = keeper.children_cpu + sum(process.own_cpu + process.children_cpu for process in members)
    return ProcessTree(
        cpu=ticks / _TICKS,
        newest_start=max((process.start for process in members), default=0) / _TICKS,
        resident=sum(process.resident for process in members) * _PAGE,
        pids=tuple(process.pid for process in members),
    )


def read_activity(roots: Mapping[str, ProcessIdentity]) -> dict[str, object]:
    """Return one value per run. Two values are equal only if no process of the run used the CPU in between.

    The value counts nanoseconds, because a file is written in far less than a clock tick. A process that started and
    ended in between is noticed too: its parent had to run to start it.
    """
    return {run_id: (tree.pids, tree.cpu, _cpu_nanoseconds(tree.pids)) for run_id, tree in read_trees(roots).items()}


def _cpu_nanoseconds(pids: Iterable[int]) -> object:
    """Return the CPU time of all threads. If the kernel does not provide it, return a value that equals no other."""
    total = 0
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                    total += int(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            return object()
    return total


def _all() -> Iterable[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
            except OSError:
                continue  # gone meanwhile
            try:
                fields = os.read(fd, 1024).rpartition(b")")[2].split()
            except OSError:
                continue
            finally:
                os.close(fd)
            if len(fields) > 21:
                yield _Process(int(name), fields)
