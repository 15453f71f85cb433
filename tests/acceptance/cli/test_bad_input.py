"""Bad input, from outside: one clear line on standard error, the right exit code, and nothing lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from tests.fleet import Fleet, lives, processes_of, wait_until
from tests.refusals import nothing_changes, refused

MEBIBYTE = 1024 * 1024


# -- repositories ------------------------------------------------------------------------------------------------------


def test_repositories_that_cannot_be_used(fleet: Fleet) -> None:
    """Not a repository, bare, empty, inside .git, not there at all: each refusal says what to do instead."""
    plain = fleet.root / "plain"
    plain.mkdir()
    bare = fleet.root / "bare.git"
    fleet.git("clone", "--quiet", "--bare", str(fleet.repo), str(bare))
    empty = fleet.root / "empty"
    fleet.git("init", "--quiet", str(empty), cwd=fleet.root)
    with nothing_changes(fleet):
        for command in (("add", "x", "--", "true"), ("run", "x", "--", "true"), ("init",)):
            assert "is not in a git repository" in refused(fleet, *command, cwd=plain, code=2)
            assert "bare repository" in refused(fleet, *command, cwd=bare, code=2)
        line = refused(fleet, "add", "x", "--", "true", cwd=empty, code=2)
        assert "no commit yet" in line
        assert "first commit" in line
        assert ".git directory" in refused(fleet, "add", "x", "--", "true", cwd=fleet.repo / ".git", code=2)
        missing = fleet.root / "missing"
        assert str(missing) in refused(fleet, "add", "x", "--repo", missing, "--", "true", code=2)
        for base in ("no-such-branch", "-x", "main:README.md"):
            line = refused(fleet, "add", "x", f"--base={base}", "--", "true", code=2)
            assert f"'{base}' is not a commit or branch" in line
    assert not fleet.supervisor_pid()


def test_a_detached_head_works(fleet: Fleet) -> None:
    """Defaults: the base is HEAD's commit when no branch is checked out, even after HEAD moved on."""
    fleet.git("checkout", "--quiet", "--detach")
    start = fleet.git("rev-parse", "HEAD")
    task_id = fleet.add("x", command=("sh", "-c", "echo new > new.txt"))
    fleet.git("checkout", "--quiet", "main")
    fleet.git("commit", "--quiet", "--allow-empty", "-m", "Later")
    fleet.up()
    task = fleet.wait_state(task_id, "completed")
    assert task["base_commit"] == start
    assert fleet.git("rev-parse", f"{task['branch']}^") == start
    assert fleet.file_on_branch(task["branch"], "new.txt") == "new"


def test_a_branch_in_the_way_fails_the_task_with_the_remedy(fleet: Fleet) -> None:
    """Policy: launch_error fails at once with the remedy; the user's branch is untouched, and retry works after it."""
    fleet.git("branch", "holdfast")
    tip = fleet.git("rev-parse", "holdfast")
    fleet.up()
    done = fleet.cli("run", "x", "--", "sh", "-c", "echo 1 > one.txt", code=1)
    [task] = fleet.json("ps")
    assert (task["state"], task["outcome"]) == ("failed", "launch_error")
    remedy = f"git -C {fleet.repo} branch -m holdfast"
    assert remedy in task["reason"]
    assert remedy in done.stdout
    assert remedy in fleet.cli("why", task["id"]).stdout
    assert fleet.git("rev-parse", "holdfast") == tip
    fleet.git("branch", "-m", "holdfast", "mine")
    fleet.wait_clean()
    fleet.cli("retry", task["id"])
    assert fleet.wait_state(task["id"], "completed")["branch"] == f"holdfast/{task['id']}"
    fleet.wait_clean()
    fleet.doctor()


