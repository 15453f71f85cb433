"""Set-up and teardown where they meet cancellations, links and time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest
from tests.faults.conftest import assert_no_process
from tests.faults.stage import Stage, cleanup_bound
from tests.fleet import Fleet
from tests.harness.await_walker import Ended, walk
from tests.integration.conftest import Workshop

from holdfast.core.workflows.result import GateResult
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.services.retention import Retention
from holdfast.workspaces.names import setup_log, setup_logs
from holdfast.workspaces.port import FailedCommand
from holdfast.workspaces.setup.commands import CommandSetup


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


def test_a_teardown_at_work_does_not_hold_a_supervisor_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-TREE-03, R-CLEAN-06: cancelled while a teardown command hangs, it is cut short with a warning, and the tree
    goes all the same; logs of old ones are forgotten like what agents print."""
    begun = stage.fleet.root / "begun"
    monkeypatch.setenv("HOLDFAST_WORKSPACE_TEARDOWN", f"'touch {begun}; setsid sleep 1000'")
    task_id = stage.add("true")
    took: list[float] = []

    async def drive() -> None:
        with contextlib.ExitStack() as closing:
            context = stage.context(closing)
            task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
            assert task is not None
            driving = asyncio.create_task(Attempt(context, task).drive())
            while not begun.exists():  # noqa: ASYNC110 - a file rings no bell
                await asyncio.sleep(0.01)
            began = time.monotonic()
            driving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await driving
            took.append(time.monotonic() - began)
            log = Path(context.home, "setup-logs")
            [kept] = log.iterdir()
            old = log / "old.setup.log"
            old.touch()
            os.utime(old, (0, 0))
            await Retention(context)._delete_setup_logs()
            assert list(log.iterdir()) == [kept]

    asyncio.run(drive())
    assert took[0] < cleanup_bound()
    stage.assert_put_away_if_ended(task_id)
    assert stage.task(task_id)["state"] == "completed"
    told = {event["kind"]: event for event in stage.told(task_id)}
    assert "was cut short, because the supervisor stops" in told["workspace.teardown-failed"]["message"]
    assert told["workspace.trashed"]["data"]["method"] == "rename"
    assert_no_process(stage.fleet)


def test_copies_follow_no_link_of_the_workspace(workshop: Workshop) -> None:
    """The base may have a link where the checkout has a directory: nothing is written behind it."""
    outside = workshop.fleet.root / "outside"
    outside.mkdir()
    (workshop.fleet.repo / "conf").symlink_to(outside)
    workshop.fleet.git("add", "conf")
    workshop.fleet.git("commit", "--quiet", "-m", "A link")
    workspace, path = workshop.made()
    (workshop.fleet.repo / "conf").unlink()
    for name in ("conf/.env", "new/deep/.env", "README.md.env"):
        (workshop.fleet.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (workshop.fleet.repo / name).write_text(name)
    os.mkfifo(workshop.fleet.repo / "fifo.env")
    furnisher = CommandSetup(workshop.home, workshop.git, HelperRunner(Children()))
    came = workshop.run(furnisher.copy(workshop.repo, workspace, ["**/.env", "/*.env", "fifo.env"]))
    assert came.copied == ("README.md.env", "new/deep/.env")
    assert came.left == {"conf/.env": "'conf' in its path is not a directory"}
    assert list(outside.iterdir()) == []
    assert (path / "new/deep/.env").read_text() == "new/deep/.env"
    again = workshop.run(furnisher.copy(workshop.repo, workspace, ["README.md.env"]))
    assert again.left == {"README.md.env": "the workspace has a file of that name"}


def test_set_up_commands_cancelled_at_any_await(workshop: Workshop) -> None:
    """R-TREE-01: whenever it is cancelled, nothing that a command started lives on, whatever group it went to."""
    workspace, _path = workshop.made()
    furnisher = CommandSetup(workshop.home, workshop.git, HelperRunner(Children()))
    commands = ["(setsid sleep 1000 &) ; echo one", "echo two >&2; exit 4", "echo never"]

    def check(ended: Ended[FailedCommand | None]) -> None:
        assert_no_process(workshop.fleet)
        if ended.how == "returned":
            assert ended.value is not None
            assert (ended.value.how, ended.value.tail) == ("ended with exit code 4", "two")
            assert ended.value.log == setup_log(workshop.home, workspace, "setup")
        assert os.path.isdir(setup_logs(workshop.home)) or ended.case is not None

    env = {"PATH": os.environ["PATH"], "HERE": workshop.home}
    walk(lambda: furnisher.set_up(workspace, commands, env, 60.0), check, second=True, most=8)


def test_a_gate_cancelled_at_any_await(workshop: Workshop) -> None:
    """R-TREE-01: the same for the gate of a stage; what it printed, on both streams, is told and kept."""
    workspace, _path = workshop.made()
    furnisher = CommandSetup(workshop.home, workshop.git, HelperRunner(Children()))
    env = {"PATH": os.environ["PATH"], "HERE": workshop.home}

    def check(ended: Ended[GateResult]) -> None:
        assert_no_process(workshop.fleet)
        if ended.how == "returned":
            assert ended.value is not None
            assert (ended.value.passed, ended.value.how, ended.value.output) == (False, "exited with 3", "one\ntwo\n")
            log = Path(setup_log(workshop.home, workspace, "gate-build"))
            assert log.read_text().endswith("one\ntwo\n(exited with 3)\n")

    command = "(setsid sleep 1000 &) ; echo one; echo two >&2; exit 3"
    walk(lambda: furnisher.gate(workspace, "gate-build", command, env, 60.0), check, most=6)
    late = workshop.run(furnisher.gate(workspace, "gate-late", "printf 'so far'; sleep 1000", env, 0.2))
    assert (late.passed, late.how, late.output) == (False, "timed out after 200ms", "so far")
    assert_no_process(workshop.fleet)


def test_what_a_gate_leaves_running_cannot_hide_between_two_programs(workshop: Workshop) -> None:
    """R-TREE-01: a process that runs one program after another has no environment in between, where its mark is."""
    workspace, path = workshop.made()
    furnisher = CommandSetup(workshop.home, workshop.git, HelperRunner(Children()))
    restless = path / "restless"
    restless.write_text('#!/bin/sh\nexec "$0"\n')
    restless.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HERE": workshop.home}
    for _time in range(15):
        gate = workshop.run(furnisher.gate(workspace, "gate-restless", "(setsid ./restless &) ; exit 0", env, 60.0))
        assert gate.passed
        assert_no_process(workshop.fleet)
