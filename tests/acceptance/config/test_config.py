"""Settings from outside: what holds and why, mistakes with their line, trust, changes while running."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import Fleet, lives, wait_until

COMMANDING = '[command]\nargv = ["sh", "-c", "echo ran > ran.txt"]\n'


def user_file(fleet: Fleet, text: str) -> Path:
    """The user's own file at its usual place."""
    path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.rename(path)
    return path


def repo_file(fleet: Fleet, text: str) -> Path:
    path = fleet.repo / "holdfast.toml"
    path.write_text(text)
    return path


def refused(fleet: Fleet, *arguments: object, code: int, **options: Any) -> str:
    done = fleet.cli(*arguments, code=code, **options)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def shown(fleet: Fleet, **env: str) -> dict[str, dict[str, Any]]:
    lines = fleet.cli("config", "show", "--json", env=env).stdout.splitlines()
    return {row["key"]: row for row in map(json.loads, lines)}


# -- show, check, path -------------------------------------------------------------------------------------------------


def test_show_says_where_each_value_comes_from(fleet: Fleet) -> None:
    """Config: default < user < repository < environment, with file and line; secrets only when asked for."""
    own = 'agents = 2\n[health]\ngrace = "1m"\n[resume]\nmax_attempts = 1\n[env]\nset = { A = "hush" }\n'
    user = user_file(fleet, own)
    repo = repo_file(fleet, "# mine\nresume.max_attempts = 2\nworkspace.strategy = 'none'\n")
    fleet.cli("trust", "--yes")
    rows = shown(fleet, HOLDFAST_WORKSPACE_STRATEGY="directory")
    assert {key: (rows[key]["value"], rows[key]["origin"]) for key in ("agents", "health.grace", "runs.max")} == {
        "agents": (2, f"{user}:1"),
        "health.grace": (60.0, f"{user}:3"),
        "runs.max": (12, "default"),
    }
    assert (rows["resume.max_attempts"]["value"], rows["resume.max_attempts"]["origin"]) == (2, f"{repo}:2")
    strategy = rows["workspace.strategy"]
    assert (strategy["value"], strategy["origin"]) == ("directory", "HOLDFAST_WORKSPACE_STRATEGY in the environment")
    plain = fleet.cli("config", "show", "--origin").stdout
    assert "hush" not in plain
    assert 'health.grace = "1m"' in plain
    assert f"# {repo}:3" in plain
    assert "hush" not in fleet.cli("config", "show", "--json").stdout
    assert 'env.set = { "A" = "hush" }' in fleet.cli("config", "show", "--reveal").stdout
    outside = fleet.cli("config", "show", "--origin", cwd=fleet.root).stdout  # in no repository
    assert str(repo) not in outside
    assert f"# {user}:1" in outside
    refused(fleet, "config", "show", "--repo", fleet.root, code=2)
    refused(fleet, "config", code=2)
    task = fleet.show(fleet.add("x", command=("true",)))  # what it shows is what a task gets
    assert (task["max_resumes"], task["workspace"]["strategy"] or task["strategy"]) == (2, "none")


def test_shown_settings_can_be_a_file_again(fleet: Fleet) -> None:
    user_file(fleet, 'agents = 3\n[health]\nmax_runtime = "1h30m"\n[env]\nset = { "A B" = "\\u0007\\"" }\n')
    text = fleet.cli("config", "show", "--reveal", "--origin").stdout
    before = shown(fleet)
    user_file(fleet, text)
    assert {key: row["value"] for key, row in shown(fleet).items()} == {k: row["value"] for k, row in before.items()}


