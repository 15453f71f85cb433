"""Workflows as a user meets them: listed, checked, given to tasks, and every slip answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.clis import install
from tests.fleet import Fleet, wait_until

from holdfast.core.model import TaskSpec
from holdfast.store.open import open_store

FLOW = """\
[workflow.mine]
about = "Build and look."
[[workflow.mine.stage]]
name = "build"
gate = "make test"
command = ["my-agent"]
[[workflow.mine.stage]]
name = "look"
reviews = true
back_to = "build"
agent = "claude"
prompt = '''
Look at {{ stages.build.text }}.
'''
"""


@pytest.fixture(autouse=True)
def _with_claude(fleet: Fleet) -> None:
    fleet.env["PATH"] = install(fleet.root / "bin", "claude")


def config_of(fleet: Fleet, text: str) -> str:
    path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def spec_of(fleet: Fleet, task_id: str) -> TaskSpec:
    store = open_store(str(fleet.home), create=False)
    try:
        return store.write(lambda tx: tx.tasks.get(task_id)).spec
    finally:
        store.close()


def test_workflows_are_listed_and_checked(fleet: Fleet) -> None:
    """The built-in ones, the user's, and the repository's with other names; exit 1 with every mistake and its line."""
    assert [row["name"] for row in fleet.json("workflows")] == [
        "work",
        "plan-build-review",
        "review-swarm",
    ]
    place = config_of(fleet, FLOW)
    (fleet.repo / "holdfast.toml").write_text('[[workflow.theirs.stage]]\nname = "other"\n')
    rows = {row["name"]: row for row in fleet.json("workflows")}
    assert {name: row["origin"] for name, row in rows.items()} == {
        "work": "built-in",
        "plan-build-review": "built-in",
        "review-swarm": "built-in",
        "mine": "user",
        "theirs": "repository",
    }
    assert rows["mine"]["place"] == f"{place}:1"
    assert [stage["gate"] for stage in rows["mine"]["stages"]] == ["make test", None]
    assert rows["plan-build-review"]["stages"][1]["gate"] is True, "that of the setting"
    assert f'workflow.mine.stages = ["build", "look"] # {place}:1' in " ".join(
        fleet.cli("config", "show", "--origin").stdout.split()
    )
    listed = fleet.cli("workflows")
    assert "mine               user        build+gate → look ↺ build" in listed.stdout
    shown = fleet.cli("workflows", "mine").stdout
    assert "gate: `make test` has to pass, within 10m" in shown
    assert "│ Look at {{ stages.build.text }}." in shown
    assert "Did you mean 'mine'?" in fleet.cli("workflows", "mien", code=3).stderr
    assert fleet.cli("__complete", "workflows", "x", "mi").stdout == "mine\tBuild and look.\n"

    config_of(fleet, FLOW.replace("stages.build", "stages.biuld").replace('back_to = "build"', 'back_to = "look"'))
    broken = fleet.cli("workflows", code=1)
    assert f"{place}:10: workflow.mine, stage 'look': back_to: the stage 'look' does not come before" in broken.stderr
    assert f"{place}:13: workflow.mine, stage 'look': prompt: line 1, column 9: there is no stage" in broken.stderr
    assert "did you mean 'stages.build.text'?" in broken.stderr
    problems = [json.loads(line) for line in fleet.cli("workflows", "--json", code=1).stdout.splitlines()]
    assert [row["line"] for row in problems if "problem" in row] == [10, 13]
    refused = fleet.cli("add", "x", "--workflow", "work", code=2).stderr
    assert f"{place}:10: workflow.mine" in refused
    assert "and 1 more mistake" in refused

    config_of(fleet, FLOW.replace('agent = "claude"', 'agent = "claude"\naccount = "nobody"'))
    assert (
        "config.toml:1: Stage 'look' of the workflow 'mine': There is no account 'nobody' for claude."
        in fleet.cli("workflows", code=1).stderr
    )


def test_a_task_gets_the_workflow_that_it_names(fleet: Fleet) -> None:
    config_of(fleet, FLOW)

    def added(*words: str, code: int = 0) -> str:
        done = fleet.cli("add", *words, code=code)
        return done.stderr if code else done.stdout.strip()

    spec = spec_of(fleet, added("do it", "--workflow", "mine"))
    assert (spec.workflow, spec.agent, spec.prompt) == ("mine", "command", "do it")
    assert [stage.name for stage in spec.stages] == ["build", "look"]
    assert spec.stages[0].gate == "make test"
    assert "'--yolo' cannot be the name of a model" in added("x", "--agent", "claude", "--model=--yolo", code=2)
    assert "There is no workflow 'mien'. Did you mean 'mine'?" in added("x", "--workflow", "mien", code=2)
    assert "The workflow 'mine' needs a prompt" in added("--workflow", "mine", code=2)
    assert "--base BASE" in added("--workflow", "review-swarm", "--agent", "claude", code=2)
    swarm = spec_of(fleet, added("--workflow", "review-swarm", "--agent", "claude", "--base", "HEAD"))
    assert swarm.prompt == "Review this range as you would before a release."
    assert len(swarm.stages[0].members) == 4
    assert all(member.agent_options["permission"] == "read" for member in swarm.stages[0].members)
    assert "has its own `retry`" in added("x", "--workflow", "work", "--tries", "2", "--agent", "claude", code=2)
    assert "would check nothing" in added("x", "--workflow", "work", "--gate", "a", "--agent", "claude", code=2)
    ungated = fleet.cli("add", "x", "--workflow", "plan-build-review", "--agent", "claude").stderr
    assert "Stage 'build' has no gate" in ungated
    gated = added("x", "--workflow", "plan-build-review", "--agent", "claude", "--gate", "make check")
    assert [stage.gate for stage in spec_of(fleet, gated).stages] == ["", "make check", ""]


def test_a_repositorys_gates_and_commands_need_trust(fleet: Fleet) -> None:
    """A clone must not run anything by naming it a gate; a harmless workflow asks for nothing."""
    (fleet.repo / "holdfast.toml").write_text('[[workflow.quiet.stage]]\nname = "a"\npermission = "read"\n')
    fleet.cli("add", "x", "--workflow", "quiet", "--agent", "claude")
    (fleet.repo / "holdfast.toml").write_text(FLOW)
    for words in (("add", "x", "--workflow", "mine"), ("add", "x", "--agent", "claude")):
        refused = fleet.cli(*words, code=1).stderr
        assert "sets workflow.mine.build.gate and workflow.mine.build.command, which could run commands" in refused
    assert "mine" not in fleet.cli("workflows").stdout
    assert "workflow.mine.build.gate" in fleet.cli("workflows").stderr
    asked = fleet.cli("trust", "--yes")
    assert 'workflow.mine.build.gate = "make test"' in asked.stdout + asked.stderr
    fleet.cli("add", "x", "--workflow", "mine")
    (fleet.repo / "holdfast.toml").write_text(FLOW.replace("make test", "make evil"))
    assert "its current content is not trusted" in fleet.cli("add", "x", "--workflow", "mine", code=1).stderr


HOSTILE = "mend $(touch {root}/PWNED) `touch {root}/PWNED`; touch {root}/PWNED # {{{{ task.id }}}} ' \""
# Any command is an agent: this one keeps what it is told, and answers as its stage would.
AGENT = """\
n=$(ls {root}/told | wc -l); cat > {root}/told/$n
case "$(head -1 {root}/told/$n)" in
"You are planning"*) echo 'THE PLAN: $(touch {root}/PWNED) {{{{ task.id }}}}' ;;
"Carry out"*) echo $n >> work.txt; git add .; git commit -qm work; echo "built $n" ;;
"Review another"*) if grep -q "built 2" {root}/told/$n; then echo "1. a defect"; echo "VERDICT: changes"
  else echo "VERDICT: approve"; fi ;;
