"""A task that an agent adds can do no more than the agent: for every setting and for every option of `add`.

Red team R4: gates, variables that are settings, and lists got an agent with permission `read` everything else.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.clis import install
from tests.fleet import Fleet

from holdfast.api.commands import Commands
from holdfast.api.tasks import subtasks
from holdfast.api.tasks.task_lists import ListIntake, read_list
from holdfast.base.errors import Refused
from holdfast.cli.commands import add as add_command
from holdfast.cli.main import _parse, build_parser
from holdfast.client.models import TaskChanges, TaskOptions
from holdfast.config import SETTINGS, variable_name
from holdfast.config.settings import Setting
from holdfast.config.values import OneOf
from holdfast.core.model import TaskSpec
from holdfast.core.task_settings import GIB, MIB
from holdfast.intake import resolve
from holdfast.intake.new_task import NewTask
from holdfast.processes.caller import Caller
from holdfast.processes.supervisor_facts import record_surroundings

USERS = """
subtasks.max = 1000
permissions.allow = ["make test"]
[budget.labels."team=a"]
day_usd = 5
[[workflow.loose.stage]]
name = "one"
[[workflow.loose.stage]]
name = "two"
permission = "edit"
[[workflow.commands.stage]]
name = "one"
apart = true
members = [{ name = "a" }, { name = "b", command = ["id"] }]
"""
TIGHT = {
    "permission": "read",
    "timeout": 60.0,
    "budget_usd": 1.0,
    "budget_tokens": 1000,
    "max_turns": 3,
    "max_resumes": 1,
    "stuck_after": 10.0,
    "startup_timeout": 10.0,
    "labels": {"team": "a", "area": "x"},
    "limits": {"memory": GIB, "processes": 100, "cpu_weight": 50, "output": MIB},
}


class Inside:
    """The command line as a process inside a run of a claude task sees it, in this process."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        fleet.env["PATH"] = install(fleet.root / "bin", "claude", "codex")
        path = Path(fleet.env["HOLDFAST_CONFIG"]) if "HOLDFAST_CONFIG" in fleet.env else fleet.root / "config.toml"
        path.write_text(USERS)
        fleet.env["HOLDFAST_CONFIG"] = str(path)
        (fleet.home).mkdir(mode=0o700, exist_ok=True)
        record_surroundings(str(fleet.home), str(path))  # as `up` does
        self.own = self._add_own(TIGHT)

    def _add_own(self, options: Mapping[str, object]) -> TaskSpec:
        with self.fleet.as_its_user():
            new = NewTask(prompt="own", directory=str(self.fleet.repo), agent="claude")
            return Commands(str(self.fleet.home)).add(replace(new, **options)).spec  # type: ignore[arg-type]

    def become(self, permission: str, **options: object) -> None:
        """Let the own task be another one."""
        self.own = self._add_own({**TIGHT, "permission": permission, **options})

    def add(self, *words: str, env: Mapping[str, str] | None = None, inside: bool = True) -> tuple[TaskSpec, list[str]]:
        """Add a task as the command line does. Return it, and the notes for the caller."""
        with self.caller(env or {}, inside=inside):
            typed = ["x", "--agent", "claude", "--permission", "read", *words]
            arguments, command = _parse(build_parser("add"), "add", typed)
            arguments.command = command
            commands = Commands(str(self.fleet.home))
            spec = commands.add(add_command._new_task(arguments)).spec
            return spec, list(commands.notes)

    @contextlib.contextmanager
    def caller(self, env: Mapping[str, str], *, inside: bool) -> Iterator[None]:
        found = Caller(self.own.id) if inside else None
        with self.fleet.as_its_user(), pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.fleet.repo)
            for name, value in env.items():
                patch.setenv(name, value)
            for module in (resolve, subtasks):
                patch.setattr(module, "find_caller", lambda _home: found)
            yield


@pytest.fixture
def inside(fleet: Fleet) -> Inside:
    return Inside(fleet)


# -- settings ----------------------------------------------------------------------------------------------------------

TRIED = (
    *("true", "false", "7", "77", "777", "90s", "2h", "forever", "3GiB", "env:X", "A=b", "word", "failed", "http://x"),
    *("ntfy://x", "make test"),
)


def other_value(key: str, setting: Setting) -> str:
    """Return the text of a value other than the default."""
    if key in ("agent", "container.image"):
        return "codex"
    if key.endswith(".args"):
        return "--effort high"
    tried = setting.parse.choices if isinstance(setting.parse, OneOf) else TRIED
    for text in tried:
        try:
            if setting.read(text) != setting.default:
                return text
        except ValueError:
            continue
    raise AssertionError(f"{key}: add a value to TRIED")


