"""A shell in a task's container: in the running container next to its agent, or in a preserved one without it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from typing import Any

from holdfast.base import faults
from holdfast.base.errors import HoldfastError, NotFound, Refused
from holdfast.containers.engine import IDLE, Engine, Engines

CLIENTS = ("docker", "podman")


def shell_argv(home: str, task: dict[str, Any], command: str | None) -> list[str]:
    """Return the command for a shell in the container of a task (a row of `Queries.task`).

    A stopped container is started here. The command stops it again after the shell.
    """
    container = str(task["workspace"]["container"] or "")
    client = next((found for name in CLIENTS if (found := shutil.which(name))), None)
    if client is None:
        raise Refused(
            f"Neither docker nor podman is in PATH, and one of them is needed to enter container {container[:12]}. "
            f"Its files are in {task['workspace']['path']}."
        )
    engine, details = _find(home, task["id"], container)
    to_engine = [client, "-H" if client.endswith("docker") else "--url", f"unix://{engine.socket}"]
    terminal = ["--interactive", "--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else ["--interactive"]
    line = ["sh"] if command is None else ["sh", "-c", command]
    enter = [*to_engine, "exec", *terminal, "--workdir", task["workspace"]["path"], container, *line]
    if details["State"].get("Running"):
        return enter
    _mark_idle(details)
    engine.start(container)
    stop = shlex.join([*to_engine, "stop", "--time", "1", container])
    # A closed terminal or Ctrl-C ends the shell, but not the command that stops the container afterwards.
    return ["sh", "-c", f'trap : HUP INT TERM; "$@"; code=$?; {stop} >/dev/null; exit $code', "holdfast", *enter]


def _find(home: str, task_id: str, container: str) -> tuple[Engine, dict[str, Any]]:
    """Return the container's engine and details, from the engines that this home has used."""
    engines, why = Engines(home), ""
    for socket in engines.all() if container else []:
        try:
            details = engines.at(socket).details(container)
        except HoldfastError as error:
            why = f" {error}"
            continue
        if details is not None:
            return engines.at(socket), details
    raise NotFound(f"Task {task_id} has no container now.{why}")


def _mark_idle(details: dict[str, Any]) -> None:
    """Mark the container so that its main process does not run the agent at the next start.

    The run's directory may have been removed by now, so the channel is made again.
    """
    channel = next(mount["Source"] for mount in details["Mounts"] if os.path.basename(mount["Source"]) == "channel")
    faults.effect("container.idle")
    os.makedirs(channel, mode=0o700, exist_ok=True)
    # The agent can write to this directory, so a link here must not be followed.
    idle = os.path.join(channel, IDLE)
    try:
        if not os.path.isdir(idle) or os.path.islink(idle):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(idle)
            os.close(os.open(idle, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return  # another shell is entering the container too
    except OSError as error:
        raise Refused(f"{idle} cannot be written ({error.strerror}), and without it the agent would start.") from error