def test_check_finds_every_mistake(fleet: Fleet) -> None:
    """Config: all mistakes of all files at once, with file, line and the nearest key; other commands: the first."""
    user = user_file(fleet, "agent = 'cluade'\n")
    mistake = f"{user}:1: agent: there is no agent 'cluade'; did you mean 'claude'?"
    assert fleet.cli("config", "check", code=2).stdout == f"mistake  {mistake}\n"
    assert mistake in fleet.cli("doctor", code=1).stdout
    assert "Did you mean 'claude'?" in refused(fleet, "add", "x", code=2)
    user = user_file(fleet, "[helth]\ngrace = '5s'\n\n[crash]\nwindow = 5\n")
    repo = repo_file(fleet, "agents = 9\n\n\n[resume]\nmax_attempts = -1\n")
    done = fleet.cli("config", "check", code=2, env={"HOLDFAST_RUNS_MAX": "0"})
    assert done.stdout.splitlines() == [
        f"mistake  {user}:2: there is no setting 'helth.grace'; did you mean 'health.grace'?",
        f"mistake  {user}:5: crash.window: '5' is not a duration; write it with a unit, like 90s, 5m, 1h30m or 250ms",
        f"mistake  {repo}:1: 'agents' is a setting of the supervisor, not of a task, so it is not read from a "
        f"repository's file. Put it into {user}",
        f"mistake  {repo}:5: resume.max_attempts: '-1' is not a whole number of at least 0",
        "mistake  HOLDFAST_RUNS_MAX in the environment: runs.max: '0' is not a whole number of at least 1",
    ]
    rows = [json.loads(line) for line in fleet.cli("config", "check", "--json", code=2).stdout.splitlines()]
    assert [(row["level"], row["place"], row["line"]) for row in rows] == [
        ("problem", str(user), 2),
        ("problem", str(user), 5),
        ("problem", str(repo), 1),
        ("problem", str(repo), 5),
    ]
    line = refused(fleet, "add", "x", "--", "true", code=2)
    assert f"{user}:2: there is no setting 'helth.grace'" in line
    assert "(and 3 more mistakes: `holdfast config check` lists all)" in line
    assert (
        "2 problem(s)" in fleet.cli("doctor", code=1).stdout
    )  # the user's own; the doctor is not about one repository
    user.unlink()
    repo.unlink()
    assert "there is no settings file" in fleet.cli("config", "check").stdout


def test_variables_that_are_no_settings(fleet: Fleet) -> None:
    """Config: a slip in a variable's name is a warning, not an error; ours and others' are none."""
    slip = {"HOLDFAST_AGNETS": "3", "HOLDFAST_RUN_DIR": "/x", "HOLDFAST_OTHERS": "1"}
    done = fleet.cli("config", "check", env=slip)
    assert "The variable HOLDFAST_AGNETS is not a setting; did you mean HOLDFAST_AGENTS?" in done.stdout
    assert "HOLDFAST_RUN_DIR" not in done.stdout
    assert "HOLDFAST_OTHERS" not in done.stdout
    assert "HOLDFAST_OTHERS is not a setting and is ignored" in fleet.cli("config", "show", env=slip).stderr
    assert "did you mean HOLDFAST_AGENTS" in fleet.cli("doctor", env=slip).stdout
    fleet.add("x", command=("true",), env=slip)
    missing = {"HOLDFAST_CONFIG": "/nowhere/config.toml"}
    assert "/nowhere/config.toml, which does not exist" in fleet.cli("config", "check", env=missing).stdout


def test_path_names_the_files(fleet: Fleet) -> None:
    repo = repo_file(fleet, "")
    rows = fleet.json("config", "path")
    assert [(row["path"], row["role"], row["exists"]) for row in rows] == [
        (str(fleet.root / "user/.config/holdfast/config.toml"), "user", False),
        (str(repo), "repository", True),
    ]
    moved = fleet.cli("config", "path", env={"HOLDFAST_CONFIG": "/dev/null"}).stdout
    assert moved.startswith("/dev/null  (user)\n")


