"""Tables of schedules: every mistake on its line, in a person's words; shown; from a repository only once trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from holdfast.base.errors import UsageError
from holdfast.config import trust
from holdfast.config.layers import load, load_valid_values
from holdfast.config.problems import ConfigError
from holdfast.config.read_file import read_settings_file
from holdfast.config.report import report_settings
from holdfast.config.schedule_files import read_schedule_files
from holdfast.config.tables.schedule_keys import KEYS, MEANINGS, NOT_OF_A_SCHEDULE, TASK_KEYS
from holdfast.config.tables.schedules import schedules_to_show, to_table, trust_lines, trust_values
from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule
from holdfast.core.tasks.task_lists import NAMES
from holdfast.intake import repository, scheduled_task
from holdfast.intake.new_task import NewTask

GOOD = """\
[[schedule]]
name = "nightly"
repo = "{repo}"
cron = "0  2 * * *"
timezone = "Europe/Berlin"
workflow = "review-swarm"
prompt = "Look for mistakes."
agent = "claude"
model = "opus"
base = "main@{{1 day ago}}"
ref = "main"
labels = {{ area = "web" }}
priority = -3
timeout = "20m"
overlap = "queue"
misfire = "all"
max_catch_up = 3
jitter = "5m"
enabled = false

[[schedule]]
name = "ticks"
repo = "{repo}/sub"
cron = "*/10 * * * * *"
prompt = "Tick."