esac
"""


def test_plan_build_review_from_the_prompt_to_the_branch(fleet: Fleet) -> None:
    """The built-in workflow with any command as its agent: the gate's output reaches the next try, the reviewer's
    findings the next turn. Whatever a prompt or an answer says, it is text: nothing of it is run."""
    (fleet.root / "told").mkdir()
    hostile = HOSTILE.format(root=fleet.root)
    agent = fleet.root / "agent.sh"
    agent.write_text(AGENT.format(root=fleet.root))
    gate = 'echo "only $(wc -l < work.txt) lines"; [ "$(wc -l < work.txt)" -ge 2 ]'
    task = fleet.add(hostile, "--workflow", "plan-build-review", "--gate", gate, command=("sh", agent))
    fleet.up()
    fleet.wait_state(task, "completed", "failed", "paused")
    told = [(fleet.root / "told" / str(n)).read_text() for n in range(len(list((fleet.root / "told").iterdir())))]
    assert [text.split()[0] for text in told] == ["You", "Carry", "Carry", "Review", "Carry", "Review"], told
    _plan, first, second, review, third, last = told
    assert all(hostile in text for text in told)
    assert "only 1 lines" not in first
    assert "only 1 lines" in second
    assert "built 2" in review
    assert "1. a defect" in third
    assert "built 4" in last
    assert f"THE PLAN: $(touch {fleet.root}/PWNED) {{{{ task.id }}}}" in first
    assert not (fleet.root / "PWNED").exists()
    assert fleet.show(task)["state"] == "completed"
    branch = fleet.branches()[0]
    assert fleet.file_on_branch(branch, "work.txt") == "1\n2\n4"


def test_the_rehearsal_of_the_documentation(fleet: Fleet) -> None:
    """docs/howto/workflows.md says that this works."""
    page = (Path(__file__).parents[3] / "docs" / "howto" / "workflows.md").read_text()
    config_of(fleet, page[page.index("[workflow.rehearsal]") :].partition("```")[0])
    done = fleet.cli("run", "anything", "--workflow", "rehearsal")
    assert done.stdout.startswith("completed"), done.stdout + done.stderr
    assert fleet.file_on_branch(fleet.branches()[0], "work.txt") == "done"
    fleet.cli("down")


def test_the_review_swarm_over_a_branch(fleet: Fleet) -> None:
    """R-CRON-05, by the built-in workflow with any command as its agent: four reviewers over the range, one sums up
    what they found; the branch that they looked at is as it was."""
    first = fleet.git("rev-parse", "HEAD")
    fleet.git("checkout", "--quiet", "-b", "feature")
    (fleet.repo / "new.txt").write_text("new\n")
    fleet.git("add", ".")
    fleet.git("commit", "--quiet", "-m", "More")
    ref = fleet.git("rev-parse", "HEAD")
    fleet.git("checkout", "--quiet", "main")
    (fleet.root / "told").mkdir()
    script = f'cat > "{fleet.root}/told/$$"; echo "$(cat new.txt) seen by $$"'
    task = fleet.add("--workflow", "review-swarm", "--base", "main", "--ref", "feature", command=("sh", "-c", script))
    fleet.up()
    fleet.wait_state(task, "completed", "failed", "paused")
    told = {path.name: path.read_text() for path in (fleet.root / "told").iterdir()}
    reviewers = [pid for pid, text in told.items() if text.startswith(f"Review the commits {first}..{ref}")]
    (summary,) = [text for pid, text in told.items() if pid not in reviewers]
    assert len(reviewers) == 4
    assert all(f"git diff {first}...HEAD" in told[pid] for pid in reviewers)
    assert all(f"new seen by {pid}" in summary for pid in reviewers), summary
    assert all(f"## {name}" in summary for name in ("correctness", "security", "tests", "design"))
    assert fleet.show(task)["state"] == "completed"
    assert fleet.git("rev-parse", "feature") == ref


BUDGETED = """
[[workflow.paid.stage]]
name = "build"
{keys}
on_failure = "{on_failure}"
retry = 2
scenario = [{steps}]
[[workflow.paid.stage]]
name = "after"
scenario = [{{ write = {{ path = "after.txt", text = "x" }} }}]
"""


def test_a_stage_has_a_budget(fleet: Fleet) -> None:
    """The runs of one visit may use so much. Beyond it the stage has failed, and `on_failure` says what follows; a
    crash gives nothing back; a stage that is done stays done; the task's own budget still holds."""
    crash = '{ usage = { cost_usd = 0.6 }, run = 1 }, { crash = "SIGSEGV", run = 1 }, '
    hang = "{ usage = { cost_usd = 0.5 }, run = 2 }, { hang = true, run = 2 }"
    config_of(fleet, BUDGETED.format(keys="budget_usd = 1", on_failure="fail", steps=crash + hang))
    fleet.up()
    failed = fleet.wait_state(fleet.add("x", "--workflow", "paid"), "failed", "completed", "paused")
    assert (failed["state"], failed["failure_reason"]) == ("failed", "over_budget")
    assert [run["outcome"] for run in failed["runs"]] == ["crashed", "over_budget"]
    assert "stage 1 of 2 (build): its budget is spent ($1.10 of $1.00 of stage 'build')" in failed["reason"]
    assert [alert["task"] for alert in fleet.json("alerts")] == [failed["id"]], "a failure by a limit is told"
    assert "at most $1.00" in fleet.cli("workflows", "paid").stdout

    done = "{ usage = { input = 500 } }"
    config_of(fleet, BUDGETED.format(keys="budget_tokens = 100", on_failure="fail", steps=done))
    assert fleet.wait_state(fleet.add("x", "--workflow", "paid"), "failed", "completed")["state"] == "completed"

    steps = "{ usage = { input = 500 }, run = 1 }, { usage = { input = 50 }, run = 2 }, { crash = 'SIGSEGV', run = 2 }"
    asked = BUDGETED.format(keys="budget_tokens = 100\napproval = true", on_failure="fail", steps=steps)
    config_of(fleet, asked)
    again = fleet.add("x", "--workflow", "paid")
    fleet.wait_state(again, "paused")
    fleet.cli("approve", again, "--changes", "once more")
    wait_until(lambda: len(fleet.show(again)["runs"]) == 3 or fleet.show(again)["state"] == "failed", "it goes again")
    assert fleet.wait_state(again, "failed", "paused")["state"] == "paused", "a person's changes have a new budget"

    spends = "{ usage = { input = 500 } }, { hang = true }"
    config_of(fleet, BUDGETED.format(keys="budget_tokens = 100", on_failure="continue", steps=spends))
    gone_on = fleet.wait_state(fleet.add("x", "--workflow", "paid"), "failed", "completed")
    assert (gone_on["state"], len(gone_on["runs"])) == ("completed", 2), "no second try of a stage without a budget"
    assert fleet.file_on_branch(gone_on["branch"], "after.txt") == "x"
    paused = fleet.wait_state(fleet.add("x", "--workflow", "paid", "--budget-tokens", 400), "paused", "failed")
    assert (paused["state"], paused["pause_reason"]) == ("paused", "budget"), "the task's own budget is spent, too"

    gate = 'budget_tokens = 100\ngate = "false"'
    config_of(fleet, BUDGETED.format(keys=gate, on_failure="fail", steps=done))
    unchecked = fleet.wait_state(fleet.add("x", "--workflow", "paid"), "failed", "completed")
    assert (unchecked["failure_reason"], len(unchecked["runs"])) == ("gate_failed", 1), "nothing is left for a try"
    assert "its budget is spent" in unchecked["reason"]

    config_of(
        fleet,
        BUDGETED.format(keys="budget_usd = 1", on_failure="fail", steps=done).replace(
            f"scenario = [{done}]", 'agent = "codex"'
        ),
    )
    fleet.env["PATH"] = install(fleet.root / "bin", "claude", "codex")
    refused = fleet.cli("add", "x", "--workflow", "paid", code=2).stderr
    assert "Stage 'build' of the workflow 'paid' has `budget_usd`" in refused
    assert "does not report its cost" in refused
    members = BUDGETED.format(keys='budget_usd = 0\nmembers = ["a"]', on_failure="fail", steps=done)
    config_of(fleet, members)
    told = fleet.cli("config", "check", code=2).stdout
    assert "budget_usd: it must be more than 0" in told
    config_of(fleet, members.replace("budget_usd = 0", "budget_usd = 2"))
    assert "budget_usd: members have no budget of their stage" in fleet.cli("config", "check", code=2).stdout