def test_a_repository_deleted_while_its_tasks_wait(fleet: Fleet) -> None:
    """Its tasks fail and say why; those of other repositories continue; the gone one is no problem for the doctor."""
    doomed = fleet.make_repo(fleet.root / "doomed")
    lost = [
        fleet.add("x", "--workspace", strategy, command=("true",), cwd=doomed)
        for strategy in ("worktree", "directory:copy", "none")
    ]
    well = fleet.add("x", command=("sh", "-c", "echo well > well.txt"))
    shutil.rmtree(doomed)
    fleet.up()
    for task_id in lost:
        task = fleet.wait_state(task_id, "failed")
        assert task["outcome"] == "launch_error"
        assert str(doomed) in task["reason"]
        assert "is gone" in task["reason"]
    fleet.wait_state(well, "completed")
    assert fleet.file_on_branch(f"holdfast/{well}", "well.txt") == "well"
    fleet.wait_clean()
    assert f"{doomed} is gone" in fleet.doctor()
    assert not doomed.exists()


def test_a_base_that_vanished_while_the_task_waited(fleet: Fleet) -> None:
    """Policy: launch_error, with what to do; nothing falls back to another commit (R-TREE-05)."""
    fleet.git("branch", "feature")
    task_id = fleet.add("x", "--base", "feature", command=("true",))
    fleet.git("branch", "-D", "feature")
    fleet.up()
    task = fleet.wait_state(task_id, "failed")
    assert (task["outcome"], task["runs"]) == ("launch_error", [])
    assert "'feature' is not a commit" in task["reason"]
    assert "--base" in task["reason"]
    fleet.wait_clean()
    assert fleet.worktrees() == []


# -- agents ------------------------------------------------------------------------------------------------------------


def test_agents_that_cannot_be_used(fleet: Fleet) -> None:
    """No agent, an unknown one, one without what it needs: refused before anything is queued."""
    with nothing_changes(fleet):
        line = refused(fleet, "add", "x", code=2)
        assert "No agent is chosen" in line
        assert "`holdfast agents`" in line
        line = refused(fleet, "add", "x", "--agent", "clyde", code=2)
        assert "no agent 'clyde'" in line
        assert "claude, codex, command" in line
        assert "scenario" in refused(fleet, "add", "x", "--agent", "scripted", code=2)
        assert "command" in refused(fleet, "add", "x", "--agent", "command", code=2)
        assert "After `--` a command is expected" in refused(fleet, "add", "x", "--", code=2)
        steps = fleet.scenario({"print": "x"})
        assert "not both" in refused(fleet, "add", "x", "--scenario", steps, "--", "true", code=2)
        assert "Say what the agent should do" in refused(fleet, "run", code=2)
    assert not fleet.supervisor_pid()


def test_a_command_that_does_not_exist(fleet: Fleet) -> None:
    """Policy: launch_error → failed at once, no crash budget spent; nothing of it is left."""
    fleet.up()
    missing = fleet.add("x", command=("no-such-program", "--flag"))
    forbidden = fleet.add("x", command=("./README.md",))
    for task_id, said in ((missing, "No such file"), (forbidden, "Permission denied")):
        task = fleet.wait_state(task_id, "failed")
        assert task["outcome"] == "launch_error"
        assert [run["outcome"] for run in task["runs"]] == ["launch_error"]
        assert said in task["reason"]
        assert fleet.shown(task_id)["budgets"]["crash"]["spent"] == 0
    fleet.wait_clean()
    assert fleet.branches() == []
    fleet.doctor()