[schedule.labels]
area = "docs"
"""

HEAD = "[[schedule]]\nname = 'a'\nrepo = '/r'\ncron = '0 2 * * *'\nprompt = 'p'\n"
MISTAKES = {
    "no list": ("schedule = 3\n", 1, "'schedule' is a list of schedules", "[[schedule]]"),
    "one table": ("[schedule]\nname = 'a'\n", 1, "'schedule' is a list of schedules", "[[schedule]]"),
    "many": ("[[schedules]]\nname = 'a'\n", 1, "there is no section 'schedules'", "did you mean [[schedule]]?"),
    "no name": ("[[schedule]]\nrepo = '/r'\ncron = '* * * * *'\nprompt = 'p'\n", 1, "a schedule needs a name", ""),
    "an odd name": (HEAD.replace("'a'", "'a b'"), 2, "'a b' cannot be the name of a schedule", "letters, digits"),
    "a long name": (HEAD.replace("'a'", f"'{'a' * 65}'"), 2, "cannot be the name of a schedule", "at most 64"),
    "the same name": (HEAD + HEAD, 7, "there is a schedule 'a' for /r above already", ""),
    "no such key": (HEAD + "timezoen = 'UTC'\n", 6, "there is no setting 'schedule.timezoen'", "'schedule.timezone'?"),
    "no repository": (HEAD.replace("repo = '/r'\n", ""), 1, "needs the repository", "schedule.repo is missing"),
    "half a path": (HEAD.replace("/r", "src/app"), 3, "'src/app' is not a whole path", "/ or ~"),
    "no times": (HEAD.replace("cron = '0 2 * * *'\n", ""), 1, "needs its times", "schedule.cron is missing"),
    "nothing to do": (HEAD.replace("prompt = 'p'\n", ""), 1, "a prompt, or a workflow", "schedule.prompt is missing"),
    "an empty prompt": (HEAD.replace("'p'", "'  '"), 5, "schedule.prompt: it is empty", ""),
    "four fields": (HEAD.replace("0 2 * * *", "0 2 * *"), 4, "has 4 fields; five are expected", "seconds first"),
    "an hour too late": (HEAD.replace("0 2 * * *", "0 25 * * *"), 4, "its hour '25' cannot be read", "0 to 23"),
    "seconds": (HEAD.replace("0 2 * * *", "61 0 2 * * *"), 4, "its second '61' cannot be read", "0 to 59"),
    "a minute of six": (HEAD.replace("0 2 * * *", "1 x 2 * * *"), 4, "its minute 'x' cannot be read", ""),
    "no such day": (HEAD.replace("0 2 * * *", "0 2 31 2 *"), 4, "its day of month '31' cannot be", "that has it"),
    "a weekday": (HEAD.replace("0 2 * * *", "0 2 * * FOO"), 4, "its day of week 'FOO' cannot be read", "SUN to SAT"),
    "an alias": (HEAD.replace("0 2 * * *", "@daily"), 4, "write '@daily' as", '"0 0 * * *"'),
    "cron is a number": (HEAD.replace("'0 2 * * *'", "5"), 4, "schedule.cron: it is not text", "in quotes"),
    "endless cron": (HEAD.replace("0 2", "1," * 150 + "0 2"), 4, "characters, but at most 200 are allowed", ""),
    "a zone": (HEAD + "timezone = 'Europe/Berlni'\n", 6, "there is no time zone 'Europe/Berlni'", "'Europe/Berlin'?"),
    "a city": (HEAD + "timezone = 'new york'\n", 6, "there is no time zone 'new york'", "'America/New_York'?"),
    "a way out": (HEAD + "timezone = '../../etc/passwd'\n", 6, "there is no time zone", ""),
    "a folder of zones": (HEAD + "timezone = 'Europe'\n", 6, "there is no time zone 'Europe'", ""),
    "overlap": (HEAD + "overlap = 'skipp'\n", 6, "'skipp' is not one of skip, queue, replace", "did you mean 'skip'?"),
    "misfire": (HEAD + "misfire = 'every'\n", 6, "'every' is not one of last, skip, all", ""),
    "catch up": (HEAD + "max_catch_up = 100000\n", 6, "more than 1000 tasks at once", ""),
    "jitter": (HEAD + "jitter = '3d'\n", 6, "more than a day", ""),
    "no unit": (HEAD + "timeout = 30\n", 6, "schedule.timeout: '30' is not a duration", "with a unit"),
    "no time": (HEAD + "timeout = '0s'\n", 6, "it must be longer than 0", ""),
    "its own label": (HEAD + "labels = { schedule = 'x' }\n", 6, "is set by Holdfast", ""),
    "labels": (HEAD + "labels = { a = 1 }\n", 6, "the value of 'a' is not a short text", ""),
    "an agent": (HEAD + "agent = 'cluade'\n", 6, "there is no agent 'cluade'", "did you mean 'claude'?"),
    "enabled": (HEAD + "enabled = 'yes'\n", 6, "neither true nor false", ""),
    "priority": (HEAD + "priority = 1.5\n", 6, "'1.5' is not a whole number", ""),
    "permission": (HEAD + "permission = 'raed'\n", 6, "'raed' is not one of read, edit, full", "did you mean 'read'?"),
    "a budget": (HEAD + "budget_usd = 'five'\n", 6, "'five' is not an amount of dollars", "like 5 or 0.25"),
    "no budget": (HEAD + "budget_usd = 0\n", 6, "it must be more than 0", ""),
    "tries": (HEAD + "tries = 0\n", 6, "schedule.tries: '0' is not a whole number of at least 1", ""),
    "a gate": (HEAD + "gate = true\n", 6, "the gate of the settings is used anyway", "or write a command"),
    "a workspace": (HEAD + "workspace = 'worktre'\n", 6, "'worktre' is not one of", "did you mean 'worktree'?"),
    "a command": (HEAD + "command = 'x'\n", 6, "it is not a command as a list of words", ""),
    "two agents": (HEAD + "agent = 'claude'\ncommand = ['x']\n", 7, "the agent 'claude' takes no command", ""),
    "no delay": (HEAD + "delay = '5m'\n", 6, "a schedule has no `delay`", "`jitter` makes a start later"),
    "no limits": (HEAD + "limits = { memory = '4GB' }\n", 6, "a schedule has no `limits`", "in the settings"),
    "too many": ("[[schedule]]\n" * 257, 1, "there are 257 schedules, but at most 256 are allowed", ""),
}


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("HOLDFAST_CONFIG", str(path))
    return path


def test_what_is_written_is_what_holds(user_file: Path, tmp_path: Path) -> None:
    """R-CRON-01: all keys; a folder of the checkout means the checkout; `config show` has them with their origin."""
    repo = tmp_path / "repo"
    (repo / "sub").mkdir(parents=True)
    (repo / ".git").mkdir()
    user_file.write_text(GOOD.format(repo=repo))
    nightly, ticks = load().schedules
    assert nightly == Schedule(
        name="nightly",
        repo=str(repo),
        cron="0 2 * * *",
        zone="Europe/Berlin",
        task={
            "prompt": "Look for mistakes.",
            "workflow": "review-swarm",
            "agent": "claude",
            "model": "opus",
            "base": "main@{1 day ago}",
            "ref": "main",
            "labels": {"area": "web"},
            "priority": -3,
            "timeout": 1200.0,
        },
        overlap=Overlap.QUEUE,
        misfire=Misfire.ALL,
        most=3,
        jitter=300.0,
        enabled=False,
    )
    task = {"prompt": "Tick.", "labels": {"area": "docs"}}
    assert ticks == Schedule(name="ticks", repo=str(repo), cron="*/10 * * * * *", task=task)
    assert (nightly.place, ticks.place) == (f"{user_file}:1", f"{user_file}:21")
    shown = {key: (value, origin) for key, value, origin in schedules_to_show(load().schedules)}
    assert shown["schedule.nightly.timeout"] == ("20m", f"{user_file}:1")
    assert shown["schedule.ticks.timezone"] == ("UTC", f"{user_file}:21")


@pytest.mark.parametrize("what", MISTAKES)
def test_every_mistake_is_told_on_its_line(what: str, user_file: Path) -> None:
    """R-CRON-01: in a person's words, with what was probably meant."""
    text, line, says, besides = MISTAKES[what]
    user_file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load()
    problem = refused.value.problems[0]
    assert says in problem.text
    assert besides in problem.text
    assert problem.line == line
    assert len(problem.text) < 400


