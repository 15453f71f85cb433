"""Containers without an engine: which one is asked for a proof, and what entering one writes where an agent was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.base.errors import Unavailable
from holdfast.containers import shell
from holdfast.containers.container_run import Enclosure, inside
from holdfast.containers.engine import IDLE, WORKSPACE, Engine, Engines, container_limits
from holdfast.core.model import Strategy, TaskSpec, Workspace
from holdfast.core.runs.outcome import Cause, ProcessEnd
from holdfast.core.states import WorkspaceState
from holdfast.core.task_settings import ContainerRules, RunLimits
from holdfast.processes.cgroups import HomeCgroups


@dataclass
class FakeEngine:
    socket: str
    containers: set[str] = field(default_factory=set)
    answers: bool = True
    ended: list[Mapping[str, str]] = field(default_factory=list)

    def details(self, container: str) -> dict[str, Any] | None:
        if not self.answers:
            raise Unavailable("no answer")
        return {"State": {}} if container in self.containers else None

    def end(self, labels: Mapping[str, str]) -> None:
        if not self.answers:
            raise Unavailable("no answer")
        self.ended.append(labels)


class FakeEngines:
    def __init__(self, *engines: FakeEngine) -> None:
        self._engines = {engine.socket: engine for engine in engines}

    def at(self, socket: str) -> Engine:
        return cast(Engine, self._engines[socket])

    def all(self) -> list[str]:
        return list(self._engines)


def test_a_proof_comes_from_the_engine_that_has_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-TERM-10: DOCKER_HOST may differ from one supervisor to the next. An engine that never had the container proves
    nothing; while the one that may have it does not answer, nobody knows."""
    there, here = FakeEngine("/there.sock", {"c1"}), FakeEngine("/here.sock")
    monkeypatch.setenv("DOCKER_HOST", "unix:///here.sock")
    spec = TaskSpec(
        id="t", prompt="x", repo_id="r", base_ref="main", agent="command", strategy=Strategy.CONTAINER,
        container=ContainerRules(image="i"),
    )  # fmt: skip
    workspace = Workspace(
        id="w", task_id="t", repo_id="r", strategy=Strategy.CONTAINER, path="/w", branch=None, base_commit=None,
        state=WorkspaceState.READY, disposition=None, container="c1",
    )  # fmt: skip
    enclosure = Enclosure("/home", cast(Engines, FakeEngines(there, here)))
    unproven = ProcessEnd(cause=Cause.UNPROVEN)
    assert asyncio.run(enclosure.prove(spec, workspace, unproven)).cause is Cause.KEEPER_DIED
    assert there.ended == [{WORKSPACE: "w"}]
    there.answers = False
    with pytest.raises(Unavailable):
        asyncio.run(enclosure.prove(spec, workspace, unproven))
    there.answers, there.containers = True, set()  # somebody removed it: all say so
    assert asyncio.run(enclosure.prove(spec, workspace, unproven)).cause is Cause.KEEPER_DIED


class StoppedEngine(FakeEngine):
    def __init__(self, channel: Path) -> None:
        super().__init__("/e.sock")
        self._channel = channel

    def details(self, container: str) -> dict[str, Any] | None:
        return {"State": {"Running": False}, "Mounts": [{"Source": str(self._channel)}]}

    def start(self, container: str) -> None:
        assert (self._channel / IDLE).exists(), "the agent would run again"


def test_entering_a_container_follows_no_link_of_its_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The channel is the agent's to write. A link there leads nowhere, and however the shell ends, by a hangup too,
    the container is stopped behind it."""
    channel, precious, stopped = tmp_path / "channel", tmp_path / "precious", tmp_path / "stopped"
    channel.mkdir()
    precious.write_text("the user's\n")
    client = tmp_path / "docker"
    client.write_text(f'#!/bin/sh\ncase "$*" in *" stop "*) touch {stopped};; *) echo in; exec sleep 60;; esac\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    engine = StoppedEngine(channel)
    monkeypatch.setattr(shell, "Engines", lambda _home: FakeEngines(engine))
    task = {"id": "t", "workspace": {"container": "c1", "path": str(tmp_path)}}
    (channel / IDLE).mkdir()
    shell.shell_argv("/home", task, "true")
    (channel / IDLE).rmdir()
    (channel / IDLE).symlink_to(precious)
    argv = shell.shell_argv("/home", task, "true")
    assert precious.read_text() == "the user's\n"
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        os.killpg(process.pid, signal.SIGHUP)  # the terminal was closed
        process.wait(timeout=20)
    assert stopped.exists()


def test_what_adapter_and_account_set_reaches_the_agent_inside() -> None:
    env = {"ANTHROPIC_API_KEY": "k", "SSH_AUTH_SOCK": "/s", "LANG": "C", "MINE": "m", "HOLDFAST_RUN_ID": "r"}
    seen = inside(env, {"pass": ["MINE"], "set": {}}, ("ANTHROPIC_API_KEY",))
    assert (seen["ANTHROPIC_API_KEY"], seen["MINE"]) == ("k", "m")
    assert "SSH_AUTH_SOCK" not in seen
    assert "ANTHROPIC_API_KEY" not in inside(env, {"pass": ["MINE"], "set": {}})


ABLE = {"MemTotal": 1000, "MemoryLimit": True, "PidsLimit": True}


@pytest.mark.parametrize(
    ("info", "rules", "limits", "expected"),
    [
        (ABLE, ContainerRules(), RunLimits(), (800, 8192)),
        (ABLE, ContainerRules(memory_share=50), RunLimits(processes_ceiling=7), (500, 7)),
        (ABLE, ContainerRules(), RunLimits(memory=5, processes=3), (5, 3)),
        (ABLE, ContainerRules(memory_share=100), RunLimits(processes_ceiling=None), (None, None)),
        ({"MemTotal": 1000, "MemoryLimit": False}, ContainerRules(), RunLimits(), (None, None)),
        ({}, ContainerRules(), RunLimits(memory=5, processes=3), (5, 3)),
    ],
)
def test_a_default_limit_stands_in_where_the_engine_can_hold_it(
    info: dict[str, Any], rules: ContainerRules, limits: RunLimits, expected: tuple[int | None, int | None]
) -> None:
    """Finding F14: no container without a limit of processes and memory. An engine that cannot hold a limit would
    refuse the container: it gets only those that the user asked for."""
    assert container_limits(info, rules, limits) == expected


def test_a_host_run_has_a_ceiling_of_processes_where_its_leaf_can_hold_it() -> None:
    """Finding F14: cgroup v2 holds the ceiling without any watching. Other systems get no further group for it."""
    able = HomeCgroups("/cg/base", {"pids": "/cg/base"})
    assert able.intent("r", RunLimits())["settings"] == [["/cg/base/r/pids.max", "8192"]]
    assert able.intent("r", RunLimits(processes=3))["settings"] == [["/cg/base/r/pids.max", "3"]]
    assert able.intent("r", RunLimits(processes_ceiling=None))["settings"] == []
    old = HomeCgroups("/cg/base", {"pids": "/v1/base"})
    assert old.intent("r", RunLimits())["groups"] == ["/cg/base/r"]