def test_a_command_that_does_not_exist_is_named_with_the_remedy(fleet: Fleet) -> None:
    """Policy: "fail at once, with the remedy"; every refusal names the next thing to do."""
    fleet.up()
    task_id = fleet.add("x", command=("no-such-program", "--flag"))
    reason = fleet.wait_state(task_id, "failed")["reason"]
    assert "no-such-program" in reason
    assert "PATH" in reason


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("missing.toml", None, "There is no scenario file", id="missing"),
        pytest.param("bad.toml", "[[step]\nprint = 'x'\n", "cannot be read", id="bad-toml"),
        pytest.param("bad.json", "{", "cannot be read", id="bad-json"),
        pytest.param("binary.toml", b"\xff\xfe\x00", "cannot be read", id="binary"),
        pytest.param("empty.toml", "", "has no steps", id="empty"),
        pytest.param("action.toml", "[[step]]\nprnt = 'x'\n", "no action 'prnt'; did you mean 'print'?", id="action"),
        pytest.param("two.toml", "[[step]]\nprint = 'x'\nexit = 1\n", "exactly one action", id="two-actions"),
        pytest.param("value.toml", "[[step]]\nprint = 'x'\n[[step]]\nsleep = 5\n", "step 2", id="bad-value"),
        pytest.param("away.toml", "[[step]]\nremove = '../x'\n", "inside the workspace", id="outside"),
    ],
)
def test_scenarios_that_cannot_be_played(fleet: Fleet, name: str, text: str | bytes | None, expected: str) -> None:
    """One line with the file, the step and the nearest word; nothing is queued, nothing is played."""
    path = fleet.root / name
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for arguments in (("add", "x", "--scenario", path), ("rehearse", path)):
        line = refused(fleet, *arguments, code=2)
        assert expected in line
        assert str(path) in line
    assert not (fleet.home / "workspaces").exists()


# -- values on the command line ----------------------------------------------------------------------------------------


