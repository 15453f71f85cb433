"""A keeper takes crash points from its supervisor's environment only, whichever way it was started."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from holdfast.core.runs.outcome import Cause, ProcessEnd
from holdfast.processes import keeper_fork_client
from holdfast.processes.children import Children
from holdfast.processes.launcher import KeeperProcesses
from holdfast.processes.port import LaunchSpec
from holdfast.wiring.supervisor import agent_environment

POINT = "keeper.forked:1:kill"


@pytest.fixture(params=["forked", "spawned"])
def processes(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the run directories. Spawned: there is no fork server, so each keeper is a process of its own."""
    if request.param == "spawned":
        monkeypatch.setattr(keeper_fork_client, "SERVER", str(tmp_path / "missing.py"))
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def run_agent(root: Path, script: str, **env: str) -> ProcessEnd:
    """Launch an agent with this environment; its end."""

    async def launch() -> ProcessEnd:
        kept = KeeperProcesses(str(root), Children())
        spec = LaunchSpec(
            run_id="run1",
            argv=("sh", "-c", script),
            env={"PATH": os.environ["PATH"], **env},
            cwd=str(root),
            stdin="",
            timeout=60,
            grace=1,
            fast_grace=1,
            orphan_grace=60,
        )
        run = kept.launch(spec)
        try:
            await run.wait_started()
            return await run.wait_ended()
        finally:
            run.close()
            kept.close()

    return asyncio.run(launch())


def test_the_agents_environment_arms_nothing(processes: Path) -> None:
    trace = processes / "trace"
    end = run_agent(processes, "env > seen", HOLDFAST_FAULT=POINT, HOLDFAST_FAULT_TRACE=str(trace), MINE="yes")
    assert (end.cause, end.code) == (Cause.EXITED, 0)
    assert not trace.exists()
    seen = (processes / "seen").read_text()
    assert "MINE=yes" in seen
    assert "HOLDFAST_FAULT" not in seen


def test_the_supervisors_environment_arms_the_keeper_and_never_reaches_the_agent(
    processes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = processes / "trace"
    monkeypatch.setenv("HOLDFAST_FAULT_TRACE", str(trace))
    end = run_agent(processes, "env > seen", MINE="yes")
    assert (end.cause, end.code) == (Cause.EXITED, 0)
    assert "keeper.forked:1" in trace.read_text()
    assert "HOLDFAST_FAULT" not in (processes / "seen").read_text()


def test_the_supervisors_fault_ends_the_keeper(processes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_FAULT", POINT)
    assert run_agent(processes, "touch ran").cause is Cause.NEVER_STARTED
    assert not (processes / "ran").exists()


def test_a_stored_task_of_an_earlier_version_brings_no_variable_of_holdfast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_FAULT", POINT)
    monkeypatch.setenv("MINE", "yes")
    stored = {"pass": ["HOLDFAST_*", "MINE"], "set": {"HOLDFAST_FAULT": POINT, "OTHER": "too"}}
    made = agent_environment(stored, str(tmp_path))
    assert (made["MINE"], made["OTHER"]) == ("yes", "too")
    assert [name for name in made if name.startswith("HOLDFAST_")] == []