def test_all_mistakes_at_once(user_file: Path) -> None:
    user_file.write_text("[[schedule]]\nname = 'a b'\ncron = '99 * * * *'\noverlap = 'no'\n" + HEAD + "jitter = 1\n")
    found = read_settings_file(str(user_file), of_repository=False)
    assert [problem.line for problem in found.problems] == [2, 3, 4, 1, 1, 10]
    assert found.schedules == ()


def test_a_repositorys_schedules_hold_only_for_it_and_once_trusted(user_file: Path, tmp_path: Path) -> None:
    """R-CRON-01: a clone's file starts no agents by itself; any change of a word asks again; and tasks that
    are added by hand are not refused for it."""
    home, repo = str(tmp_path / "home"), tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    file = repo / "holdfast.toml"
    own = HEAD.replace("repo = '/r'\n", "")
    user_file.write_text("")
    file.write_text(own)
    found = report_settings(str(repo), home)
    assert found.config.schedules == ()
    assert "has the schedule a whose current text is not trusted" in found.warnings[0]
    load(str(repo), home=home)
    layer = read_settings_file(str(file), of_repository=True)
    assert layer.schedules[0].repo == str(repo)
    trust.record_trust(home, str(repo), {}, by="me", at=1.0, schedules=trust_values(layer.schedules))
    found = report_settings(str(repo), home)
    assert [schedule.name for schedule in found.config.schedules] == ["a"]
    assert not found.warnings
    file.write_text(own.replace("'p'", "'q'"))
    assert report_settings(str(repo), home).config.schedules == ()
    file.write_text(HEAD)
    problems = report_settings(str(repo), home).problems
    assert [problem.line for problem in problems] == [3]
    assert "is for that repository; leave `repo` out" in problems[0].text


def test_a_workflow_that_is_not_there_is_warned_of(user_file: Path, tmp_path: Path) -> None:
    """R-CRON-01: before its time comes, which may be at night. The repository's own workflows count."""
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (repo / "holdfast.toml").write_text("[[workflow.own.stage]]\nname = 's'\nprompt = 'p'\n")
    for name, warned in {"review-swarm": 0, "own": 0, "review-swram": 1}.items():
        user_file.write_text(HEAD.replace("/r", str(repo)) + f"workflow = '{name}'\n")
        warnings = [text for text in report_settings(None, str(tmp_path / "home")).warnings if "workflow" in text]
        assert len(warnings) == warned, name
    assert f"{user_file}:1: the schedule a names a workflow 'review-swram' that does not exist" in warnings[0]
    assert "did you mean 'review-swarm'? It would be refused." in warnings[0]


def test_a_link_to_a_place_that_cannot_be_stored_is_refused(user_file: Path, tmp_path: Path) -> None:
    """R-CRON-01: with its line, before a supervisor stumbles over it."""
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    os.symlink(odd, tmp_path / "link")
    user_file.write_text(HEAD.replace("/r", str(tmp_path / "link")))
    (problem,) = report_settings(None, str(tmp_path / "home")).problems
    assert "leads to a directory whose name is not UTF-8" in problem.text


def test_a_repository_that_is_not_there_is_told_from_one_without_schedules(user_file: Path, tmp_path: Path) -> None:
    """R-CRON-03: a disk that is not mounted must not end what was due."""
    there, gone = tmp_path / "there", tmp_path / "gone"
    there.mkdir()
    found = read_schedule_files(str(tmp_path / "home"), [str(there), str(gone)])
    assert found.absent == [str(gone / "holdfast.toml")]
    assert set(found.schedules) == {str(user_file), str(there / "holdfast.toml")}