def test_a_relative_path_means_the_same_file_to_a_detached_supervisor(fleet: Fleet) -> None:
    """It works in `/`, so the path is made whole before."""
    (fleet.repo / "mine.toml").write_text("agents = 1\n")
    env = {"HOLDFAST_CONFIG": "mine.toml"}
    assert shown(fleet, **env)["agents"]["origin"] == f"{fleet.repo / 'mine.toml'}:1"
    fleet.cli("up", "--detach", env=env)
    started = next(event for event in fleet.events() if event["kind"] == "host.started")
    assert "1 agents at once" in started["message"]
    fleet.cli("down")


# -- trust -------------------------------------------------------------------------------------------------------------


def test_commands_of_a_repository_need_trust(fleet: Fleet) -> None:
    """Config: refused until trusted; trust is for these values; a harmless edit keeps it, another command does not."""
    file = repo_file(fleet, 'agent = "command"\n' + COMMANDING)
    for command in ("add", "run"):
        line = refused(fleet, command, "x", code=1)
        assert "command.argv" in line
        assert f"`holdfast trust {fleet.repo}`" in line
    assert fleet.json("ps", "--all") == []
    assert "you did not confirm" in fleet.cli("trust", code=1).stderr  # no terminal, no --yes
    assert fleet.json("trust")[0]["trusted"] is False
    assert shown(fleet)["command.argv"]["value"] == []
    told = fleet.cli("trust", "--yes").stdout
    assert 'command.argv = ["sh", "-c", "echo ran > ran.txt"]' in told
    fleet.up()
    task_id = fleet.add("x")
    fleet.wait_state(task_id, "completed")
    assert fleet.file_on_branch(f"holdfast/{task_id}", "ran.txt") == "ran"

    file.write_text("# a comment\n" + file.read_text() + '\n[health]\ngrace = "6s"\n')
    fleet.add("x", "--delay", "1h")
    file.write_text(file.read_text().replace("echo ran", "echo RAN"))
    refused(fleet, "add", "x", code=1)
    assert fleet.json("trust", "--list")[0]["state"] == "changed since"
    file.write_text(file.read_text().replace("echo RAN", "echo ran") + '[env]\npass = ["SECRET_*"]\n')
    assert "command.argv and env.pass" in refused(fleet, "add", "x", code=1)
    assert len(fleet.json("ps", "--all")) == 2


def test_trust_is_listed_revoked_and_bound_to_its_checkout(fleet: Fleet) -> None:
    repo_file(fleet, COMMANDING)
    fleet.git("add", "holdfast.toml")
    fleet.git("commit", "--quiet", "-m", "Settings")
    other = fleet.root / "other"
    fleet.git("worktree", "add", "--quiet", str(other), "-b", "side")
    fleet.cli("trust", "--yes")
    record = fleet.home / "trust.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert [(row["repo"], row["state"], row["keys"]) for row in fleet.json("trust", "--list")] == [
        (str(fleet.repo), "trusted", ["command.argv"])
    ]
    assert str(fleet.repo) in fleet.cli("trust", "--list").stdout
    (fleet.root / "link").symlink_to(fleet.repo)
    fleet.add("x", command=("true",))
    fleet.add("x", command=("true",), cwd=fleet.repo / "src")
    fleet.add("x", "--repo", fleet.root / "link", command=("true",))
    refused(fleet, "add", "x", "--", "true", code=1, cwd=other)
    fleet.cli("trust", "--yes", cwd=other)
    fleet.add("x", command=("true",), cwd=other)
    fleet.cli("trust", "--revoke")
    refused(fleet, "add", "x", "--", "true", code=1)
    fleet.add("x", command=("true",), cwd=other)
    assert "was not trusted" in fleet.cli("trust", "--revoke").stdout
    fleet.git("worktree", "remove", "--force", str(other))
    assert fleet.json("trust", "--list")[0]["state"] == "unused"
    fleet.cli("trust", "--revoke", other, cwd=fleet.root)
    assert fleet.json("trust", "--list") == []
    assert [path.name for path in fleet.home.glob("trust*")] != []


