"""Tasks in several stages, from outside: gates, turns between a builder and a reviewer, approval, and what a crash in
between changes (nothing)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fleet import Fleet, wait_until

from holdfast.core.drafts import AgentChoice, Draft, StageDraft
from holdfast.core.results import Result
from holdfast.storage import open_store

Rows = list[dict[str, Any]]


class Workshop:
    """A task whose stages are shell commands: each writes down what it was told, then does its part."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.told = fleet.root / "told"
        self.told.mkdir()

    def command(self, name: str, script: str = "") -> AgentChoice:
        """Its n-th run finds $n."""
        count = f'n=$(($(ls {self.told} | grep -c "^{name}-") + 1)); cat > "{self.told}/{name}-$n"; '
        return AgentChoice(command=("sh", "-c", count + (script or f"echo {name} done")))

    def scripted(self, *steps: Mapping[str, object]) -> AgentChoice:
        from holdfast.testing.scenario import load

        return AgentChoice(scenario=tuple(load(str(self.fleet.scenario(*steps)))))

    def add(self, *stages: StageDraft, prompt: str = "mend the door", **options: Any) -> str:
        from holdfast.api.commands import Commands, NewTask

        draft = Draft(name="shop", stages=stages)
        with self.fleet.as_its_user():
            new = NewTask(prompt=prompt, directory=str(self.fleet.repo), workflow=draft, **options)
            return Commands(str(self.fleet.home)).add(new).id

    def heard(self, name: str) -> list[str]:
        """What each run of that stage was told, in order."""
        found = sorted(self.told.glob(f"{name}-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        return [path.read_text() for path in found]


def steps(events: Rows) -> list[tuple[str, str]]:
    return [(event["data"]["step"], event["data"]["name"]) for event in events if event["kind"] == "task.stage"]


def results(fleet: Fleet, task_id: str) -> list[Result]:
    store = open_store(str(fleet.home), create=False)
    try:
        return list(store.write(lambda tx: tx.results.of_task(task_id)))
    finally:
        store.close()


def test_from_the_plan_to_the_approval(fleet: Fleet) -> None:
    """R-RES-05, R-RES-09, R-RES-11: a gate's output reaches the next attempt, a reviewer sends back once, a person
    approves; every stage has a result and a checkpoint, all of it in one workspace, and no resume is spent."""
    shop = Workshop(fleet)
    review = 'if [ $n = 1 ]; then echo "too short"; echo "VERDICT: changes"; else echo "VERDICT: approve"; fi'
    task = shop.add(
        StageDraft(name="plan", chosen=shop.command("plan", "pwd; echo THE PLAN"), prompt="Plan: {{ task.prompt }}"),
        StageDraft(
            name="build",
            chosen=shop.command("build", "echo $n >> door; git add door; git commit -qm build$n; pwd"),
            prompt="Do {{ stages.plan.text }}. Turn {{ turn }}.",
            gate='n=$(wc -l < door); echo "has $n lines"; echo "in $HOLDFAST_STAGE" >&2; [ "$n" -ge 2 ]',
            retry=2,
        ),
        StageDraft(
            name="review",
            chosen=shop.command("review", review),
            prompt="Look at {{ stages.build.gate }}",
            reviews=True,
            back_to="build",
            max_turns=2,
            approval=True,
        ),
        StageDraft(name="sign", chosen=shop.command("sign"), approval=True),
    )
    supervisor = fleet.up("--agents", 1)
    waiting = fleet.wait_state(task, "paused", "failed")
    assert (waiting["state"], waiting["pause_reason"]) == ("paused", "approval"), waiting["reason"]
    assert [row["stage"] for row in waiting["runs"]] == ["plan", "build", "build", "review", "build", "review"]
    plan, build, looked = shop.heard("plan"), shop.heard("build"), shop.heard("review")
    assert plan == ["Plan: mend the door"]
    assert "THE PLAN" in build[0]
    assert "Turn 1." in build[0]
    assert "not the first try" not in build[0]
    assert "exited with 1" in build[1]
    assert "has 1 lines" in build[1]
    assert "in build" in build[1], "both streams"
    assert "too short" in build[2]
    assert "has 1 lines" not in build[2]
    assert "Turn 2." in build[2]
    assert "has 2 lines" in looked[0]
    assert "VERDICT: approve" in looked[0], "it is told how to rule"
    assert steps(fleet.events(task)) == [
        ("next", "build"), ("again", "build"), ("next", "review"), ("back", "build"), ("next", "review"),
    ]  # fmt: skip
    assert [(row.name, row.visit, row.attempt, row.passed, row.ruling) for row in results(fleet, task)] == [
        ("plan", 0, 1, True, ""), ("build", 1, 1, False, ""), ("build", 1, 2, True, ""),
        ("review", 2, 1, False, "changes"), ("build", 3, 1, True, ""), ("review", 4, 1, True, "approve"),
    ]  # fmt: skip
    assert waiting["stage"] | {"feedback": ""} == {
        "workflow": "shop", "name": "review", "number": 3, "of": 4, "try": 1, "turn": 1, "awaits_approval": True,
        "feedback": "", "names": ["plan", "build", "review", "sign"],
    }  # fmt: skip
    assert {row["stage"] for row in waiting["checkpoints"]} >= {1, 2}
    assert "waits for your approval" in fleet.cli("resume", task, code=4).stderr
    alerts = [alert for alert in fleet.json("alerts") if alert["task"] == task]
    assert [alert["key"] for alert in alerts] == [f"task:{task}:approval"]
    assert f"`holdfast approve {task}`" in alerts[0]["remedy"]
    assert f"holdfast approve {task} --changes" in fleet.cli("why", task).stdout
    assert "stage 3 of 4 (review), turn 1 of workflow shop" in fleet.cli("show", task).stdout

    assert "stage 4 of 4 (sign) follows" in fleet.cli("approve", task).stdout
    fleet.wait_state(task, "paused")
    wait_until(lambda: fleet.show(task)["stage"]["awaits_approval"], "the last one waits too")
    assert f"`holdfast approve {task}" not in str([alert for alert in fleet.json("alerts") if alert["task"] != task])
    fleet.cli("approve", task, "--changes", "sign in blue")
    wait_until(lambda: len(shop.heard("sign")) == 2 and fleet.show(task)["state"] == "paused", "it signs again")
    assert "sign in blue" in shop.heard("sign")[1]
    fleet.cli("approve", task)
    done = fleet.wait_state(task, "completed")
    assert "waits for nobody's approval" in fleet.cli("approve", task, code=4).stderr
    assert fleet.file_on_branch(done["branch"], "door") == "1\n2\n3"
    places = {row.text.strip().splitlines()[0] for row in results(fleet, task) if row.name in ("plan", "build")}
    assert len(places) == 1, "one workspace for all of them"
    assert done["resume_attempts"] == 0
    spent = {name: used["spent"] for name, used in fleet.shown(task)["budgets"].items()}
    assert (spent["resume"], spent["runs"]) == (0, 1), "only the try that failed"
    assert [alert for alert in fleet.json("alerts") if alert["task"] == task] == []
    fleet.wait_clean()
    assert not fleet.worktrees()
    assert supervisor.poll() is None
