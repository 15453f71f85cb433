"""What a task with a workflow is when it was added: every stage whole, nothing to look up later."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clis import install
from tests.fleet import Fleet

from holdfast.api.commands import Commands, NewTask
from holdfast.base.errors import UsageError
from holdfast.core.model import Task
from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft, WorkflowDraft
from holdfast.core.workflows.workflow import OnFailure

STEPS = ({"do": "print", "with": "hello", "run": None},)


@pytest.fixture
def commands(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("HOLDFAST_CONFIG", str(fleet.root / "config.toml"))
    monkeypatch.setenv("PATH", install(fleet.root / "bin", "claude", "codex"))
    return Commands(str(fleet.home))


def add(commands: Commands, fleet: Fleet, workflow: WorkflowDraft, **more: object) -> Task:
    task = commands.add(NewTask(prompt="mend it", directory=str(fleet.repo), workflow=workflow, **more))  # type: ignore[arg-type]
    return commands._store.write(lambda tx: tx.tasks.get(task.id))


def test_every_stage_is_resolved_and_the_first_is_the_tasks_own(commands: Commands, fleet: Fleet) -> None:
    (fleet.root / "config.toml").write_text(
        '[health]\nmax_runtime = "20m"\n[claude]\nmodel = "opus"\n[accounts.codex.work]\nconfig_dir = "/tmp/x"\n'
    )
    scripted = AgentChoice(scenario=STEPS)
    workflow = WorkflowDraft(
        name="mine",
        stages=(
            StageDraft(name="plan", chosen=AgentChoice(permission="read")),
            StageDraft(
                name="look",
                chosen=AgentChoice(permission="read"),
                members=(
                    MemberDraft(name="one", chosen=AgentChoice(agent="codex", account="work")),
                    MemberDraft(name="two", chosen=AgentChoice(command=("true",)), prompt="you are {{ member }}"),
                    MemberDraft(name="three"),
                ),
                least=2,
            ),
            StageDraft(name="build", chosen=scripted, timeout=60.0, retry=2, gate="make test"),
            StageDraft(name="check", chosen=AgentChoice(model="sonnet"), reviews=True, back_to="build", prompt="Look."),
        ),
    )
    task = add(commands, fleet, workflow, agent="claude", permission="edit", model="haiku")
    spec = task.spec
    assert (spec.workflow, spec.agent, spec.timeout) == ("mine", "claude", 1200.0)
    plan, look, build, check = spec.stages
    assert plan.agent == "claude"
    assert plan.agent_options == spec.agent_options
    assert plan.agent_options["permission"] == "read"
    assert plan.agent_options["model"] == "haiku"
    assert plan.provider == spec.provider == "anthropic"
    assert [(member.name, member.agent) for member in look.members] == [
        ("one", "codex"),
        ("two", "command"),
        ("three", "claude"),
    ]
    assert look.members[0].agent_options["account"] == "work"
    assert look.members[0].agent_options["permission"] == "read"
    assert "model" not in look.members[0].agent_options, "that was chosen for another agent"
    assert look.members[1].agent_options == {"argv": [shutil.which("true")]}
    assert (build.agent, build.timeout, build.retry, build.gate) == ("scripted", 60.0, 2, "make test")
    assert build.agent_options == {"steps": list(STEPS)}
    assert (check.agent_options["model"], check.agent_options["permission"]) == ("sonnet", "edit")
    assert check.on_failure is OnFailure.FAIL
    assert check.prompt.startswith("Look.")
    assert check.prompt.endswith("VERDICT: changes")


def test_a_range_is_what_it_looks_at(commands: Commands, fleet: Fleet) -> None:
    first = fleet.git("rev-parse", "HEAD")
    fleet.git("checkout", "--quiet", "-b", "feature")
    (fleet.repo / "new.txt").write_text("new\n")
    fleet.git("add", ".")
    fleet.git("commit", "--quiet", "-m", "More")
    fleet.git("checkout", "--quiet", "main")
    look = StageDraft(name="look", chosen=AgentChoice(scenario=STEPS), prompt="Review {{ task.range }}.")
    plain = StageDraft(name="do", chosen=AgentChoice(scenario=STEPS))
    ranged, other = WorkflowDraft(name="ranged", stages=(look,)), WorkflowDraft(name="other", stages=(plain,))

    both = add(commands, fleet, ranged, ref="feature", base="main").spec
    assert (both.base_ref, both.range_base) == ("feature", first)
    assert add(commands, fleet, ranged, ref="feature").spec.range_base == first, "since the current branch"
    since = add(commands, fleet, ranged, base="feature").spec
    assert (since.base_ref, since.range_base) == ("main", fleet.git("rev-parse", "feature"))
    begins = add(commands, fleet, other, base="feature").spec
    assert (begins.base_ref, begins.range_base) == ("feature", None), "without a range, --base is where it starts"
    assert add(commands, fleet, other, ref="feature").spec.base_ref == "feature"
    for more, word in (
        ({}, "--base BASE"),
        ({"ref": "nope"}, "'nope' is not a commit"),
        ({"workspace": "none"}, "git"),
    ):
        with pytest.raises(UsageError, match=word):
            add(commands, fleet, ranged, **more)


def test_a_workflow_that_cannot_be_is_refused_with_its_stage(commands: Commands, fleet: Fleet) -> None:
    def refused(*stages: StageDraft) -> str:
        with pytest.raises(UsageError) as error:
            add(commands, fleet, WorkflowDraft(name="w", stages=stages))
        return str(error.value)

    scripted = AgentChoice(scenario=STEPS)
    assert "Stage 'one' of the workflow 'w': No agent is chosen" in refused(StageDraft(name="one"))
    assert "it has no stages" in refused()
    assert "there is no variable 'task.x'" in refused(StageDraft(name="a", chosen=scripted, prompt="{{ task.x }}"))
    bad = MemberDraft(name="m", chosen=AgentChoice(agent="claude", account="nobody"))
    assert "Member 'm' of stage 'a' of the workflow 'w': There is no account" in refused(
        StageDraft(name="a", members=(bad,))
    )
    assert not Path(fleet.home, "runs").exists()


@pytest.mark.parametrize(
    ("strategy", "stage", "words"),
    [
        ("container", StageDraft(name="look", members=(MemberDraft(name="one"),)), "`apart = true`"),
        ("none", StageDraft(name="look", members=(MemberDraft(name="one"),), apart=True), "makes no workspaces"),
    ],
)
def test_what_a_workspace_cannot_give_is_refused_before_anything_is_done(
    commands: Commands, fleet: Fleet, strategy: str, stage: StageDraft, words: str
) -> None:
    """A stage that would fail only after all the work before it."""
    (fleet.root / "config.toml").write_text('[container]\nimage = "some/image"\n')
    first = StageDraft(name="plan", chosen=AgentChoice(scenario=STEPS))
    second = replace(stage, chosen=AgentChoice(scenario=STEPS))
    with pytest.raises(UsageError, match=words):
        add(commands, fleet, WorkflowDraft(name="mine", stages=(first, second)), workspace=strategy)