def test_nothing_to_trust_and_mistakes(fleet: Fleet) -> None:
    assert "does not exist" in fleet.cli("trust").stdout
    repo_file(fleet, "health.grace = '1s'\ncommand.argv = []\n")
    assert "sets nothing that needs trust" in fleet.cli("trust").stdout
    repo_file(fleet, COMMANDING + "x = 1\n")
    assert "holdfast.toml:3: there is no setting 'command.x'" in refused(fleet, "trust", "--yes", code=2)
    refused(fleet, "trust", fleet.root, code=2)
    refused(fleet, "trust", "--yes", "--revoke", code=2)


def test_what_is_hidden_in_a_value_is_shown(fleet: Fleet) -> None:
    """A command that reads as another one on a terminal must not be trusted by mistake."""
    repo_file(fleet, 'command.argv = ["sh", "-c", "ls \\u202e\\u001b[2K\\u200b.."]\n')
    told = fleet.cli("trust", "--yes").stdout
    assert '"ls \\u202e\\u001b[2K\\u200b.."' in told


def test_a_broken_record_of_trust_trusts_nobody(fleet: Fleet) -> None:
    """Fail closed, say what to do, and overwrite nothing."""
    repo_file(fleet, COMMANDING)
    fleet.cli("trust", "--yes")
    record = fleet.home / "trust.json"
    good = record.read_text()
    every = (("add", "x", "--", "true"), ("trust", "--yes"), ("trust", "--list"), ("trust", "--revoke"))
    for broken in ("{", "[]", '{"version": 99, "trusted": {}}', '{"version": 1, "trusted": {"a": 1}}', "\xff"):
        record.write_text(broken, encoding="latin-1")
        for command in every if broken == "{" else every[:1]:
            line = refused(fleet, *command, code=69)
            assert str(record) in line
            assert "nothing is trusted" in line
        assert record.read_text(encoding="latin-1") == broken
    record.write_text(good)
    fleet.add("x", command=("true",))


@pytest.mark.parametrize("fault", ["kill", "ENOSPC"])
def test_trust_is_given_whole_or_not_at_all(fleet: Fleet, fault: str) -> None:
    repo_file(fleet, COMMANDING)
    other = fleet.make_repo(fleet.root / "other", {"holdfast.toml": COMMANDING})
    fleet.cli("trust", "--yes")
    done = fleet.cli("trust", "--yes", code=None, cwd=other, env={"HOLDFAST_FAULT": f"trust.rename:1:{fault}"})
    assert done.returncode == (-signal.SIGKILL if fault == "kill" else 69)
    assert [row["repo"] for row in fleet.json("trust", "--list")] == [str(fleet.repo)]
    refused(fleet, "add", "x", "--", "true", code=1, cwd=other)
    fleet.cli("trust", "--yes", cwd=other)
    fleet.add("x", command=("true",), cwd=other)
    assert sorted(path.name for path in fleet.home.glob("trust*")) == ["trust.json", "trust.json.lock"]


# -- init --------------------------------------------------------------------------------------------------------------


def answer_on_terminal(fleet: Fleet, *arguments: object, answer: str) -> str:
    """What a command prints on a terminal where a person types `answer`."""
    reading, terminal = pty.openpty()
    process = fleet.start(
        *arguments, env={"TERM": "xterm"}, stdin=terminal, stdout=terminal, stderr=terminal, session=True
    )
    os.close(terminal)
    os.write(reading, answer.encode())
    told = b""
    try:
        while block := os.read(reading, 4096):
            told += block
    except OSError:  # Linux says so when the other side is closed
        pass
    os.close(reading)
    assert process.wait(timeout=60) in (0, 1)
    return told.decode()


# -- while a supervisor runs -------------------------------------------------------------------------------------------


def waiting_agent(fleet: Fleet, name: str) -> str:
    return fleet.add_scenario({"touch": str(fleet.root / f"{name}.in")}, {"wait_for": str(fleet.root / f"{name}.go")})


def is_in(fleet: Fleet, name: str) -> bool:
    return (fleet.root / f"{name}.in").exists()