def test_no_variable_is_a_setting_inside_a_run(inside: Inside) -> None:
    """Each setting is tried. For a person, the same variables change tasks."""
    plain = replace(inside.add()[0], id="")
    persons, counting = replace(inside.add(inside=False)[0], id=""), set()
    for key, setting in SETTINGS.items():
        env = {variable_name(key): other_value(key, setting)}
        spec, notes = inside.add(env=env)
        assert replace(spec, id="") == plain, key
        assert any(f"{variable_name(key)} has no effect" in note for note in notes), key
    for key in ("env.pass", "workspace.setup", "claude.args", "health.max_runtime", "limits.memory"):
        if (
            replace(inside.add(env={variable_name(key): other_value(key, SETTINGS[key])}, inside=False)[0], id="")
            != persons
        ):
            counting.add(key)
    assert len(counting) == 5, "the test itself would see a difference"


def test_the_settings_are_those_of_the_supervisor(inside: Inside, tmp_path: Path) -> None:
    """An agent cannot name another file of settings, nor another directory in which to look for it."""
    other = tmp_path / "x" / "holdfast" / "config.toml"
    other.parent.mkdir(parents=True)
    other.write_text('claude.args = ["--evil"]\nworkspace.setup = ["id"]\n')
    plain = replace(inside.add()[0], id="")
    for env in ({"HOLDFAST_CONFIG": str(other)}, {"XDG_CONFIG_HOME": str(tmp_path / "x"), "HOLDFAST_CONFIG": ""}):
        assert replace(inside.add(env=env)[0], id="") == plain
    (inside.fleet.home / "supervisor.json").unlink()
    for env in ({"HOLDFAST_CONFIG": str(other)}, {"XDG_CONFIG_HOME": str(tmp_path / "x"), "HOLDFAST_CONFIG": ""}):
        assert inside.add(env=env)[0].workspace.setup == ()


def test_the_variable_of_a_sandbox_is_no_setting_either(inside: Inside) -> None:
    assert "sandbox" not in inside.add(env={"IS_SANDBOX": "1"})[0].agent_options


# -- options -----------------------------------------------------------------------------------------------------------

Check = Callable[[TaskSpec], object]
REFUSED = "refused"

# Each option of `add`: words that ask for more, and what becomes of them. A text that is not REFUSED: why the option
# cannot loosen anything.
OPTIONS: dict[str, tuple[list[str], str | Check]] = {
    "gate": (["--gate", "id"], REFUSED),
    "tries": (["--tries", "99"], REFUSED),
    "account": (["--account", "default"], REFUSED),
    "command": (["--", "id"], REFUSED),
    "scenario": (["--scenario", "{scenario}"], REFUSED),
    "permission": (["--permission", "edit"], REFUSED),
    "workspace": (["--workspace", "none"], REFUSED),
    "workflow": (["--workflow", "loose"], REFUSED),
    "parent": (["--parent", "none"], REFUSED),
    "repo": (["--repo", "{other}"], REFUSED),
    "timeout": (["--timeout", "9h"], lambda spec: spec.timeout == 60),
    "budget_usd": (["--budget-usd", "99"], lambda spec: spec.budget.usd == 1),
    "budget_tokens": (["--budget-tokens", "99999"], lambda spec: spec.budget.tokens == 1000),
    "max_turns": (["--max-turns", "99"], lambda spec: spec.agent_options["max_turns"] == 3),
    "max_resumes": (["--max-resumes", "99"], lambda spec: spec.max_resumes == 1),
    "stuck_after": (["--stuck-after", "off"], lambda spec: spec.health.stuck_after == 300),
    "startup_timeout": (["--startup-timeout", "off"], lambda spec: spec.health.startup_timeout == 300),
    "on_stuck": (["--on-stuck", "notify"], lambda spec: spec.health.on_stuck == "kill"),
    "memory": (["--memory", "99GiB"], lambda spec: spec.limits.memory == GIB),
    "processes": (["--processes", "9999"], lambda spec: spec.limits.processes == 100),
    "cpu_weight": (["--cpu-weight", "9999"], lambda spec: spec.limits.cpu_weight == 50),
    "max_output": (["--max-output", "99GiB"], lambda spec: spec.limits.output == MIB),
    "label": (["--label", "team=b"], lambda spec: spec.labels == {"team": "a"}),
    "agent": (["--agent", "codex"], lambda spec: spec.agent_options["permission"] == "read"),
    "prompt": ([], "words for an agent that may do no more"),
    "source": (["--from", "{scenario}"], "the same, from a file that the agent could quote; lists: see below"),
    "how": (["--as", "prompt", "--from", "{scenario}"], "how the file is read"),
    "dry_run": ([], "queues nothing"),
    "model": (["--model", "m"], "the budgets hold for every model"),
    "base": (["--base", "main"], "a commit of the same repository"),
    "ref": (["--ref", "main"], "likewise"),
    "delay": (["--delay", "1h"], "later"),
    "after": ([], "later"),
    "priority": (["--priority", "9"], "the order of the queue"),
    "preserve_on_failure": (["--preserve-on-failure"], "keeps files that a person deletes"),
    "keep_workspace": (["--keep-workspace"], "likewise"),
    "json": (["--json"], "the output of the command"),
}
# Fields of NewTask that are not options of the command line, or have another name there.
NOT_OPTIONS = {"directory": "repo", "labels": "label", "limits": "memory", "schedule": "", "fire_time": ""}