@pytest.mark.parametrize("more", ["", "gate = false\n", 'gate = "make test"\n'])
def test_the_plain_form_reads_back(user_file: Path, tmp_path: Path, more: str) -> None:
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    user_file.write_text(GOOD.format(repo=repo).replace("cron =", f"{more}cron =", 1))
    for schedule in load().schedules:
        from holdfast.config.tables.schedules import read_schedules

        (again,) = read_schedules([to_table(schedule)], "f", {}, lambda key, text: pytest.fail(f"{key}: {text}"))
        assert again == schedule


def test_commands_that_only_look_do_not_compute_with_times(user_file: Path) -> None:
    """Every command reads the user's file: a schedule in it must not cost them."""
    user_file.write_text(HEAD)
    code = (
        "import sys; from holdfast.config import load_valid_values; load_valid_values();"
        "print([name for name in ('cronsim', 'zoneinfo', 'datetime') if name in sys.modules])"
    )
    lean = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout
    without = subprocess.run(
        [sys.executable, "-c", "import sys, tomllib; print('datetime' in sys.modules)"],
        capture_output=True, text=True, check=True, timeout=30,
    ).stdout  # fmt: skip
    assert "cronsim" not in lean
    assert "zoneinfo" not in lean
    assert without.strip() == "True", "tomllib does without datetime now: look for it above too"
    assert load_valid_values().schedules == ()


ALL = """\
[[schedule]]
name = "all"
repo = "{repo}"
cron = "0 2 * * *"
prompt = "Look for mistakes."
agent = "claude"
model = "opus"
account = "work"
permission = "read"
budget_usd = 2.5
budget_tokens = 1000
max_turns = 9
gate = "make test"
tries = 4
base = "main"
ref = "next"
workspace = "clone"
preserve_on_failure = true
keep_workspace = true
labels = {{ area = "web" }}
priority = 3
timeout = "20m"
stuck_after = "5m"
startup_timeout = "2m"
on_stuck = "notify"
max_resumes = 0
"""


def test_each_option_of_a_task_is_a_key_of_a_schedule_or_is_refused_with_the_reason() -> None:
    """F16: a new option of tasks has to be decided on here, too."""
    options = {field.name for field in fields(NewTask)} | NAMES
    assert sorted(options - set(TASK_KEYS)) == sorted(NOT_OF_A_SCHEDULE)
    assert set(TASK_KEYS) <= options
    assert set(MEANINGS) == set(KEYS)


def test_each_option_reaches_the_task(user_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of a schedule has the value of every key, even after the schedule was stored."""
    user_file.write_text(ALL.format(repo=tmp_path))
    [schedule] = load().schedules
    assert set(TASK_KEYS) - set(schedule.task) == {"workflow", "command"}
    found: list[NewTask] = []
    monkeypatch.setattr(scheduled_task, "resolve_task", lambda _home, new, *_rest: found.append(new))
    monkeypatch.setattr(repository, "locate_fast", lambda _repo: (str(tmp_path), str(tmp_path)))
    for task in ({}, {"workflow": "review-swarm"}, {"command": ["my-agent", "-x"]}):
        stored = json.loads(json.dumps(dict(schedule.task) | task))
        scheduled_task.resolve_scheduled_task("/home", replace(schedule, task=stored), 0.0)
        new = asdict(found.pop())
        assert {key: new[key] for key in stored if key != "labels"} == {
            key: value for key, value in stored.items() if key != "labels"
        }
        assert new["labels"] == {"area": "web", "schedule": "all"}
    for key, damaged in (("permission", 3), ("budget_usd", "5"), ("sudo", "yes"), ("labels", [])):
        with pytest.raises(UsageError, match=f"a value for '{key}' that cannot be used"):
            scheduled_task.resolve_scheduled_task("/home", replace(schedule, task={key: damaged}), 0.0)


def test_trust_covers_every_key(tmp_path: Path) -> None:
    """A repository's schedule runs nothing until a person has seen its account, permission, gate and budget."""
    path = tmp_path / "holdfast.toml"
    path.write_text(ALL.replace('repo = "{repo}"\n', "").format())
    layer = read_settings_file(str(path), of_repository=True)
    assert not layer.problems
    [table] = trust_values(layer.schedules).values()
    assert set(TASK_KEYS) - set(table) == {"workflow", "command"}
    [line] = trust_lines(layer.schedules)
    for shown in (
        'account = "work"',
        'permission = "read"',
        'gate = "make test"',
        "budget_usd = 2.5",
        'timeout = "20m"',
    ):
        assert shown in line
