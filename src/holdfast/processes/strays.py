"""Strays: processes that carry the marker of a run of this home, or work in one of its workspaces.

Only a stray that is proven to be ours is ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

from holdfast.core.cleanup.observed import StrayProcess
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.processes.helpers import wait_readable
from holdfast.processes.identity import identify, open_pidfd, signal_exactly
from holdfast.processes.run_dir import RunDirectory

GRACE = 2.0
_TOKEN = b"HOLDFAST_RUN_TOKEN="


class StrayProcesses:
    """The part of the Processes port that finds and ends strays."""

    _root: str  # holds one directory per run

    def strays(self) -> list[StrayProcess]:
        return find_strays(os.path.dirname(self._root), frozenset({os.getpid()}))

    async def end_stray(self, stray: StrayProcess) -> bool:
        return await end_stray(stray)


def marked_processes(home: str) -> Iterator[tuple[int, str]]:
    """Yield (pid, run id) of every process of a run of `home`.

    Agents are found by their environment, keepers by their working directory.
    """
    for pid, runs, _folder, _variables in _scan_processes(home):
        for run in runs:
            yield pid, run


def find_strays(home: str, but_of: frozenset[int] = frozenset()) -> list[StrayProcess]:
    """Return all strays of `home`. The caller has to check whether their runs are over.

    `but_of`: pids of supervisors. They and their children are left out: those children are helpers at work.
    """
    inside = os.path.realpath(os.path.join(home, "workspaces")) + "/"
    root = os.path.join(home, "workspaces") + "/"
    found = []
    for pid, runs, folder, variables in _scan_processes(home):
        at = folder.removeprefix(inside).split("/")[:2] if folder.startswith(inside) else []
        place = root + "/".join(at) if len(at) == 2 and not at[0].startswith(".") else None
        identity = identify(pid)
        if identity is None or (not runs and place is None) or pid in but_of or _parent(pid) in but_of:
            continue
        run = runs[-1] if runs else None  # prefer the marker in the environment: only an agent has a token
        found.append(
            StrayProcess(
                pid=pid,
                start_ticks=identity.start_ticks,
                run=run,
                place=place,
                proven=run is not None and _has_token(home, run, variables),
                kept=run is not None and _has_keeper(home, run),
            )
        )
    return found


async def end_stray(stray: StrayProcess) -> bool:
    """Send TERM, wait, send KILL, through a pidfd of exactly that process. False: the process is still alive."""
    now = identify(stray.pid)
    if now is None or now.start_ticks != stray.start_ticks:
        return True
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_exactly(now, number, signal.SIGCONT)
        if await _is_gone(now):
            return True
    return False


async def _is_gone(identity: ProcessIdentity) -> bool:
    fd = open_pidfd(identity)
    if fd is None:
        return True
    try:
        async with asyncio.timeout(GRACE):
            await wait_readable(fd)
    except TimeoutError:
        return False
    finally:
        os.close(fd)
    return True


def _scan_processes(home: str) -> Iterator[tuple[int, list[str], str, list[bytes]]]:
    """Yield (pid, runs that it belongs to, working directory, environment) of every process that we may read."""
    runs = os.path.join(home, "runs") + "/"
    prefix = b"HOLDFAST_RUN_DIR=" + os.fsencode(runs)
    inside = os.path.realpath(runs) + "/"
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            folder = os.readlink(f"/proc/{name}/cwd")
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        mine = [folder.removeprefix(inside).split("/")[0]] if folder.startswith(inside) else []
        mine += [word[len(prefix) :].decode(errors="replace") for word in variables if word.startswith(prefix)]
        yield int(name), mine, folder, variables


def _has_token(home: str, run: str, variables: list[bytes]) -> bool:
    """True if the environment holds the run's token. Only the run's agent got it, so the process descends from it."""
    token = RunDirectory(os.path.join(home, "runs", run)).token() if run.isalnum() else ""
    return bool(token) and _TOKEN + token.encode() in variables


def _has_keeper(home: str, run: str) -> bool:
    directory = RunDirectory(os.path.join(home, "runs", run))
    return run.isalnum() and os.path.exists(directory.file("lock")) and not directory.is_free()


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
