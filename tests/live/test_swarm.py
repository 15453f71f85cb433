"""A review swarm of real CLIs against the stub: who answers, who hangs, and who is sent away (R-CRON-05)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.agents_cache import wanted
from tests.fleet import processes_of, wait_until
from tests.live.stage import PATIENCE, Stage, account_of
from tests.swarm import queue_swarm, results

from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft, WorkflowDraft
from holdfast.rehearsal.stub.scenarios import OUT_FILE, OUT_TEXT

pytestmark = pytest.mark.agents
TIMEOUT = 45.0  # for all of them: those that answer take a few seconds


def test_claude_and_codex_review_together_and_who_hangs_is_ended_at_the_deadline(stage: Callable[[str], Stage]) -> None:
    if len(wanted()) <= 2:
        pytest.skip("only `make test-agents` does this one: it lasts as long as its deadline")
    claude, codex = stage("claude"), stage("codex")
    settle_both(claude, codex, "tool", "hang")
    chosen = {"claude": ("claude", "tool"), "codex": ("codex", "tool"), "mute": ("claude", "hang")}
    members = tuple(
        MemberDraft(name=name, chosen=AgentChoice(agent=agent, account=account_of(scenario)))
        for name, (agent, scenario) in chosen.items()
    )
    review = StageDraft(name="review", prompt="play", members=members, timeout=TIMEOUT, apart=True, least=2)
    fleet = claude.fleet
    task = queue_swarm(fleet, WorkflowDraft(name="live", stages=(review,)))
    fleet.up("--agents", 3, "--idle-exit", "0s")
    claude.wait_completed(task)
    found = results(fleet, task)
    outcomes = {name: result.outcome for name, result in found.items() if name}
    assert outcomes == {"claude": "completed", "codex": "completed", "mute": "timeout"}, claude.why()
    assert (found["claude"].text, found["codex"].text) == ("Hello, the task is done.",) * 2
    for name in ("claude", "codex"):
        branch = f"holdfast/{task}--{name}"
        assert branch in found[name].reason
        assert fleet.file_on_branch(branch, OUT_FILE).strip() == OUT_TEXT
    fleet.wait_clean()
    assert sorted(fleet.branches()) == [f"holdfast/{task}--claude", f"holdfast/{task}--codex"]
    assert fleet.worktrees() == []
    wait_until(lambda: processes_of(fleet.root) == {}, "nothing of it lives", PATIENCE)


def settle_both(first: Stage, second: Stage, *scenarios: str) -> None:
    """The settings of both in one file."""
    path = first.fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    general: dict[str, str] = {}
    accounts: list[str] = []
    for one in (first, second):
        one.settle(*scenarios)
        top, mark, rest = path.read_text().partition("[accounts")
        general.update(line.partition(" = ")[::2] for line in top.splitlines())
        accounts.append(mark + rest)
    path.write_text("\n".join(f"{key} = {value}" for key, value in general.items()) + "\n" + "\n".join(accounts))
    path.chmod(0o600)
