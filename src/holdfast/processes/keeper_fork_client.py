"""The supervisor's side of the keeper fork server: starts the server and asks it for keepers.

If the server fails, the launcher starts the keeper as a new process instead.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping

from holdfast.base import faults
from holdfast.processes.children import Children

SERVER = os.path.join(os.path.dirname(__file__), "keeper_fork_server.py")
PATIENCE = 10.0  # seconds for an answer that usually takes milliseconds; the supervisor's loop is blocked meanwhile
LENGTH, ANSWER = 8, 24
ROOM = 400  # characters of command line, which a keeper overwrites with the text that `ps` shows
FAULT_PREFIX = "HOLDFAST_FAULT"  # variables that arm fault points: the supervisor's go to keepers, never to agents
_PASSED = ("PATH", "LANG", FAULT_PREFIX)


def with_own_faults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a keeper that is started directly: the agent's plus our fault variables."""
    ours = {name: value for name, value in os.environ.items() if name.startswith(FAULT_PREFIX)}
    return without_faults(environment) | ours


def without_faults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an agent without any fault variable."""
    return {name: value for name, value in environment.items() if not name.startswith(FAULT_PREFIX)}


class KeeperForkClient:
    """The connection to the keeper fork server, opened for the first keeper, and again if the server was killed."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._channel: socket.socket | None = None
        self._pid = 0

    def fork_keeper(self, directory: str, environment: Mapping[str, str], lock: int, ready: int, log: int) -> int:
        """Return the pid of a new keeper, which is a child of this process.

        Raise OSError if no keeper was forked, or its pid is not known. The caller then calls `close` and looks for a
        keeper.
        """
        if self._channel is None:
            self._channel = self._start_server()
        request = os.fsencode(directory) + b"\0" + json.dumps(without_faults(environment)).encode()
        faults.effect("nursery.ask")
        socket.send_fds(self._channel, [len(request).to_bytes(LENGTH, "big")], [lock, ready, log])
        self._channel.sendall(request)
        answer = b""
        while len(answer) < ANSWER:
            block = self._channel.recv(ANSWER - len(answer))
            if not block:
                raise ConnectionResetError("the keeper fork server ended")
            answer += block
        if not answer.strip().isdigit():
            raise OSError(answer.decode(errors="replace").strip())
        faults.passed("nursery.answered")
        return int(answer)

    def _start_server(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._pid = self._children.spawn(
                    [sys.executable, "-I", "-S", "-X", "utf8", SERVER, str(theirs.fileno()), "-" * ROOM],
                    cwd="/",
                    env={name: value for name, value in os.environ.items() if name.startswith(_PASSED)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            ours.settimeout(PATIENCE)
        except BaseException:
            ours.close()
            raise
        return ours

    def close(self) -> None:
        """Kill and reap the keeper fork server, so that it cannot fork another keeper. Its keepers live on."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._children.kill_group_and_reap(self._pid)