def test_prompts_that_are_none(fleet: Fleet) -> None:
    """Empty, too large, or no text; exactly 1 MiB is still accepted and arrives whole."""
    with nothing_changes(fleet):
        for empty in ("", "  \n\t "):
            assert "prompt is empty" in refused(fleet, "add", empty, "--", "true", code=2)
        assert "prompt is empty" in refused(fleet, "add", "-", "--", "true", stdin=b"", code=2)
        large = refused(fleet, "add", "-", "--", "true", stdin=b"x" * (MEBIBYTE + 1), code=2)
        assert "larger than 1024 KiB" in large
        for binary in (b"\x7fELF\x00\x01", b"caf\xe9 au lait"):
            assert "not text" in refused(fleet, "add", "-", "--", "true", stdin=binary, code=2)
        assert "not text" in refused(fleet, "add", "caf\udce9", "--", "true", code=2)
    fleet.up()
    task_id = fleet.add("-", command=("sh", "-c", "wc -c > size.txt"), stdin="é".encode() * (MEBIBYTE // 2))
    fleet.wait_state(task_id, "completed")
    assert fleet.file_on_branch(f"holdfast/{task_id}", "size.txt").strip() == str(MEBIBYTE)


def test_option_values_that_mean_nothing(fleet: Fleet) -> None:
    """Durations without a unit, labels without a value, counts below zero, unknown strategies."""
    with nothing_changes(fleet):
        for option in ("--timeout", "--delay"):
            for value in ("5", "soon", "1h30", "-5m"):
                line = refused(fleet, "add", "x", f"{option}={value}", "--", "true", code=2)
                assert option in line
                assert f"'{value}' is not a duration" in line
        for label in ("area", "=docs", ""):
            assert "KEY=VALUE" in refused(fleet, "add", "x", f"--label={label}", "--", "true", code=2)
        assert "'-1'" in refused(fleet, "add", "x", "--max-resumes", "-1", "--", "true", code=2)
        line = refused(fleet, "add", "x", "--workspace", "cloud", "--", "true", code=2)
        assert "'cloud' is not one of worktree, clone, container, directory, directory:copy, none" in line
        assert "'0'" in refused(fleet, "up", "--agents", "0", code=2)
        assert "--idle-exit" in refused(fleet, "up", "--idle-exit", "1", code=2)
        assert "not between 0 and" in refused(fleet, "events", "-n", "-1", code=2)
        refused(fleet, "salvage", "restore", code=2)
        refused(fleet, "alerts", "ack", code=2)
        assert "No open alert 7" in refused(fleet, "alerts", "ack", "7", code=3)
        unparsable = (("add", "x", "--priority", "high", "--", "true"), ("ps", "--evrything"), ("show",))
        for arguments, named in zip(unparsable, ("high", "--evrything", "id"), strict=True):
            assert named in fleet.cli(*arguments, code=2).stderr.splitlines()[-1]


def test_numbers_that_are_too_large(fleet: Fleet) -> None:
    """One line, not a traceback."""
    huge = "99999999999999999999"
    with nothing_changes(fleet):
        fleet.cli("add", "x", "--priority", huge, "--", "true", code=2)
        fleet.cli("events", "-n", huge, code=None)
        fleet.cli("alerts", "ack", huge, code=2)


def test_a_delay_that_is_too_long(fleet: Fleet) -> None:
    """Refused, or shown: never a traceback."""
    done = fleet.cli("add", "x", "--json", "--delay", "99999999999999d", "--", "true", code=None)
    if done.returncode == 0:
        [task] = fleet.json("ps")
        for command in ("why", "show"):
            fleet.cli(command, task["id"])
    else:
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


def test_bytes_that_are_no_text(fleet: Fleet) -> None:
    """What is stored and shown must be text, like a prompt."""
    task_id = fleet.add("x", command=("true",))
    with nothing_changes(fleet):
        assert "not text" in refused(fleet, "add", "x", "--label", "name=caf\udce9", "--", "true", code=2)
        assert "not text" in refused(fleet, "cancel", task_id, "--why", "caf\udce9", code=2)


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["user", "repo"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("agnts = 3\n", "there is no setting 'agnts'; did you mean 'agents'?", id="unknown-key"),
        pytest.param(
            "[resume]\nmax_atempts = 1\n", "'resume.max_atempts'; did you mean 'resume.max_attempts'?", id="in-a-table"
        ),
        pytest.param("[resume]\nmax_attempts = -1\n", "resume.max_attempts: '-1' is not a whole number", id="negative"),
        pytest.param("[health]\ngrace = 5\n", "health.grace: '5' is not a duration", id="no-unit"),
        pytest.param("agents = \n", "cannot be read", id="bad-toml"),
    ],
)
def test_settings_files_with_mistakes(fleet: Fleet, where: str, text: str, expected: str) -> None:
    """R-RES-03, Config: the file, the key, what was probably meant; a wrong file is never half applied."""
    path = fleet.root / "config.toml" if where == "user" else fleet.repo / "holdfast.toml"
    path.write_text(text)
    env = {"HOLDFAST_CONFIG": str(path)} if where == "user" else {}
    line = refused(fleet, "add", "x", "--", "true", env=env, code=2)
    assert str(path) in line
    assert expected in line
    assert not fleet.home.exists() or fleet.json("ps", "--all") == []


def test_settings_in_the_environment_with_mistakes(fleet: Fleet) -> None:
    """Config: a bad value in a variable names the key it stands for; a good one works and a flag wins over it."""
    with nothing_changes(fleet):
        line = refused(fleet, "add", "x", "--", "true", env={"HOLDFAST_RESUME_MAX_ATTEMPTS": "many"}, code=2)
        assert "environment: resume.max_attempts: 'many' is not a whole number" in line
        line = refused(fleet, "add", "x", "--", "true", env={"HOLDFAST_WORKSPACE_STRATEGY": "cloud"}, code=2)
        assert "workspace.strategy: 'cloud'" in line
        assert "agents: 'x'" in refused(fleet, "up", env={"HOLDFAST_AGENTS": "x"}, code=2)
    fewer = {"HOLDFAST_RESUME_MAX_ATTEMPTS": "1"}
    assert fleet.show(fleet.add("x", command=("true",), env=fewer))["max_resumes"] == 1
    assert fleet.show(fleet.add("x", "--max-resumes", "2", command=("true",), env=fewer))["max_resumes"] == 2


def test_a_repository_cannot_choose_the_command(fleet: Fleet) -> None:
    """Config: a key that runs commands is refused in an untrusted repository's file, and works in the user's own."""
    settings = '[command]\nargv = ["sh", "-c", "echo pwned > pwned.txt"]\n'
    own = fleet.root / "config.toml"
    own.write_text('agent = "command"\n' + settings)
    (fleet.repo / "holdfast.toml").write_text(settings)
    for arguments in (("add", "x"), ("add", "x", "--agent", "command"), ("add", "x", "--", "true")):
        line = refused(fleet, *arguments, code=1)
        assert "sets command.argv, which could run commands" in line
        assert f"holdfast trust {fleet.repo}" in line
    assert fleet.json("ps", "--all") == []
    (fleet.repo / "holdfast.toml").unlink()
    fleet.up()
    task_id = fleet.add("x", env={"HOLDFAST_CONFIG": str(own)})
    fleet.wait_state(task_id, "completed")
    assert fleet.file_on_branch(f"holdfast/{task_id}", "pwned.txt") == "pwned"


def test_a_repository_cannot_drive_the_terminal_through_an_error(fleet: Fleet) -> None:
    """What a cloned repository says must not reach the terminal as an escape sequence, nor break the one line."""
    (fleet.repo / "holdfast.toml").write_text('"a\\u001b]0;owned\\u0007\\nb" = 1\n')
    line = refused(fleet, "add", "x", "--", "true", code=2)
    assert "\x1b" not in line
    assert "\x07" not in line


# -- homes and stores --------------------------------------------------------------------------------------------------


def test_one_supervisor_per_home(fleet: Fleet) -> None:
    """DESIGN, Home: a second `up` names the first; the first is not disturbed. A unit of systemd is refused instead."""
    first = fleet.up()
    for options in ((), ("--detach",)):
        assert f"Already running, pid {first.pid}." in fleet.cli("up", *options).stdout
    unit = ("sh", "-c", 'SYSTEMD_EXEC_PID=$$ exec "$@"', "sh")
    line = fleet.cli("up", prefix=unit, code=4).stderr
    assert "already running" in line
    assert f"pid {first.pid}" in line
    assert fleet.supervisor_pid() == first.pid
    fleet.wait_state(fleet.add("x", command=("true",)), "completed")


def test_a_home_that_cannot_be_used(fleet: Fleet) -> None:
    """A home under a file: every command says so; 69 because the store is unavailable."""
    nowhere = {"HOLDFAST_HOME": "/dev/null/x"}
    for arguments in (("init",), ("add", "x", "--", "true"), ("run", "x", "--", "true"), ("up",), ("up", "--detach")):
        line = refused(fleet, *arguments, env=nowhere, code=69)
        assert "/dev/null/x" in line
        assert "HOLDFAST_HOME" in line
    assert "/dev/null/x" in refused(fleet, "ps", env=nowhere, code=69)


def test_no_store_yet(fleet: Fleet) -> None:
    """Looking never creates a store; the refusal says how to make one, and `init` does."""
    for arguments in (("ps",), ("show", "x"), ("events",), ("alerts",), ("workspaces",), ("cancel", "x"), ("down",)):
        line = refused(fleet, *arguments, code=69)
        assert str(fleet.home) in line
        assert "holdfast init" in line
    assert not fleet.home.exists()
    assert "no store" in fleet.cli("doctor").stdout
    assert not fleet.home.exists()
    fleet.cli("init")
    assert fleet.json("ps") == []
    assert (fleet.home.stat().st_mode & 0o777) == 0o700


def overwritten(content: bytes) -> bytes:
    return b"this is no database\n" * (len(content) // 20)


def torn(content: bytes) -> bytes:
    """The header is good; every page behind the first is not."""
    return content[:4096] + b"\xff" * (len(content) - 4096)


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2 // 4096 * 4096]


def cut_in_the_header(content: bytes) -> bytes:
    return content[:60]


def settled_store(fleet: Fleet) -> Path:
    """A store with a task in it, everything in the main file."""
    fleet.add("acknowledged", command=("true",))
    path = fleet.home / "holdfast.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


def forget_log(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@pytest.mark.parametrize("damage", [overwritten, torn, truncated, cut_in_the_header])
def test_a_damaged_store_is_refused_and_kept(fleet: Fleet, damage: Callable[[bytes], bytes]) -> None:
    """Promise 1: 69, where the copies are, and not one byte of the damaged file is changed."""
    path = settled_store(fleet)
    good = path.read_bytes()
    forget_log(path)
    bad = damage(good)
    path.write_bytes(bad)
    for arguments in (("ps",), ("ps", "--json"), ("add", "x", "--", "true"), ("up",)):
        line = refused(fleet, *arguments, code=69)
        assert str(path) in line, arguments
        assert "backups" in line, arguments
        assert path.read_bytes() == bad, arguments
    assert "problem" in fleet.cli("doctor", code=1).stdout
    assert path.read_bytes() == bad
    forget_log(path)
    path.write_bytes(good)
    assert [row["prompt"] for row in fleet.json("ps")] == ["acknowledged"]


def test_a_store_from_the_future_is_refused_and_kept(fleet: Fleet) -> None:
    """Promise 1: an older Holdfast touches nothing that a newer one wrote, and says which versions they are."""
    path = settled_store(fleet)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 9999")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = path.read_bytes()
    for arguments in (("ps",), ("add", "x", "--", "true"), ("run", "x", "--", "true"), ("up",), ("up", "--detach")):
        line = refused(fleet, *arguments, code=69)
        assert "schema 9999" in line, arguments
        assert "upgrade Holdfast" in line, arguments
        assert path.read_bytes() == before, arguments


def test_an_empty_store_file_is_refused(fleet: Fleet) -> None:
    """A file of no bytes is not a store."""
    fleet.home.mkdir(mode=0o700)
    path = fleet.home / "holdfast.db"
    path.touch()
    line = refused(fleet, "ps", code=69)
    assert str(path) in line


def test_looking_at_an_empty_store_file_does_not_change_it(fleet: Fleet) -> None:
    """Promise 1: a refusal leaves the file as it was."""
    fleet.home.mkdir(mode=0o700)
    path = fleet.home / "holdfast.db"
    path.touch()
    refused(fleet, "ps", code=69)
    assert path.read_bytes() == b""


# -- ids and states ----------------------------------------------------------------------------------------------------


BY_ID = ["show", "why", "events", "logs", "cancel", "retry", "resume", "diff"]


@pytest.mark.parametrize("command", BY_ID)
def test_ids_that_name_no_task(fleet: Fleet, command: str) -> None:
    """R-RES-02: "Task not found: <id>", whatever the id looks like; nothing is matched by a pattern."""
    with nothing_changes(fleet):
        [task] = fleet.json("ps")
        words = ("zz0000", "../../etc/passwd", "%", "_", "*", task["id"][:-1] + "*", task["id"] + "x", "é", "٣", "a b")
        for word in words[BY_ID.index(command) % 3 :: 3]:  # each command sees a third, each word several commands
            assert refused(fleet, command, word, code=3) == f"Task not found: {word}"
        assert "the id is empty" in refused(fleet, command, "", code=3)
        long = refused(fleet, command, "x" * 5000, code=3)
        assert len(long) < 200
        assert refused(fleet, command, "\x1b[31mred", code=3) == "Task not found: red"


def test_an_ambiguous_id(fleet: Fleet) -> None:
    """A prefix of two tasks is a conflict that lists them; more of it is enough."""
    ids = [fleet.add("x", "--delay", "1h", command=("true",)) for _ in range(33)]  # more than there are first letters
    letters = [task_id[0] for task_id in ids]
    letter = next(one for one in letters if letters.count(one) > 1)
    meant = [task_id for task_id in ids if task_id.startswith(letter)]
    for command in ("show", "cancel", "retry", "resume", "logs"):
        line = refused(fleet, command, letter, code=4)
        assert all(task_id in line for task_id in meant)
        assert "type more of the id" in line
    assert {fleet.show(task_id)["state"] for task_id in meant} == {"queued"}


def test_moves_that_a_state_does_not_allow(fleet: Fleet) -> None:
    """Cancel of a finished task, retry of a running one, resume of one that is not paused: conflicts, no change."""
    done = fleet.add("x", command=("true",))
    fleet.up()
    fleet.wait_state(done, "completed")
    fleet.wait_clean()
    running = fleet.add_scenario({"hang": True})
    wait_until(lambda: "run.started" in fleet.kinds(running), "the agent runs")
    for arguments, said in (
        (("cancel", done), "completed already"),
        (("retry", done), "only a failed or cancelled task can be retried"),
        (("resume", done), "not paused"),
        (("retry", running), "only a failed or cancelled task can be retried"),
        (("resume", running), "not paused"),
        (("workspaces", "clean", running), "needs its workspace"),
        (("workspaces", "clean", done), "no preserved workspace"),
    ):
        before = fleet.show(arguments[-1])
        line = refused(fleet, *arguments, code=4)
        assert said in line, arguments
        assert fleet.show(arguments[-1]) == before
    fleet.cli("cancel", running)
    assert "cancelled already" in refused(fleet, "cancel", running, code=4)


# -- prompts and agents ------------------------------------------------------------------------------------------------


def test_a_prompt_with_escapes_is_kept_exactly_and_shown_harmlessly(fleet: Fleet) -> None:
    """The agent gets what was written, byte for byte; a terminal gets only the letters."""
    prompt = "\x1b[31mred\x1b[0m\x07 \x1b]0;owned\x1b\\ tab\there\r\nsecond é\u202e line\x7f"
    task_id = fleet.add(prompt, command=("sh", "-c", "cat > prompt.txt"))
    assert fleet.show(task_id)["prompt"] == prompt
    for arguments in (("ps",), ("show", task_id), ("why", task_id), ("events",)):
        shown = fleet.cli(*arguments)
        assert not {"\x1b", "\x07", "\x7f"} & set(shown.stdout + shown.stderr), arguments
    fleet.cli("up", "--idle-exit", "0s")
    stored = subprocess.run(
        ["git", "show", f"holdfast/{task_id}:prompt.txt"], cwd=fleet.repo, capture_output=True, check=True
    ).stdout
    assert stored == prompt.encode()


def test_a_prompt_that_begins_with_a_dash(fleet: Fleet) -> None:
    """It looks like an option: the refusal says how to give it, and those ways work."""
    with nothing_changes(fleet):
        for prompt in ("--fix-it", "-fix", "-x"):
            for command in ("add", "run"):
                line = refused(fleet, command, prompt, "--", "true", code=2)
                assert prompt in line
                assert "--from FILE" in line
        assert "not both" in refused(fleet, "add", "x", "--from", "-", "--", "true", stdin=b"y", code=2)
        for missing in (fleet.root / "missing", fleet.root):
            assert str(missing) in refused(fleet, "add", "--from", missing, "--", "true", code=2)
        assert "larger than" in refused(fleet, "add", "--from", "/dev/zero", "--", "true", code=2)
        assert "prompt is empty" in refused(fleet, "add", "--from", "/dev/null", "--", "true", code=2)
    path = fleet.root / "prompt.md"
    path.write_text("--fix-it\nall of it")
    assert fleet.show(fleet.add("--from", path, command=("true",)))["prompt"] == "--fix-it\nall of it"
    assert fleet.show(fleet.add("--from", "-", command=("true",), stdin=b"-x"))["prompt"] == "-x"
    assert fleet.show(fleet.add("-x with words", command=("true",)))["prompt"] == "-x with words"


def test_an_agent_that_is_nearly_known(fleet: Fleet) -> None:
    with nothing_changes(fleet):
        assert "Did you mean 'command'?" in refused(fleet, "add", "x", "--agent", "comand", code=2)
        assert "Did you mean 'scripted'?" in refused(fleet, "add", "x", "--agent", "Scripted", code=2)
        assert "Did you mean 'claude'?" in refused(fleet, "add", "x", "--agent", "claud", code=2)
        assert "put it after `--`" in refused(fleet, "add", "x", "--agent", "my-agent", code=2)


def test_programs_that_cannot_be_started(fleet: Fleet) -> None:
    """Missing, without its x bit, a directory, of another machine: each fails at once, is named, and can be retried."""
    odd = fleet.root / "odd"
    odd.mkdir()
    (odd / "plain").write_text("#!/bin/sh\n")
    (odd / "binary").write_bytes(b"\x7fELF\x00garbage")
    (odd / "binary").chmod(0o755)
    (odd / "script").write_text("#!/no/such/interpreter\n")
    (odd / "script").chmod(0o755)
    tasks = {name: fleet.add("x", command=(odd / name,)) for name in ("missing", "plain", "binary", "script")}
    tasks["odd"] = fleet.add("x", command=(odd,))
    fleet.cli("up", "--idle-exit", "0s")
    for name, task_id in tasks.items():
        task = fleet.show(task_id)
        assert (task["state"], task["outcome"], len(task["runs"])) == ("failed", "launch_error", 1), name
        assert name in task["reason"]
        assert "is it installed, executable" in task["reason"]
    (odd / "plain").chmod(0o755)
    fleet.cli("retry", tasks["plain"])
    fleet.cli("up", "--idle-exit", "0s")
    assert fleet.show(tasks["plain"])["state"] == "completed"
    assert fleet.branches() == []
    fleet.doctor()


def test_what_no_process_can_be_started_with(fleet: Fleet) -> None:
    """An empty word for the program, NUL characters, impossible variables: refused when they are queued."""
    own = fleet.root / "config.toml"
    env = {"HOLDFAST_CONFIG": str(own)}
    with nothing_changes(fleet):
        assert "first word is empty" in refused(fleet, "add", "x", "--", "", code=2)
        own.write_text('agent = "command"\n[command]\nargv = ["sh", "-c", "a\\u0000b"]\n')
        assert "NUL" in refused(fleet, "add", "x", env=env, code=2)
        for entry in ('"A=B" = "x"', '"" = "x"', 'A = "x\\u0000y"', '"A\\u0000" = "x"'):
            own.write_text(f"[env.set]\n{entry}\n")
            assert "env.set" in refused(fleet, "add", "x", "--", "true", env=env, code=2)


def test_numbers_of_the_supervisor_that_are_too_large(fleet: Fleet) -> None:
    for value in ("99999999999999999999", "9" * 5000, "²"):
        line = refused(fleet, "up", env={"HOLDFAST_AGENTS": value}, code=2)
        assert "agents" in line


def test_a_duration_of_many_digits_is_answered_at_once(fleet: Fleet) -> None:
    """The pattern once needed quadratic time: seconds for what a script may well produce by mistake."""
    line = refused(fleet, "add", "x", "--timeout", "9" * 100_000, "--", "true", code=2)
    assert "is not a duration" in line
    assert len(line) < 300


def test_options_that_the_front_door_does_not_know(fleet: Fleet) -> None:
    for words in (("--nope",), ("-x",), ("--versoin",)):
        assert f"There is no option {words[0]}" in refused(fleet, *words, code=2)
    assert "Did you mean `holdfast events`?" in refused(fleet, "evnts", code=2)
    assert "no command" in refused(fleet, "", code=2)


def test_a_frozen_task_says_what_to_do(fleet: Fleet) -> None:
    """`why` repeats the remedy of the alert, even when somebody has acknowledged it."""
    fleet.env["HOLDFAST_PROCESSES_CGROUP"] = "off"  # with them nothing is frozen here
    supervisor = fleet.up()
    task_id = fleet.add_scenario({"hang": True})
    wait_until(lambda: "run.started" in fleet.kinds(task_id), "the agent runs")
    agent = fleet.show(task_id)["runs"][0]["pid"]
    keeper = next(pid for pid, command in processes_of(fleet.home).items() if "keeper.py" in command)
    fleet.kill_supervisor(supervisor)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not lives(agent), "the agent dies with its keeper")
    fleet.up()
    wait_until(lambda: "task.frozen" in fleet.kinds(task_id), "the task is frozen")
    remedy = f"holdfast cancel {task_id} --assume-dead"
    assert remedy in fleet.json("why", task_id)[0]["why"][-1]
    [alert] = [alert for alert in fleet.json("alerts") if alert["task"] == task_id]
    fleet.cli("alerts", "ack", alert["id"])
    assert remedy in fleet.json("why", task_id)[0]["why"][-1]
    assert "frozen" in refused(fleet, "cancel", task_id, code=4)
    fleet.cli("cancel", task_id, "--assume-dead")
    assert remedy not in str(fleet.json("why", task_id)[0]["why"])