def config_events(fleet: Fleet) -> list[dict[str, Any]]:
    return [event for event in fleet.events() if event["kind"].startswith("config.")]


def test_a_running_supervisor_takes_changes_over(fleet: Fleet) -> None:
    """Config, hot reload: from one agent to two while it runs; a file with a mistake changes nothing, told once."""
    file = user_file(fleet, "agents = 1\n")
    supervisor = fleet.up()
    tasks = {name: waiting_agent(fleet, name) for name in "abcde"}
    wait_until(lambda: is_in(fleet, "a"), "the first agent works")
    assert config_events(fleet) == []
    user_file(fleet, "agents = 2\nlost.max = 7\n")
    wait_until(lambda: is_in(fleet, "b"), "a second agent works beside it")
    assert not (fleet.root / "a.go").exists()
    told = config_events(fleet)
    assert [event["kind"] for event in told] == ["config.reloaded"]
    assert told[0]["data"]["changes"] == {"agents": "1 → 2", "lost.max": "5 → 7"}

    user_file(fleet, "agents = 4\nagnts = 4\n")
    rejected = wait_until(lambda: config_events(fleet)[1:], "the mistake was told")
    assert (rejected[0]["kind"], rejected[0]["level"]) == ("config.rejected", "warning")
    assert f"{file}:2: there is no setting 'agnts'" in rejected[0]["message"]
    fleet.cli("cancel", tasks["b"])
    wait_until(lambda: is_in(fleet, "c"), "another agent works in its place, so the supervisor has looked again")
    assert len(config_events(fleet)) == 2  # the same mistake is told once
    supervisor.send_signal(signal.SIGHUP)  # asked again: told again, and still two at once
    wait_until(lambda: len(config_events(fleet)) == 3, "SIGHUP makes it look at once")
    assert [fleet.show(tasks[name])["state"] for name in "acde"] == ["running", "running", "queued", "queued"]
    wait_until(lambda: fleet.log().count("there is no setting 'agnts'") == 2, "the log has both")

    file.unlink()  # back to the default: four
    supervisor.send_signal(signal.SIGHUP)
    wait_until(lambda: is_in(fleet, "d") and is_in(fleet, "e"), "two more agents work")
    user_file(fleet, "agents = 1\n")
    supervisor.send_signal(signal.SIGHUP)
    wait_until(
        lambda: any(event["data"].get("changes") == {"agents": "4 → 1"} for event in config_events(fleet)),
        "taken over; the signal may find nothing new, where the file was noticed before it",
    )
    more = waiting_agent(fleet, "f")
    for name in "acd":
        (fleet.root / f"{name}.go").touch()
        fleet.wait_state(tasks[name], "completed")  # those at work finish,
    assert fleet.show(more)["state"] == "queued"  # and nobody starts beside the last
    (fleet.root / "e.go").touch()
    (fleet.root / "f.go").touch()
    fleet.wait_state(more, "completed")
    assert lives(supervisor.pid)


def test_an_interval_without_a_pause_is_refused(fleet: Fleet) -> None:
    """A supervisor that looks at its runs every 0 s does nothing else. It does not start so, and does not become so."""
    fleet.up()
    file = user_file(fleet, 'monitor.every = "0s"\n')
    [rejected] = wait_until(lambda: config_events(fleet), "the mistake was told")
    told = f"{file}:1: monitor.every: '0s' is not at least 100ms and at most 1h"
    assert rejected["kind"] == "config.rejected"
    assert told in rejected["message"]
    fleet.cli("down")
    assert told in refused(fleet, "up", "--idle-exit", "0s", code=2)
    file.unlink()
    line = refused(fleet, "up", "--idle-exit", "0s", code=2, env={"HOLDFAST_CHECKPOINT_EVERY": "1ms"})
    assert "HOLDFAST_CHECKPOINT_EVERY in the environment" in line
    assert "checkpoint.every: '1ms' is not 0s, or at least 100ms" in line