def test_every_option_is_decided_on() -> None:
    """A new option of `add`, a new field of a request and a new option of the client need a line in the table."""
    options = {action.dest for action in build_parser("add")._actions} - {"help"} | {"command"}
    assert options == set(OPTIONS)
    assert {field.name for field in fields(NewTask)} - set(OPTIONS) == set(NOT_OPTIONS)
    assert set(TaskOptions.__annotations__) - set(OPTIONS) == {"labels"}


@pytest.fixture
def places(inside: Inside) -> dict[str, str]:
    fleet = inside.fleet
    other = fleet.make_repo(fleet.root / "other")
    (other / "holdfast.toml").write_text('env.pass = ["SECRET"]\n')
    fleet.cli("trust", "--yes", cwd=other)
    scenario = fleet.scenario({"exit": 0})
    return {"{other}": str(other), "{scenario}": str(scenario)}


def test_no_option_loosens_anything(inside: Inside, places: Mapping[str, str]) -> None:
    for option, (words, becomes) in OPTIONS.items():
        typed = [places.get(word, word) for word in words]
        if becomes == REFUSED:
            with pytest.raises(Refused, match="Nothing was queued"):
                inside.add(*typed)
            continue
        if "--from" in typed:
            continue  # the test gives a prompt
        spec, _notes = inside.add(*typed)
        assert isinstance(becomes, str) or becomes(spec), (option, spec)
        assert spec.parent_id == inside.own.id
    with pytest.raises(Refused):
        inside.add("--no-gate")
    with pytest.raises(Refused, match="permission of a plain command"):
        inside.add("--workflow", "commands")


def test_without_options_the_task_has_the_caps_of_its_parent(inside: Inside) -> None:
    spec, notes = inside.add()
    assert (spec.timeout, spec.limits.memory, spec.limits.processes) == (60, GIB, 100)
    assert (spec.budget.usd, spec.budget.tokens, spec.max_resumes) == (1, 1000, 1)
    assert any("so the new task gets at most what" in note for note in notes)


def test_a_list_is_no_way_out(inside: Inside, tmp_path: Path) -> None:
    """The rule was asked for single tasks only."""
    path = tmp_path / "list.jsonl"
    path.write_text(json.dumps({"prompt": "one", "permission": "edit"}) + "\n")
    with inside.caller({}, inside=True):
        new = NewTask(prompt="x", directory=str(inside.fleet.repo), agent="claude", permission="read")
        taken = ListIntake(Commands(str(inside.fleet.home)), new).take(read_list(str(path), "jsonl"))
    assert "could do more than" in taken.problems[0].text
    assert not taken.queued


def test_an_agent_with_full_permission_still_has_its_limits(inside: Inside) -> None:
    """Such an agent runs what it wants, but under the limits of its own task."""
    inside.fleet.env["IS_SANDBOX"] = "1"  # the tests may run as root
    inside.become("full")
    spec, _notes = inside.add("--gate", "id", "--tries", "2", "--permission", "full", "--memory", "99GiB")
    assert spec.stages[0].gate == "id"
    assert (spec.limits.memory, spec.timeout, spec.stages[0].timeout) == (GIB, 60, 60)
    command, _notes = inside.add("--processes", "9999", "--", "id")
    assert command.limits.processes == 100
    assert inside.add(env={"HOLDFAST_LIMITS_MEMORY": "99GiB"})[0].limits.memory == GIB


def test_a_list_of_commands_is_that_of_the_parent(inside: Inside) -> None:
    inside.become("edit")
    assert inside.add("--permission", "edit")[0].agent_options["allow"] == ["make test"]
    path = Path(inside.fleet.env["HOLDFAST_CONFIG"])
    path.write_text(path.read_text().replace('["make test"]', '["make test", "curl"]'))
    assert inside.add("--permission", "edit")[0].agent_options["allow"] == ["make test"]


# -- commands about subtasks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TaskChanges.__annotations__))
def test_an_agent_changes_nothing_about_a_subtask(inside: Inside, name: str) -> None:
    """`retry --permission full` of an own subtask was allowed: the list named what is refused."""
    below, _notes = inside.add()
    with inside.caller({}, inside=True):
        caller, home = Caller(inside.own.id), str(inside.fleet.home)
        for command in ("retry", "resume"):
            subtasks.refuse_agent(home, caller, command, {"id": below.id, "why": "", "force": False, name: None})
            with pytest.raises(Refused, match=f"--{name.replace('_', '-')}` is for people"):
                subtasks.refuse_agent(home, caller, command, {"id": below.id, name: 0})


def test_what_an_agent_may_ask_is_an_option_of_the_command() -> None:
    for command, options in subtasks._OF_SUBTASKS.items():
        assert options <= {action.dest for action in build_parser(command)._actions}, command
