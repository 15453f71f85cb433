"""Commands of people are refused from inside a run, whatever the agent does with its environment and its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clis import fake_cli, recorded
from tests.fleet import Fleet, user_name, wait_until

from holdfast.cli.main import AGENT_COMMANDS, COMMANDS

USER = user_name()
HOLDFAST = f"{sys.executable} -m holdfast"


def inside(fleet: Fleet, script: str) -> str:
    """Run a shell script as an agent. Return what the script wrote to $OUT."""
    out = fleet.root / f"out-{len(list(fleet.root.glob('out-*')))}"
    task = fleet.queue(f"export OUT={out}.part; {script}; mv $OUT {out}; exec sleep 1000")
    said = wait_until(lambda: out.exists() and out.read_text(), "the agent has tried", 60) or ""
    fleet.cli("cancel", task)
    return said


def clean_ways(fleet: Fleet, command: str) -> dict[str, str]:
    """Return ways in which an agent hides that it is one. Each appends what the command prints to $OUT."""
    bare = f"env -i PATH=$PATH PYTHONPATH=$PYTHONPATH HOME=$HOME HOLDFAST_HOME={fleet.home} USER=alice"
    write = f"{command} >> $OUT 2>&1"
    return {
        "plain": write,
        "another name": f"USER=alice LOGNAME=alice {write}",
        "other marks": f"HOLDFAST_RUN_DIR=/x HOLDFAST_RUN_ID= HOLDFAST_TASK_ID= {write}",
        "no environment": f"{bare} sh -c '{command}' >> $OUT 2>&1",
        "another session": f"{bare} OUT=$OUT setsid sh -c '(({write}; touch $OUT.done) &) ; exit 0'; "
        "until test -e $OUT.done; do sleep 0.01; done; rm $OUT.done",
        "first process": f"exec {bare} OUT=$OUT sh -c '{write}; mv $OUT ${{OUT%.part}}; sleep 1000'",
    }


def test_an_agent_is_never_the_person(fleet: Fleet) -> None:
    """Security F6, as reproduced: another task's stage waits for approval, and an agent approves it as alice."""
    user = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    user.parent.mkdir(parents=True, exist_ok=True)
    user.write_text('[[workflow.safe.stage]]\nname = "one"\napproval = true\n[[workflow.safe.stage]]\nname = "two"\n')
    waiting = fleet.add("x", "--workflow", "safe", command=("true",))
    fleet.up("--agents", 8)
    fleet.wait_state(waiting, "paused")
    for way, script in clean_ways(fleet, f"{HOLDFAST} approve {waiting}").items():
        said = inside(fleet, script)
        assert "`holdfast approve` is for people, and this process belongs to run" in said, (way, said)
    assert fleet.show(waiting)["stage"]["awaits_approval"]
    fleet.cli("approve", waiting, env={"USER": "alice"})
    told = json.dumps(fleet.events(waiting))
    assert f"approved by {USER}" in told
    assert "alice" not in told, "the name is the uid's"


@pytest.mark.parametrize("strategy", ["worktree", "none"])
def test_a_gate_is_not_the_person_either(fleet: Fleet, strategy: str) -> None:
    """A gate runs what an agent wrote, such as a Makefile. It has no keeper above it, but marks."""
    waiting, out = fleet.queue("true", delay=3600), fleet.root / "out"
    bare = f"env -i HOLDFAST_HOME={fleet.home} HOME={fleet.root} PATH={os.environ['PATH']}"
    user = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    user.parent.mkdir(parents=True, exist_ok=True)
    user.write_text(
        f'[[workflow.w.stage]]\nname = "one"\ngate = "{bare} {HOLDFAST} cancel {waiting} > {out} 2>&1; exit 0"\n'
    )
    task = fleet.add("x", "--workflow", "w", "--workspace", strategy, command=("true",))
    fleet.up()
    fleet.wait_state(task, "completed")
    assert f"is not a subtask of task {task}, to which this process belongs" in out.read_text()
    assert fleet.show(waiting)["state"] == "queued"


PEOPLES = (
    "trust --yes",
    "merge x",
    "pr x",
    "purge --yes",
    "alerts ack 1",
    "accounts resume claude",
    "dispatch release x",
    "worker stop x",
    "schedule fire x",
    "service uninstall",
    "restore x",
    "salvage prune x",
    "down",
    "up --detach",
    "sweep",
    "doctor --fix",
    "init",
    "backup x",
    "workspaces clean x",
    "branches prune",
    "shell x",
    "keep x",
    "send x hello",
    "set x priority=1",
    "tracker sync",
    "top",
)