def test_flags_and_variables_stay_above_a_changed_file(fleet: Fleet) -> None:
    user_file(fleet, "agents = 2\n")
    supervisor = fleet.up("--agents", 1, env={"HOLDFAST_RUNS_MAX": "3"})
    waiting_agent(fleet, "a")
    waiting_agent(fleet, "b")
    wait_until(lambda: is_in(fleet, "a") or is_in(fleet, "b"), "one works")
    user_file(fleet, "agents = 4\nruns.max = 9\nretry.max = 1\nworkspace.strategy = 'none'\n")
    supervisor.send_signal(signal.SIGHUP)
    told = wait_until(lambda: config_events(fleet), "it was read")
    assert told[0]["data"]["changes"] == {"retry.max": "3 → 1"}
    supervisor.send_signal(signal.SIGHUP)
    told = wait_until(lambda: config_events(fleet)[1:], "it was read again")
    assert "no changes apply" in told[0]["message"]
    assert is_in(fleet, "a") != is_in(fleet, "b")
    (fleet.root / "a.go").touch()
    (fleet.root / "b.go").touch()


def test_changed_budgets_hold_for_the_next_ending(fleet: Fleet) -> None:
    """The budgets are read when a run ends, so a changed one holds for a task that was added before."""
    user_file(fleet, "crash.max_in_window = 3\n")
    supervisor = fleet.up()
    task_id = fleet.add_scenario(
        {"touch": str(fleet.root / "a.in")}, {"wait_for": str(fleet.root / "a.go")}, {"crash": "SIGKILL"}
    )
    wait_until(lambda: is_in(fleet, "a"), "it works")
    user_file(fleet, "crash.max_in_window = 1\n")
    supervisor.send_signal(signal.SIGHUP)
    wait_until(lambda: config_events(fleet), "taken over")
    (fleet.root / "a.go").touch()
    task = fleet.wait_state(task_id, "failed")
    assert (task["failure_reason"], len(task["runs"])) == ("crash_loop", 1)


