"""The managers that get the same hostile tree: Holdfast, supervisord and circus, each through the same few verbs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from bench.living import Agent, Living
from bench.stage import Stage
from bench.store_cycles import ROOT, VENV, dbos_missing

from holdfast import __version__
from holdfast.api.commands import Commands

TREE = str(Path(__file__).with_name("hostile_tree.py"))
GRACE = 1  # seconds between TERM and KILL, the same for all
PATIENCE = 40.0


class PeerProblem(Exception):
    """It cannot be compared with; the text says why."""


class Manager(Protocol):
    version: str

    def start(self) -> None:
        """Start it; after a crash: again. It is to run one tree."""
        ...

    def stop_tree(self) -> float:
        """Ask it to stop the tree; seconds until it says that this is done."""
        ...

    def crash(self) -> None:
        """kill -9."""
        ...

    def close(self) -> None: ...


class Place:
    """Where one tree lives: its witness, and the file that says that it has grown."""

    def __init__(self, folder: Path, orphan_grace: float = 120.0) -> None:
        folder.mkdir()
        self.orphan_grace = orphan_grace  # Holdfast's: seconds until a tree without a manager is ended
        self.folder, self.witness, self.ready = folder, folder / "witness", folder / "ready"
        self.witness.touch()

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-S", TREE, str(self.witness), str(self.ready)]


class Holdfast:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._stage = Stage(place.folder / "stage")
        self._living = Living(self._stage)
        self._commands = Commands(str(self._stage.home))
        self._agent: Agent | None = None
        self.version = __version__

    def start(self) -> None:
        self._stage.up(agents=1)
        if self._agent is None:
            more = {"grace": float(GRACE), "orphan_grace": self._place.orphan_grace}
            self._agent = self._living.start([self._place.argv], **more)[0]

    def stop_tree(self) -> float:
        assert self._agent is not None
        began = time.monotonic()
        self._commands.cancel(self._agent.task, "benchmark")
        return self._living.wait_ended(self._agent.task) - began

    def crash(self) -> None:
        self._stage.kill_supervisor()

    def close(self) -> None:
        self._stage.down()


class Peer:
    """A manager of .venv-bench: a configuration file, a process, a client beside it."""

    def __init__(self, place: Place, name: str, program: str, config: str, endpoint: str) -> None:
        self._name, self._endpoint = name, endpoint
        self._folder = place.folder
        self._argv = [str(VENV / "bin" / program), *(["-n", "-c"] if name == "supervisord" else [])]
        self._config = place.folder / f"{name}.conf"
        self._config.write_text(config)
        self._process: subprocess.Popen[bytes] | None = None
        problem = dbos_missing()  # the same virtual environment
        if problem is not None:
            raise PeerProblem(problem)
        self.version = str(self._ask("-")["version"])

    def start(self) -> None:
        with (self._folder / "manager.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._argv, str(self._config)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop_tree(self) -> float:
        answer = self._ask(self._endpoint)
        return float(answer["ended"]) - float(answer["began"])

    def crash(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, endpoint: str) -> dict[str, Any]:
        try:
            done = subprocess.run(
                [str(VENV / "bin" / "python"), str(ROOT / "bench" / "peer_side.py"), self._name, endpoint],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise PeerProblem(f"it did not answer within {late.timeout:.0f} s") from None
        if done.returncode != 0:
            raise PeerProblem((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


def supervisord(place: Place) -> Peer:
    """With both group options on: the most that its manual offers."""
    socket = place.folder / "s.sock"
    config = f"""[supervisord]
logfile={place.folder}/supervisord.log
pidfile={place.folder}/supervisord.pid
childlogdir={place.folder}
[unix_http_server]
file={socket}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[program:tree]
command={" ".join(place.argv)}
stopwaitsecs={GRACE}
stopasgroup=true
killasgroup=true
startsecs=0
autorestart=false
"""
    return Peer(place, "supervisord", "supervisord", config, f"unix://{socket}")


def circus(place: Place, *, stop_children: bool) -> Peer:
    endpoint = f"ipc://{place.folder}/c"
    config = f"""[circus]
endpoint = {endpoint}
pubsub_endpoint = ipc://{place.folder}/p
[watcher:tree]
cmd = {" ".join(place.argv)}
graceful_timeout = {GRACE}
stop_children = {stop_children}
respawn = False
copy_env = True
"""
    return Peer(place, "circus", "circusd", config, endpoint)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
