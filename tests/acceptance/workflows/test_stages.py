"""Tasks in several stages, from outside: gates, turns between a builder and a reviewer, approval, and what a crash in
between changes (nothing)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.fleet import Fleet, lives, processes_of, user_name, wait_until

from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft
from holdfast.core.workflows.result import StageResult
from holdfast.store.open import open_store

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
        from holdfast.rehearsal.scenario import load

        return AgentChoice(scenario=tuple(load(str(self.fleet.scenario(*steps)))))

    def add(self, *stages: StageDraft, prompt: str = "mend the door", **options: Any) -> str:
        from holdfast.api.commands import Commands, NewTask

        draft = WorkflowDraft(name="shop", stages=stages)
        with self.fleet.as_its_user():
            new = NewTask(prompt=prompt, directory=str(self.fleet.repo), workflow=draft, **options)
            return Commands(str(self.fleet.home)).add(new).id

    def heard(self, name: str) -> list[str]:
        """What each run of that stage was told, in order."""
        found = sorted(self.told.glob(f"{name}-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        return [path.read_text() for path in found]


def steps(events: Rows) -> list[tuple[str, str]]:
    return [(event["data"]["step"], event["data"]["name"]) for event in events if event["kind"] == "task.stage"]


def results(fleet: Fleet, task_id: str) -> list[StageResult]:
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
        "feedback": "", "names": ["plan", "build", "review", "sign"], "members": [],
    }  # fmt: skip
    assert {row["stage"] for row in waiting["checkpoints"]} >= {1, 2}
    assert "waits for your approval" in fleet.cli("resume", task, code=4).stderr
    alerts = [alert for alert in fleet.json("alerts") if alert["task"] == task]
    assert [alert["key"] for alert in alerts] == [f"task:{task}:approval"]
    assert f"`holdfast approve {task}`" in alerts[0]["remedy"]
    why = fleet.cli("why", task).stdout
    assert f"holdfast approve {task} --changes" in why
    [log] = [line.rpartition(": ")[2] for line in why.splitlines() if line.startswith("The output of its last gate")]
    assert Path(log).read_text().endswith("has 3 lines\nin build\n(exited with 0)\n")
    assert "stage 3 of 4 (review), turn 1 of workflow shop" in fleet.cli("show", task).stdout

    assert "stage 4 of 4 (sign) follows" in fleet.cli("approve", task).stdout
    fleet.wait_state(task, "paused")
    wait_until(lambda: fleet.show(task)["stage"]["awaits_approval"], "the last one waits too")
    assert f"`holdfast approve {task}" not in str([alert for alert in fleet.json("alerts") if alert["task"] != task])
    fleet.cli("approve", task, "--changes", "sign in blue")
    wait_until(lambda: len(shop.heard("sign")) == 2 and fleet.show(task)["state"] == "paused", "it signs again")
    assert "sign in blue" in shop.heard("sign")[1]
    assert "nothing was changed" in fleet.cli("approve", task, "--stage", "door", "--changes", "x", code=2).stderr
    assert "--changes TEXT" in fleet.cli("approve", task, "--stage", "plan", code=2).stderr
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


class HeldGate:
    """A gate that says that it was asked, and waits until the test lets it pass."""

    def __init__(self, fleet: Fleet) -> None:
        self._asked, self._open = fleet.root / "asked", fleet.root / "open"
        self._asked.touch()
        # The sleeper is a child in a session of its own: it has to go with its gate.
        self.command = (
            f"(setsid sleep 3600 &) ; echo $$ >> {self._asked}; "
            f"until [ -e {self._open} ]; do sleep 0.1; done; echo open"
        )

    def pids(self) -> list[int]:
        return [int(line) for line in self._asked.read_text().split()]

    def wait_asked(self, times: int) -> None:
        wait_until(lambda: len(self.pids()) >= times, f"the gate is asked for the {times}. time")

    def open(self) -> None:
        self._open.touch()


def sleepers(fleet: Fleet) -> list[str]:
    return [words for words in processes_of(fleet.home).values() if words.startswith("sleep 3600")]


def test_whatever_comes_during_a_gate_the_agent_is_not_run_again(fleet: Fleet) -> None:
    """R-RES-09, R-TERM-10: the supervisor is killed, the task paused, the supervisor told to go, all while the gate is
    asked: each time the gate ends at once, and afterwards it alone is asked again. A cancel ends it for good."""
    shop, gate = Workshop(fleet), HeldGate(fleet)
    plan = StageDraft(name="plan", chosen=shop.command("plan"))
    build = StageDraft(name="build", chosen=shop.command("build", "pwd"), gate=gate.command, retry=1)
    task = shop.add(plan, build, StageDraft(name="last", chosen=shop.command("last", "pwd")))
    supervisor = fleet.up()
    gate.wait_asked(1)
    fleet.kill_supervisor(supervisor)
    fleet.up()
    gate.wait_asked(2)
    assert not lives(gate.pids()[0]), "the gate of the dead supervisor is gone before the next is asked"

    fleet.cli("pause", task)
    paused = fleet.show(task)
    assert (paused["state"], paused["pause_reason"], paused["stage"]["name"]) == ("paused", "operator", "build")
    assert not any(lives(pid) for pid in gate.pids())
    wait_until(lambda: not sleepers(fleet), "what the gate left goes with it")
    fleet.cli("resume", task)
    gate.wait_asked(3)
    fleet.cli("down", "--now")
    assert not any(lives(pid) for pid in gate.pids())
    queued = fleet.show(task)
    assert (queued["state"], queued["stage"]["name"]) == ("queued", "build")

    other = shop.add(StageDraft(name="build", chosen=shop.command("other", "touch made"), gate=gate.command))
    fleet.up()
    gate.wait_asked(5)
    fleet.cli("cancel", other, "--why", "not that door")
    ended = fleet.wait_state(other, "cancelled")
    assert ended["reason"].endswith(": not that door")
    assert len([pid for pid in gate.pids() if lives(pid)]) == 1, "the gate of the other task"
    assert len(ended["runs"]) == 1
    gate.open()
    done = fleet.wait_state(task, "completed")
    assert [(run["stage"], run["outcome"]) for run in done["runs"]] == [
        ("plan", "completed"), ("build", "completed"), ("last", "completed"),
    ]  # fmt: skip
    found = results(fleet, task)
    assert [(row.name, row.attempt, row.passed) for row in found] == [
        ("plan", 1, True), ("build", 1, True), ("last", 1, True),
    ]  # fmt: skip
    assert found[1].gate is not None
    assert found[1].gate.output == "open\n"
    assert found[1].text == found[2].text, "the same workspace, at the same path"
    spent = {name: used["spent"] for name, used in fleet.shown(task)["budgets"].items()}
    assert {spent[name] for name in ("crash", "retry", "lost", "runs")} == {0}
    fleet.wait_clean()
    wait_until(lambda: not sleepers(fleet), "what the gates left goes with them")
    assert fleet.show(other)["salvages"], "what its agent did is saved"


def test_a_reviewer_sends_back_so_often_and_no_more(fleet: Fleet) -> None:
    """R-RES-12: after `max_turns` the task fails and says so; a retry goes on at that stage, with what came before."""
    shop = Workshop(fleet)
    ruling = f"if [ -e {fleet.root}/content ]; then echo 'VERDICT: approve'; else echo no; echo 'VERDICT: changes'; fi"
    review = StageDraft(
        name="review",
        chosen=shop.command("review", ruling),
        prompt="{{ stages.plan.text }}",
        reviews=True,
        back_to="build",
        max_turns=1,
    )
    plan, build = (StageDraft(name=name, chosen=shop.command(name)) for name in ("plan", "build"))
    task = shop.add(plan, build, review)
    fleet.up()
    failed = fleet.wait_state(task, "failed")
    assert failed["failure_reason"] == "turns_spent"
    assert [run["stage"] for run in failed["runs"]] == ["plan", "build", "review", "build", "review"]
    assert "It is in stage 3 of 3 (review), turn 1 of its workflow 'shop'." in fleet.cli("why", task).stdout
    fleet.wait_clean()
    (fleet.root / "content").touch()
    fleet.cli("retry", task)
    done = fleet.wait_state(task, "completed")
    assert [run["stage"] for run in done["runs"][5:]] == ["review"]
    assert "plan done" in shop.heard("review")[-1], "what earlier stages left is still known"
    assert done["stage"]["turn"] == 0, "its turns are afresh"


def test_a_limit_in_a_stage_goes_on_in_that_stage(fleet: Fleet) -> None:
    """R-RES-05, R-RES-09, R-RES-11: with its own session, and what came before is not done again. A stage that is done
    gives the resumes back where the settings say so. From a checkpoint of an earlier stage it continues there."""
    shop = Workshop(fleet)
    last = f"[ $n = 2 ] || {{ rm kept.txt; touch {fleet.root}/at-three; exec sleep 3600; }}; cat kept.txt"
    limited = (
        {"run": 2, "print": "first half"},
        {"run": 2, "limit": {"kind": "usage", "for": "50ms"}},
        {"print": "done"},
    )
    task = shop.add(
        StageDraft(name="one", chosen=shop.command("one", "echo one > kept.txt")),
        StageDraft(name="two", chosen=shop.scripted(*limited), approval=True),
        StageDraft(name="three", chosen=shop.command("three", last)),
    )
    fleet.up(env={"HOLDFAST_RESUME_RESET_ON_PROGRESS": "true"})
    waiting = fleet.wait_state(task, "paused")
    waiting = wait_until(lambda: fleet.show(task)["stage"]["awaits_approval"] and fleet.show(task), "two is done")
    assert [(run["stage"], run["agent"], run["outcome"]) for run in waiting["runs"]] == [
        ("one", "command", "completed"), ("two", "scripted", "usage_limited"), ("two", "scripted", "completed"),
    ]  # fmt: skip
    assert waiting["runs"][0]["session_id"] is None
    assert waiting["runs"][1]["session_id"] == waiting["runs"][2]["session_id"] is not None
    assert (waiting["agent"], waiting["resume_attempts"]) == ("scripted", 0)
    assert "task.resumed" in fleet.kinds(task)
    fleet.cli("approve", task)
    wait_until((fleet.root / "at-three").exists, "three is at work")
    fleet.cli("pause", task)
    at_end_of_one = next(row["number"] for row in fleet.show(task)["checkpoints"] if row["stage"] == 0)
    fleet.cli("resume", task, "--checkpoint", at_end_of_one)
    wait_until(lambda: len(results(fleet, task)) == 3 and fleet.show(task)["state"] == "paused", "two went again")
    assert "goes back to stage 2 of 3 (two)" in str([event["message"] for event in fleet.events(task)])
    fleet.cli("approve", task)
    done = fleet.wait_state(task, "completed")
    assert [run["stage"] for run in done["runs"]] == ["one", "two", "two", "three", "two", "three"]
    assert results(fleet, task)[-1].text == "one", "its tree came back with it"
    assert "run.handed-over" not in fleet.kinds(task), "nobody is told of another stage's runs"


def test_a_person_sends_the_work_back_to_its_builder(fleet: Fleet) -> None:
    """F7: on the built-in workflow the words of a person reach the builder once, in its session, with what the reviewer
    said; the reviewer reviews again; the report shows who decided what."""
    task = fleet.add_scenario(
        {"print": "THE PLAN", "run": 1},
        {"write": {"path": "export.py", "text": "draft\n"}, "run": 2},
        {"print": "I would use a flag.", "run": 3},
        {"print": "I would still use a flag.", "run": 4},
        {"write": {"path": "export.py", "text": "--as-json\n"}, "run": 5},
        {"print": "VERDICT: approve", "run": 6},
        options=("--workflow", "plan-build-review"),
    )
    fleet.up("--agents", 1)
    waiting = fleet.wait_state(task, "paused", "failed")
    assert [run["stage"] for run in waiting["runs"]] == ["plan", "build", "review", "review"]
    why = fleet.cli("why", task).stdout
    assert "it gave no verdict" in why
    words = "name the flag --as-json"
    told = fleet.cli("approve", task, "--changes", words).stdout
    assert f"stage 3 of 3 (review): {user_name()} asks for changes; back to stage 2 of 3 (build)" in told
    done = fleet.wait_state(task, "completed", "failed")
    assert done["state"] == "completed", done["reason"]
    runs = done["runs"]
    assert [run["stage"] for run in runs[4:]] == ["build", "review"]
    assert runs[4]["session_id"] == runs[1]["session_id"] != runs[3]["session_id"]
    assert runs[1]["session_id"]
    prompts = [fleet.cli("show", task, "--prompt", "--run", number).stdout for number in range(1, 7)]
    assert [prompt.count(words) for prompt in prompts] == [0, 0, 0, 0, 1, 0]
    assert f"{user_name()} asks for these changes" in prompts[4]
    assert "I would still use a flag." in prompts[4]
    assert fleet.file_on_branch(done["branch"], "export.py") == "--as-json"

    report = fleet.cli("report", task).stdout
    assert report.count(f"> {words}") == 1
    assert f"**{user_name()} asked for changes to stage review, made by stage build**" in report
    assert report.count("✗ it gave no verdict") == 2
    assert "✗ completed" not in report
    assert "✓ approved" in report
    order = [report.index(text) for text in ("> I would still use a flag.", f"> {words}", "> VERDICT: approve")]
    assert order == sorted(order)
    assert words in fleet.cli("show", task, "--results").stdout
    [decision] = json.loads(fleet.cli("report", task, "--json").stdout)["decisions"]
    assert {**decision, "at": 0} == {"at": 0, "by": user_name(), "stage": "review", "changes": words, "to": "build"}


def has_runs(fleet: Fleet, task: str, count: int) -> bool:
    return len(fleet.show(task)["runs"]) == count


def test_several_tasks_are_approved_together(fleet: Fleet) -> None:
    """F5: by ids and by a filter; each gets a line. A task that waits for nobody does not hold back the others, and
    changes for several reach each builder."""
    shop = Workshop(fleet)
    build = StageDraft(name="build", chosen=shop.scripted({"print": "built"}), approval=True)
    last = StageDraft(name="last", chosen=shop.scripted({"print": "the end"}))
    tasks = [shop.add(build, last, labels={"kind": "door"}) for _ in range(4)]
    other = fleet.queue("true", delay=9999.0, labels={"kind": "door"})
    fleet.up("--agents", 4)
    for task in tasks:
        assert fleet.wait_state(task, "paused", "failed")["pause_reason"] == "approval"
    assert "give --changes TEXT too" in fleet.cli("approve", *tasks, "--stage", "build", code=2).stderr

    said = fleet.cli("approve", tasks[0], other, tasks[1], code=4)
    lines = said.stdout.splitlines()
    assert len(lines) == 3
    for number, task in ((0, tasks[0]), (2, tasks[1])):
        assert lines[number].startswith(f"{task}: stage 1 of 2 (build) approved by {user_name()}; stage 2 of 2 (last)")
    assert "waits for nobody's approval; nothing was changed" in lines[1]
    assert "1 of 3 tasks were not changed." in said.stderr
    for task in tasks[:2]:
        assert [run["stage"] for run in fleet.wait_state(task, "completed")["runs"]] == ["build", "last"]

    told = [
        json.loads(line)
        for line in fleet.cli("approve", *tasks[2:], "--changes", "in blue", "--json").stdout.splitlines()
    ]
    assert [(row["id"], row["done"]) for row in told] == [(task, True) for task in tasks[2:]]
    for task in tasks[2:]:
        wait_until(partial(has_runs, fleet, task, 2), "it is built again")
        assert "in blue" in fleet.cli("show", task, "--prompt", "--run", 2).stdout
        fleet.wait_state(task, "paused", "failed")
    refused = fleet.cli("approve", "--label", "kind=door", code=1).stderr
    assert "This affects 2 tasks (2 paused). Nothing was changed." in refused, "only those that wait for an approval"
    assert len(fleet.cli("approve", "--label", "kind=door", "--yes").stdout.splitlines()) == 2
    for task in tasks[2:]:
        runs = fleet.wait_state(task, "completed", "failed")["runs"]
        assert [run["stage"] for run in runs] == ["build", "build", "last"]
        assert fleet.kinds(task).count("task.approved") == 2
    assert fleet.show(other)["state"] == "queued"
    assert fleet.json("alerts") == []