@pytest.mark.parametrize("nohup", [False, True])
def test_the_supervisor_goes_with_its_terminal(fleet: Fleet, nohup: bool) -> None:
    """SIGHUP from a terminal that is gone is its farewell: agents get their grace, tasks stay. Not so with nohup."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(fleet.root)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        os.execve(sys.executable, [sys.executable, "-m", "holdfast", "up"], fleet.env)
    try:
        wait_until(lambda: fleet.supervisor_pid() == pid, "it is registered")
        task_id = waiting_agent(fleet, "a")
        wait_until(lambda: is_in(fleet, "a"), "it works")
        os.kill(pid, signal.SIGHUP)  # its terminal is there: only a look at the settings
        wait_until(lambda: config_events(fleet), "the settings were read")
        assert fleet.show(task_id)["state"] == "running"
        os.close(terminal)
        if nohup:
            wait_until(lambda: len(config_events(fleet)) == 2, "the farewell of the terminal is a look, too")
            assert fleet.show(task_id)["state"] == "running"
            (fleet.root / "a.go").touch()
            fleet.wait_state(task_id, "completed")
            assert lives(pid)
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not lives(pid), "it has ended")
    finally:
        if lives(pid):
            os.kill(pid, signal.SIGTERM)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in (0, 120)  # in good order; 120 is Python's word for "and my terminal took no more output"
    assert fleet.show(task_id)["state"] == ("completed" if nohup else "queued")
    assert any(event["kind"] == "host.stopped" for event in fleet.events())


def test_reading_commands_do_not_pay_for_settings(fleet: Fleet) -> None:
    """Cold start: neither the help nor the list of tasks imports the settings."""
    fleet.add("x", command=("true",))
    for arguments in (["--help"], ["ps", "--json"]):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "holdfast", *arguments],
            env=fleet.env,
            capture_output=True,
            text=True,
            check=True,
        )
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "holdfast.cli.main" in imported
        assert {name for name in imported if name.startswith("holdfast.config") or name == "tomllib"} == set()


OWN_NAME = "HOLDFAST_FAULT_TRACE is a variable of Holdfast itself"
OWN_PATTERN = "'HOLDFAST_*' means variables of Holdfast itself"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('[env]\nset = { HOLDFAST_FAULT_TRACE = "/tmp/x" }\n', f"env.set: {OWN_NAME}"),
        ('[env.set]\nHOLDFAST_FAULT_TRACE = "/tmp/x"\n', f"env.set: {OWN_NAME}"),
        ('[env]\npass = ["HOLDFAST_*"]\n', f"env.pass: {OWN_PATTERN}"),
        ('[accounts.claude.work]\nenv = { HOLDFAST_FAULT_TRACE = "/tmp/x" }\n', OWN_NAME),
    ],
)
def test_no_file_gives_agents_a_variable_of_holdfast(fleet: Fleet, table: str, why: str) -> None:
    """The user's file and a trusted repository's file are refused with the line, and nothing is queued."""
    own = user_file(fleet, table)
    said = refused(fleet, "add", "x", "--", "true", code=2)
    assert str(own) in said
    assert why in said
    own.unlink()
    if "accounts" not in table:
        path = repo_file(fleet, table)
        said = refused(fleet, "add", "x", "--", "true", code=2)
        assert str(path) in said
        assert why in said
    assert not fleet.home.exists() or fleet.json("ps", "--all") == []


def test_the_environment_cannot_give_agents_a_variable_of_holdfast_either(fleet: Fleet) -> None:
    said = refused(fleet, "add", "x", "--", "true", code=2, env={"HOLDFAST_ENV_SET": "HOLDFAST_FAULT_TRACE=/tmp/x"})
    assert OWN_NAME in said
    said = refused(fleet, "add", "x", "--", "true", code=2, env={"HOLDFAST_ENV_PASS": "HOME HOLDFAST_*"})
    assert OWN_PATTERN in said


def test_a_pattern_for_everything_passes_no_variable_of_the_supervisor(fleet: Fleet) -> None:
    """What an agent has of HOLDFAST_… is what Holdfast gives to it, and none of the supervisor's settings."""
    user_file(fleet, '[env]\npass = ["*"]\n')
    seen = fleet.root / "seen"
    task_id = fleet.add("look", "--workspace", "none", command=("sh", "-c", f"env > {seen}"))
    supervisor = fleet.up("--idle-exit", "0s", env={"HOLDFAST_LOST_MAX": "1", "HOLDFAST_FAULT": "a.b", "MINE": "yes"})
    assert supervisor.wait(timeout=60) == 0, fleet.log()
    fleet.wait_state(task_id, "completed")
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert "MINE" in names
    assert {name for name in names if name.startswith("HOLDFAST_")} == {
        "HOLDFAST_RUN_ID",
        "HOLDFAST_TASK_ID",
        "HOLDFAST_RUN_DIR",
        "HOLDFAST_CHANNEL",
        "HOLDFAST_RUN_NUMBER",
        "HOLDFAST_RUN_TOKEN",
        "HOLDFAST_HOME",
    }


def test_the_ssh_agent_reaches_agents_unless_its_variable_is_emptied(fleet: Fleet) -> None:
    """What docs/howto/what-an-agent-sees.md says about SSH_AUTH_SOCK, both ways."""
    look = ("sh", "-c", 'printf "%s" "${SSH_AUTH_SOCK-unset}" > sock.txt')
    first = fleet.add("with it", command=look)
    user_file(fleet, 'env.set = { SSH_AUTH_SOCK = "" }\n')
    second = fleet.add("without it", command=look)
    supervisor = fleet.up("--idle-exit", "0s", env={"SSH_AUTH_SOCK": "/run/user/1/agent"})
    assert supervisor.wait(timeout=60) == 0, fleet.log()
    assert fleet.file_on_branch(f"holdfast/{first}", "sock.txt") == "/run/user/1/agent"
    assert fleet.file_on_branch(f"holdfast/{second}", "sock.txt") == ""