KEPT = """\
[workflow.kept]
{line}
[[workflow.kept.stage]]
name = "build"
command = ["sh", "-c", "echo half > half.txt; {end}"]
[[workflow.kept.stage]]
name = "last"
command = ["true"]
"""


def test_a_workflow_preserves_the_workspaces_of_its_tasks(fleet: Fleet) -> None:
    """Issue 19, 12: written once before the stages, and a task may say otherwise."""
    fleet.up("--agents", 4)
    preserved = {}
    for line, end, options in (
        ("preserve_on_failure = true", "exit 1", ()),
        ("preserve_on_failure = true", "exit 1", ("--no-preserve-on-failure",)),
        ("preserve_on_failure = true", "exit 0", ()),
        ("keep_workspace = true", "exit 0", ()),
        ("", "exit 1", ()),
        ("", "exit 0", ("--keep-workspace",)),
    ):
        config_of(fleet, KEPT.format(line=line, end=end))
        preserved[fleet.add("x", "--workflow", "kept", *options)] = (line, end, options)
    for task in preserved:
        fleet.wait_state(task, "failed", "completed")
    fleet.wait_clean()
    states = [fleet.show(task)["workspace"]["state"] for task in preserved]
    assert states == ["preserved", "gone", "gone", "preserved", "gone", "preserved"]
    config_of(fleet, KEPT.format(line="preserve_on_failure = true", end="exit 1"))
    assert "The workspace of a failed task is preserved." in fleet.cli("workflows", "kept").stdout
    [row] = fleet.json("workflows", "kept")
    assert (row["preserve_on_failure"], row["keep_workspace"]) == (True, False)
    config_of(fleet, KEPT.format(line="keep_workspace = true", end="exit 1"))
    assert "are preserved, whatever the outcome" in fleet.cli("workflows", "kept").stdout
