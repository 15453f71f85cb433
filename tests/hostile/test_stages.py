"""What agents, gates and people do to the stages of a task that nobody meant them to."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.acceptance.workflows.test_stages import Workshop, results
from tests.clis import fake_cli, recorded
from tests.fleet import Fleet, lives, wait_until

from holdfast.core.model import Strategy, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft
from holdfast.supervisor.runs.stages import MOST_GATE_STARTS
from holdfast.workspaces.setup.commands import run_gate

MIB = 1 << 20


def _taken(log: Path) -> int:
    """Bytes on the disk."""
    return log.stat().st_blocks * 512


def test_a_gate_that_cannot_run_fails_and_one_that_can_leaves_nothing(fleet: Fleet) -> None:
    """R-TREE-13, R-TREE-14, R-TERM-06: an agent that removed its workspace, or put a link to somebody else's directory
    there, fails its task before the gate. A command that no system runs: the task is paused with the reason, and the
    gate is not tried for ever, and runs nowhere else. What one prints is bounded. What it put into the background ends
    with it, though it dropped its session and its environment."""
    shop, elsewhere, opened = Workshop(fleet), fleet.root / "elsewhere", fleet.root / "open"
    elsewhere.mkdir()
    gone = 'd="$PWD"; cd /; rm -rf "$d"'
    daemon = fleet.root / "daemon"
    loud = f"env -i setsid sh -c 'sleep 3600 & echo $! > {daemon}'; "
    loud += f"head -c 30000000 /dev/zero | tr '\\0' x; until [ -e {opened} ]; do sleep 0.1; done; echo the end; false"
    tasks = [
        shop.add(StageDraft(name="one", chosen=shop.command("one", gone), gate="touch ran")),
        shop.add(
            StageDraft(name="two", chosen=shop.command("two", f'{gone}; ln -s {elsewhere} "$d"'), gate="touch ran")
        ),
        shop.add(StageDraft(name="six", chosen=shop.command("six"), has_set_gate=True), gate="true " + 140_000 * "x"),
        shop.add(StageDraft(name="ten", chosen=shop.command("ten"), gate=loud)),
    ]
    twins = [MemberDraft(name=name, chosen=shop.command(name, f"echo $n >> {name}")) for name in ("an", "be")]
    enough = '[ "$(cat an be | wc -l)" -ge 4 ]'
    both = shop.add(StageDraft(name="both", members=tuple(twins), least=2, gate=enough, retry=1))
    fleet.up("--agents", 4)
    ended = [fleet.wait_state(task, "failed") for task in tasks[:2]]
    assert [task["failure_reason"] for task in ended] == ["workspace_gone", "workspace_gone"]
    assert ["was gone when its agent ended" in task["reason"] for task in ended] == [True, True]
    unrun = fleet.wait_state(tasks[2], "paused")
    assert unrun["pause_reason"] == "gate"
    assert unrun["reason"].endswith("could not be run: Argument list too long")
    assert [list((fleet.home / "setup-logs").glob(f"{task}.*")) for task in tasks[:2]] == [[], []], "no gate ran"
    assert list(elsewhere.iterdir()) == []

    done = fleet.wait_state(both, "completed", "failed")
    assert done["state"] == "completed", "its members go again, told what the gate found"
    assert ["exited with 1" in told for told in (*shop.heard("an"), *shop.heard("be"))] == [False, True, False, True]

    logs = fleet.home / "setup-logs"
    [log] = wait_until(lambda: list(logs.glob(f"{tasks[3]}.*.gate-ten-*")), "it is asked")
    wait_until(lambda: log.stat().st_size > 30_000_000 and _taken(log) < 12 * MIB, "the middle of its log is let go")
    opened.touch()
    fleet.wait_state(tasks[3], "failed")
    [result] = results(fleet, tasks[3])
    assert result.gate is not None
    assert result.gate.output.endswith("xxxthe end\n")
    assert not lives(int(daemon.read_text()))
    assert log.read_bytes()[:30].startswith(b"$ env -i setsid"), "its beginning stays, too"


def test_a_gate_runs_nowhere_without_its_workspace(tmp_path: Path) -> None:
    """R-TREE-13: the workspace is removed, or replaced by a link, after the look at the end of its agent."""

    async def runner(*_command: object, **_options: object) -> tuple[int, bytes, bytes]:
        raise AssertionError("a gate ran")

    log, elsewhere = tmp_path / "log", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(elsewhere)
    for name in ("gone", "link"):
        workspace = Workspace(
            id="w", task_id="t", repo_id="r", strategy=Strategy.WORKTREE, path=str(tmp_path / name), branch=None,
            base_commit=None, state=WorkspaceState.READY, disposition=None,
        )  # fmt: skip
        result = asyncio.run(run_gate(runner, str(log), workspace, "touch ran", {}, 10.0))
        assert (result.passed, result.how) == (False, "could not be run: its workspace is not there any more")
    assert not log.exists()


def test_a_task_that_was_approved_and_cancelled_completes_with_its_work(fleet: Fleet) -> None:
    """R-RES-09, R-TREE-13: all its stages are done, and its workspace was removed: a retry completes with what was
    saved of it. And of what a stage's agent leaves lying about, nothing comes onto the branch, whoever comes last."""
    left = "mkdir .aider.tags.cache.v4; echo x > .aider.tags.cache.v4/cache.db; echo one > made"
    binary = fake_cli(fleet.root / "bin", "aider", lines=recorded("aider", "ok"), then=left)
    fleet.env["HOLDFAST_AIDER_BINARY"] = str(binary)
    shop = Workshop(fleet)
    last = StageDraft(name="last", chosen=shop.command("last"), approval=True)
    task = shop.add(StageDraft(name="first", chosen=AgentChoice(agent="aider")), last)
    fleet.up()
    fleet.wait_state(task, "paused")
    assert [result.files for result in results(fleet, task)] == [("made",), ("made",)]
    fleet.cli("down")
    fleet.cli("approve", task)
    fleet.cli("cancel", task)
    fleet.cli("retry", task, code=4)
    fleet.up()
    fleet.wait_clean()
    fleet.cli("retry", task)
    done = fleet.wait_state(task, "completed")
    assert len(done["runs"]) == 2, "nobody worked again"
    assert fleet.git("diff", "--name-only", "HEAD", done["branch"]).split() == ["made"]


def test_a_gate_that_kills_its_supervisor_is_not_asked_for_ever(fleet: Fleet) -> None:
    """Nothing loops: every start would ask it again, and a service starts again by itself."""
    shop, asked = Workshop(fleet), fleet.root / "asked"
    gate = f"echo x >> {asked}; kill -9 $(cat {fleet.home}/supervisor.lock); sleep 60"
    task = shop.add(StageDraft(name="one", chosen=shop.command("one"), gate=gate))
    for _ in range(MOST_GATE_STARTS):
        assert fleet.up("--idle-exit", "0s").wait(timeout=60) == -signal.SIGKILL, fleet.log()
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0, fleet.log()
    ended = fleet.show(task)
    assert (ended["state"], ended["failure_reason"], len(ended["runs"])) == ("failed", "gate_failed", 1)
    assert f"started {MOST_GATE_STARTS} times" in ended["reason"]
    assert len(asked.read_text().split()) == MOST_GATE_STARTS