def all_at_once(fleet: Fleet, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Run many commands in one process inside a run. Return the exit code and the output of each."""
    script = fleet.root / "commands.py"
    script.write_text(
        "import contextlib, io, json, os\n"
        "from holdfast.cli.main import run\n"
        "done = []\n"
        f"for words in json.loads({json.dumps(commands)!r}):\n"
        "    said = io.StringIO()\n"
        "    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):\n"
        "        code = run(words)\n"
        "    done.append([code, said.getvalue()])\n"
        "open(os.environ['OUT'], 'w').write(json.dumps(done))\n"
    )
    bare = f"env -i OUT=$OUT PATH=$PATH PYTHONPATH=$PYTHONPATH HOME=$HOME HOLDFAST_HOME={fleet.home}"
    return [(code, said) for code, said in json.loads(inside(fleet, f"{bare} {sys.executable} {script}"))]


def test_every_command_of_people_is_refused(fleet: Fleet) -> None:
    """The list of commands that agents may use is explicit. All others are refused, and change nothing."""
    fleet.up("--agents", 2)
    tried = all_at_once(fleet, [words.split() for words in PEOPLES])
    for words, (code, said) in zip(PEOPLES, tried, strict=True):
        assert code == 1, (words, said)
        assert "is for people" in said, (words, said)
    assert fleet.supervisor_pid() is not None
    named = {words.split()[0] for words in PEOPLES} | {"approve", "cancel", "retry", "pause", "resume", "wait"}
    assert set(COMMANDS) == named | set(AGENT_COMMANDS), "every command is of one of the two kinds"


def test_an_agent_reads_and_controls_its_own_subtasks(fleet: Fleet) -> None:
    stranger = fleet.queue("true", prompt="stranger", delay=3600)
    fleet.up("--agents", 2)
    said = inside(
        fleet,
        f"{HOLDFAST} ps >> $OUT && {HOLDFAST} alerts >> $OUT && {HOLDFAST} doctor > /dev/null; "
        f"S=$({HOLDFAST} add sub --delay 1h -- true); {HOLDFAST} cancel $S >> $OUT 2>&1; "
        f"{HOLDFAST} retry $S >> $OUT 2>&1; {HOLDFAST} resume $S --force >> $OUT 2>&1; "
        f"{HOLDFAST} cancel {stranger} >> $OUT 2>&1; {HOLDFAST} cancel $HOLDFAST_TASK_ID >> $OUT 2>&1; "
        f"{HOLDFAST} cancel $S {stranger} >> $OUT 2>&1; {HOLDFAST} cancel --all --yes >> $OUT 2>&1; "
        f"{HOLDFAST} pause state:queued --yes >> $OUT 2>&1; {HOLDFAST} retry $S --prompt other >> $OUT 2>&1; "
        f"{HOLDFAST} add out --parent {stranger} -- true >> $OUT 2>&1",
    )
    assert said.count("An agent names its subtasks by their ids") == 2
    assert "`holdfast retry --prompt` is for people" in said
    assert "Cancelled " in said
    assert " again, " in said
    assert "`holdfast resume --force` is for people" in said
    assert f"Task {stranger} is not a subtask of task " in said
    assert said.count(", to which this process belongs") == 3
    assert "so a task that it adds is a subtask of" in said
    assert fleet.show(stranger)["state"] == "queued"
    [subtask] = [row for row in fleet.json("ps", "--all") if row["prompt"] == "sub"]
    [queued] = [event for event in fleet.events(subtask["id"]) if event["kind"] == "task.queued"][:1]
    assert f"{USER} (inside run " in queued["data"]["by"]
    assert f"of task {subtask['parent_id']})" in queued["data"]["by"]
    [by_person] = [event for event in fleet.events(stranger) if event["kind"] == "task.queued"]
    assert by_person["data"]["by"] == USER


def test_no_parent_does_not_escape_the_limit(fleet: Fleet) -> None:
    """Security F12: sixty tasks from one agent, with a limit of fifty, are fifty."""
    fleet.up("--agents", 1)
    free = ["add", "free", "--parent", "none", "--delay", "1h", "--", "true"]
    tried = all_at_once(fleet, [free, *([["add", "x", "--delay", "1h", "--", "true"]] * 60)])
    assert tried[0][0] == 1
    assert "Leave --parent out." in tried[0][1]
    assert [code for code, _said in tried[1:]].count(0) == 50
    added = [row for row in fleet.json("ps", "--all") if row["prompt"] in ("x", "free")]
    assert len(added) == 50
    assert len({row["parent_id"] for row in added} - {None}) == 1


def test_another_home_is_another_matter(fleet: Fleet, tmp_path: Path) -> None:
    """An agent may use a home of its own, as a test-suite does: only runs of the same home count."""
    other = tmp_path / "other"
    fleet.up()
    said = inside(
        fleet,
        f"export HOLDFAST_HOME={other}; T=$({HOLDFAST} add x -- true 2>/dev/null); {HOLDFAST} cancel $T >> $OUT 2>&1; "
        f"{HOLDFAST} show $T --json >> $OUT",
    )
    assert "Cancelled " in said
    assert '"parent_id": null' in said.replace('"parent_id":null', '"parent_id": null')


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_person_in_a_runs_directory_is_a_person(fleet: Fleet) -> None:
    """A shell whose working directory is a run's is not a keeper."""
    task = fleet.queue("exec sleep 1000")
    fleet.up()
    run = fleet.wait_started(task)["runs"][0]["id"]
    fleet.cli("cancel", task, cwd=fleet.home / "runs" / run, prefix=("sh", "-c", '"$@"; exit $?', "sh"))
    fleet.wait_state(task, "cancelled")


def test_a_subtask_can_do_no_more_than_its_parent(fleet: Fleet) -> None:
    """Red team R2-7: an agent in a worktree queued a task that works in the user's own checkout."""
    fleet.up("--agents", 2)
    said = inside(fleet, f"{HOLDFAST} add loose --workspace none -- true >> $OUT 2>&1; echo code $? >> $OUT")
    assert "could do more than" in said
    assert "code 1" in said
    assert [row for row in fleet.json("ps", "--all") if row["prompt"] == "loose"] == []


def test_an_agent_that_may_only_read_gets_nothing_else_run(fleet: Fleet) -> None:
    """Red team R4, as reproduced: a gate, and variables that are settings, were run or handed over."""
    out, trap = fleet.root / "out", fleet.root / "trap"
    evil = fake_cli(fleet.root / "evil", "claude", version="2.1.325", then=f"touch {trap}-binary")
    add = f"{HOLDFAST} add sub --agent claude --permission read"
    tried = (
        f"{add} --gate 'id > {trap}-gate'",
        f"{add} --no-gate",
        f"HOLDFAST_CLAUDE_BINARY={evil} {add}",
        f"HOLDFAST_WORKSPACE_SETUP='\"touch {trap}-setup\"' {add}",
        f"HOLDFAST_ENV_PASS=SUPER_SECRET {add}",
        f"HOLDFAST_RUN_DIR={fleet.home}/runs/$(cat {fleet.root}/other) HOLDFAST_TASK_ID=x {add} -- touch {trap}-other",
        f"S=$({add} --delay 1h 2>/dev/null); {HOLDFAST} cancel $S >/dev/null; {HOLDFAST} retry $S --permission full",
    )
    script = "".join(f"{{ {words}; }} >> {out}.part 2>&1; echo code $? >> {out}.part; " for words in tried)
    once = f"echo SECRET=$SUPER_SECRET >> {trap}-env; [ -e {out}.part ] || {{ {script} mv {out}.part {out}; }}"
    fake_cli(fleet.root / "bin", "claude", lines=recorded("claude", "ok"), version="2.1.325", then=once)
    fleet.env["PATH"] = f"{fleet.root / 'bin'}:{fleet.env['PATH']}"
    fleet.up("--agents", 2, env={"SUPER_SECRET": "s3cr3t-of-the-person"})
    other = fleet.queue("exec sleep 1000")
    (fleet.root / "other").write_text(fleet.wait_started(other)["runs"][0]["id"])
    task = fleet.add("look", "--agent", "claude", "--permission", "read")
    fleet.wait_state(task, "completed")
    said = out.read_text()
    assert [line[5:] for line in said.splitlines() if line.startswith("code ")] == ["1", "1", "0", "0", "0", "1", "1"]
    for name in ("HOLDFAST_CLAUDE_BINARY", "HOLDFAST_WORKSPACE_SETUP", "HOLDFAST_ENV_PASS"):
        assert f"{name} has no effect" in said
    assert "`holdfast retry --permission` is for people" in said
    added = [row["id"] for row in fleet.json("ps", "--all") if row["parent_id"] == task]
    assert [fleet.wait_state(one, "completed", "cancelled")["state"] for one in added].count("completed") == 3
    fleet.cli("cancel", other)
    assert sorted(path.name for path in fleet.root.glob("trap-*")) == ["trap-env"]
    assert set((fleet.root / "trap-env").read_text().split()) == {"SECRET="}


@pytest.mark.parametrize("options", ["-pCf --mount-proc", "-UrpCf --mount-proc", "-UrC"])
def test_a_namespace_is_no_way_to_be_the_person(fleet: Fleet, options: str) -> None:
    """Red team R7, as reproduced: in a PID and cgroup namespace an agent acknowledged an alert."""
    if subprocess.run(["unshare", *options.split(), "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces here")
    waiting = fleet.queue("true", delay=3600)
    fleet.up("--agents", 2)
    bare = f"env -i PATH=$PATH PYTHONPATH=$PYTHONPATH HOME=$HOME HOLDFAST_HOME={fleet.home}"
    script = f"{HOLDFAST} cancel {waiting}; {HOLDFAST} add x -- true; echo done"
    said = inside(fleet, f"unshare {options} {bare} sh -c '{script}' >> $OUT 2>&1")
    assert said.count("so it is not known who runs it") == 2 or said.count("this process belongs to") == 2, said
    assert fleet.show(waiting)["state"] == "queued"
    assert [row["prompt"] for row in fleet.json("ps", "--all") if row["prompt"] == "x"] == []
    fleet.cli("cancel", waiting)
