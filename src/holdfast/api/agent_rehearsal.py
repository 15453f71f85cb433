"""Rehearsals with a real agent CLI: one run against a stub of its provider, everything thrown away afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.api.commands import Commands, NewTask
from holdfast.api.daemon import run_here
from holdfast.api.queries import Queries
from holdfast.api.rehearsal import left_behind, make_repository
from holdfast.config.settings import CLI_AGENTS, variable_of
from holdfast.errors import Unavailable, UsageError
from holdfast.roster import AGENTS
from holdfast.testing.stub import StubServer
from holdfast.testing.stub.catalogue import unknown
from holdfast.workspaces.trash import delete_tree

if TYPE_CHECKING:
    from holdfast.agents.cli import CliAgent

# Small, so that silence is called by its name within a minute. `holdfast rehearse` says that they are.
THRESHOLDS = {"stuck_after": "20s", "tool_silence": "20s", "startup_timeout": "60s", "max_runtime": "90s"}
ACCOUNT = "rehearsal"
PROMPT = "Write a file out.txt with the text: hello from agent"
_KEY = "rehearsal-no-real-key"
# Only to the login of a plan does the CLI tell when a limit ends; to a key it tells that there is one.
_PLAN_LOGINS = {"claude": "CLAUDE_CODE_OAUTH_TOKEN"}
_OF_PLANS = ("usage-limit", "warning")
_MODELS = {"claude": "", "codex": "", "gemini": "gemini-2.5-flash"}
_ANY_MODEL = "stub-model"
_PATIENCE = 300.0
_VERDICTS = {
    "task.completed": "It is done; nothing more.",
    "task.failed": "Nothing by itself: the task failed, its work is kept",
    "task.requeued": "It would run the task again",
    "task.paused": "It would wait",
    "task.cancelled": "Nothing: the task was cancelled",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsed:
    """How one run ended, and what would follow."""

    task: Mapping[str, Any]
    state: str  # of the task, once the run had ended: queued means that it would run again
    outcome: str
    seconds: float  # from the agent's start to the verdict
    reason: str
    then: str  # what Holdfast would do next
    requests: int  # to the model
    left: Sequence[str]


def rehearse_agent(agent: str, scenario: str, *, timeout: float | None) -> Rehearsed:
    adapter = _adapter(agent)
    name, *arguments = scenario.split("/")
    if problem := unknown(name, arguments):
        raise UsageError(problem)
    program = _program(agent, adapter)
    root = tempfile.mkdtemp(prefix="holdfast-rehearsal-")
    try:
        with StubServer() as stub:
            repo, home = os.path.join(root, "repo"), os.path.join(root, "home")
            make_repository(repo)
            login = _fresh_login(root, adapter, stub.url(name, *arguments), _variable(agent, adapter, scenario))
            with _settings(root, agent, program, login):
                return _one_run(home, repo, agent, timeout, stub)
    finally:
        delete_tree(root)


def _adapter(agent: str) -> CliAgent:
    known = [name for name in CLI_AGENTS if name in AGENTS]
    if agent not in known:
        raise UsageError(f"There is no agent CLI '{agent[:60]}' to rehearse with; there are {', '.join(known)}.")
    adapter: Any = AGENTS[agent]  # the real CLIs are all of this kind
    found: CliAgent = adapter
    return found


def _program(agent: str, adapter: CliAgent) -> str:
    wanted = str(config.best_effort()[f"{agent}.binary"] or adapter.binary)
    found = shutil.which(os.path.expanduser(wanted))
    if found is None:
        raise Unavailable(
            f"{adapter.title} is not installed here: there is no program '{wanted}'. Install it, or name it with "
            f"`{agent}.binary` in {config.user_file()}."
        )
    return os.path.abspath(found)


def _variable(agent: str, adapter: CliAgent, scenario: str) -> str:
    if agent in _PLAN_LOGINS and any(word in scenario for word in _OF_PLANS):
        return _PLAN_LOGINS[agent]
    return adapter.login.variables[0] if adapter.login.variables else "OPENAI_API_KEY"


def _fresh_login(root: str, adapter: CliAgent, base_url: str, variable: str) -> dict[str, Any]:
    place = os.path.join(root, "login")
    for name, text in {".keep": "", **adapter.fresh_config}.items():
        path = os.path.join(place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return {"config_dir": place, "base_url": base_url, "env": {variable: _KEY}}


@contextlib.contextmanager
def _settings(root: str, agent: str, program: str, login: Mapping[str, Any]) -> Iterator[None]:
    """The rehearsal's own settings hold in this process, and none of the user's."""
    path = os.path.join(root, "config.toml")
    tables: dict[str, Mapping[str, Any]] = {
        agent: {
            "binary": program,
            "account": ACCOUNT,
            "model": _MODELS.get(agent, _ANY_MODEL),
        },
        # The stub asks for nothing but what the scenario says, in a repository that is thrown away.
        "permissions": {"mode": "full", "sandbox": True},
        "health": {**THRESHOLDS, "adaptive_timeout": False},
        f"accounts.{agent}.{ACCOUNT}": {key: value for key, value in login.items() if key != "env"},
        f"accounts.{agent}.{ACCOUNT}.env": login["env"],
    }
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"agent = {json.dumps(agent)}\n")
        for name, table in tables.items():
            file.write(f"\n[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    before = dict(os.environ)
    for key in config.SETTINGS:
        os.environ.pop(variable_of(key), None)
    os.environ["HOLDFAST_CONFIG"] = path
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _one_run(home: str, repo: str, agent: str, timeout: float | None, stub: StubServer) -> Rehearsed:
    task = Commands(home).add(NewTask(prompt=PROMPT, directory=repo, agent=agent, timeout=timeout))
    over = threading.Event()
    watcher = threading.Thread(target=_stop_after_first_run, args=(home, task.id, over), daemon=True)
    watcher.start()
    try:
        run_here(home, agents=1, idle_exit=0.0)
    finally:
        over.set()
        watcher.join()
    queries = Queries(home)
    left, row = left_behind(home), queries.task(task.id)
    ended, verdict = _first_ending(queries, task.id) or ({}, {})
    started = next((run["started_at"] for run in row["runs"] if run["started_at"]), None)
    return Rehearsed(
        task=row,
        state={"task.requeued": "queued"}.get(verdict.get("kind", ""), verdict.get("kind", ".unknown").split(".")[1]),
        outcome=str(ended.get("data", {}).get("outcome", row["outcome"])),
        seconds=max(0.0, ended["at"] - started) if ended and started else 0.0,
        reason=str(verdict.get("reason") or row["reason"]),
        then=_then(verdict),
        requests=len(stub.requests()),
        left=left,
    )


def _stop_after_first_run(home: str, task_id: str, over: threading.Event) -> None:
    """One run is rehearsed, however often Holdfast would try again."""
    deadline = time.monotonic() + _PATIENCE
    queries = Queries(home)
    while not over.wait(0.1):
        if _first_ending(queries, task_id) or time.monotonic() > deadline:
            Commands(home, create=False).down("now")
            return


def _first_ending(queries: Queries, task_id: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The first run's end and what was decided about the task, as events; None: not yet."""
    events = queries.events(task_id=task_id)
    ended = next((event for event in events if event["kind"] == "run.ended"), None)
    decided = next((event for event in events if event["kind"] in _VERDICTS), None)
    return (ended or {}, decided) if decided else None


def _then(verdict: Mapping[str, Any]) -> str:
    from holdfast.api.show import duration

    said = _VERDICTS.get(verdict.get("kind", ""), "It is not known: the run did not end in time.")
    data = verdict.get("data", {})
    for key, words in (("resume_after", "for"), ("delay", "after")):
        if data.get(key):
            wait = data[key] - verdict["at"] if key == "resume_after" else data[key]
            said += f", {words} {duration(max(0.0, wait))}"
    return said if said.endswith(".") else f"{said}."
