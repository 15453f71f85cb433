"""The caller of a command: a person, or a process inside a run of this home.

An agent can set any variable, so its own environment does not decide alone. The facts are, for the process itself and
for each of its ancestors: the run's marks in the environment that a process was started with, the run's cgroup, and the
keeper, which adopts every process of its run that loses its parent. A run of another home does not count.

A new PID, user or cgroup namespace hides these facts. So a process in a new namespace counts as a person only if the
supervisor is in the same namespace, or no supervisor lives.

Not proof against an agent that ends its keeper and has no cgroup: docs/security.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Refused
from holdfast.processes.supervisor_facts import (
    FIRST_NAMESPACES,
    has_supervisor,
    read_namespaces,
    read_surroundings,
)

MOST_ANCESTORS = 1024
_RUN_DIR = b"HOLDFAST_RUN_DIR="
_TASK = b"HOLDFAST_TASK_ID="
_WORKSPACE = b"HOLDFAST_WORKSPACE_PATH="
_HOME = b"HOLDFAST_HOME="
_KEEPERS = (b"keeper.py", b"keeper_fork_server.py")
_GROUP = "/holdfast-"


@dataclass(frozen=True, slots=True)
class Caller:
    """The task that a process works for. `run` is empty for a set-up, teardown or gate command."""

    task: str
    run: str = ""


def find_caller(home: str) -> Caller | None:
    """Return the task of this home that this process works for, or None for a person.

    What an agent cannot choose decides first: the outermost keeper above it, its cgroup, the outermost marks. Its own
    variables, and ancestors that it started itself, could name another run, which has more rights.
    """
    home = os.path.realpath(home)
    kept = marked = None
    ancestors = []
    if sys.platform == "linux" and not os.path.exists("/proc/self/stat"):
        raise Refused("/proc does not show this process, so it is not known who runs it. Nothing was changed.")
    for pid in _ancestors():
        ancestors.append(pid)
        kept = _by_keeper(pid, home) or kept
        marked = _by_marks(_environment(pid), home) or marked
    own = [os.fsencode(f"{name}={value}") for name, value in os.environ.items() if name.startswith("HOLDFAST_")]
    found = kept or _by_cgroup(home) or marked or _by_marks(own, home)
    if found is None:
        _refuse_hidden(home, ancestors)
    return found


def _refuse_hidden(home: str, ancestors: Sequence[int]) -> None:
    """Raise Refused if this process could be inside a run, and its namespaces hide the facts.

    The machine's first namespaces hide nothing. A person in a container has the namespaces of the supervisor there.
    """
    recorded, own = read_surroundings(home), read_namespaces()
    strange = [
        kind
        for kind, number in recorded.namespaces.items()
        if own.get(kind) not in (number, FIRST_NAMESPACES.get(kind))
    ]
    # In a new user namespace the ancestors are visible, but neither their environment nor their directory is.
    is_below = "user" in strange and recorded.pid in ancestors
    others = [kind for kind in strange if kind != "user"]
    if any(map(_is_hidden_keeper, ancestors)) or ((others or is_below) and has_supervisor(home)):
        what = f"another {' and '.join(others)} namespace than" if others else "a user namespace below"
        raise Refused(
            f"This process is in {what} the supervisor of this home, so it is not known who runs it. Nothing was "
            "changed. Run the command in a shell where the supervisor was started, or stop the supervisor there first."
        )


def _is_hidden_keeper(pid: int) -> bool:
    """True if the process runs our keeper's program as this user, and its working directory cannot be read."""
    try:
        os.readlink(f"/proc/{pid}/cwd")
        return False
    except PermissionError:
        pass
    except OSError:
        return False
    try:
        is_own = os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False
    return is_own and _runs_keeper(pid)


def _ancestors() -> Iterator[int]:
    """Yield the pids of all ancestors. Raise Refused if there are too many, because a process may hide behind them."""
    pid = os.getppid()
    for _step in range(MOST_ANCESTORS):
        if pid <= 1:
            return
        yield pid
        stat = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        pid = int(stat[1]) if len(stat) > 1 else 0
    raise Refused(f"This process has more than {MOST_ANCESTORS} ancestors. Nothing was changed. Use another shell.")


def _environment(pid: int) -> list[bytes]:
    """Return the environment that a process was started with. Empty: it belongs to another user."""
    content = _read(f"/proc/{pid}/environ")
    return content.split(b"\0") if b"HOLDFAST_" in content else []


def _by_marks(variables: list[bytes], home: str) -> Caller | None:
    """Return the task that the marks name, if it is of this home.

    The mark of an agent is the path of its run's directory. The mark of a set-up, teardown or gate command is the path
    of its workspace.
    """
    run_dir, task, workspace, marked = (_value(variables, name) for name in (_RUN_DIR, _TASK, _WORKSPACE, _HOME))
    if run_dir and _is_same(os.path.dirname(os.path.dirname(run_dir)), home):
        run = os.path.basename(run_dir)
        return Caller(_task_of(home, run) or task, run)
    if task and workspace and marked and _is_same(marked, home):
        return Caller(task)
    return None


def _is_same(path: str, home: str) -> bool:
    """True if both are one directory: by its inode number too, because a bind mount has another path."""
    try:
        return os.path.realpath(path) == home or os.path.samefile(path, home)
    except OSError:
        return False


def _value(variables: list[bytes], name: bytes) -> str:
    return next((os.fsdecode(word[len(name) :]) for word in variables if word.startswith(name)), "")


def _by_cgroup(home: str) -> Caller | None:
    content = os.fsdecode(_read("/proc/self/cgroup"))
    if _GROUP not in content:
        return None
    from holdfast.processes.cgroups import base_name  # imported only here: every command asks who calls it

    base = f"/{base_name(home)}/"
    for line in content.splitlines():
        run = line.partition(_GROUP)[2].partition("/")[2].split("/")[0]
        if base in line or (run and os.path.isdir(f"{home}/runs/{run}")):  # a bind mount of the home has another name
            return Caller(_task_of(home, run), run)
    return None


def _by_keeper(pid: int, home: str) -> Caller | None:
    """Return the task of a keeper: its working directory is the run's, and it runs our program."""
    try:
        folder = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None
    root, _, run = folder.partition("/runs/")
    if not run or not _is_same(root, home):
        return None
    if not _runs_keeper(pid):
        return None  # a person's shell in that directory
    run = run.split("/")[0]
    return Caller(_task_of(home, run), run)


def _runs_keeper(pid: int) -> bool:
    return any(os.path.basename(word) in _KEEPERS for word in _read(f"/proc/{pid}/cmdline").split(b"\0"))


def _task_of(home: str, run: str) -> str:
    """Return the task of a run as its directory records it, or an empty text."""
    import json

    try:
        return str(json.loads(_read(f"{home}/runs/{run}/intent.json"))["metadata"]["task"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
