"""Rehearsals: a scenario played for real (supervisor, worktree, processes) in a throw-away home and repository.

`rehearse` plays a scenario file of the scripted agent. `rehearse_agent` runs a real agent CLI once, against a stub LLM
server that plays a named scenario. Everything is deleted afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.agents.registry import AGENTS
from holdfast.api.commands import Commands, NewTask
from holdfast.api.home import doctor
from holdfast.api.home.daemon import run_here
from holdfast.api.queries import Queries
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Unavailable, UsageError
from holdfast.config.settings import variable_name
from holdfast.processes.strays import marked_processes
from holdfast.rehearsal.scenario import load
from holdfast.rehearsal.stub import StubServer
from holdfast.rehearsal.stub.address import STUB_ACCOUNTS
from holdfast.rehearsal.stub.scenarios import SCENARIOS as STUB_SCENARIOS
from holdfast.rehearsal.stub.scenarios import why_unknown
from holdfast.workspaces.git.hardening import environment
from holdfast.workspaces.removal.trash import delete_tree

if TYPE_CHECKING:
    from holdfast.agents.common.cli_agent import CliAgent
    from holdfast.api.tasks.models import JsonObject, TaskDetails


__all__ = ["STUB_SCENARIOS", "load_scenario"]


def load_scenario(path: str) -> list[JsonObject]:
    return load(path)


_FILES = {"README.md": "# Rehearsal\n", "src/app.py": 'print("hello")\n'}


def rehearse(scenario: str, *, timeout: float | None) -> tuple[TaskDetails, list[str]]:
    """Play `scenario`. Return the task as it ended, and everything that was left behind (nothing if all is well)."""
    steps = load_scenario(scenario)
    root = tempfile.mkdtemp(prefix="holdfast-rehearsal-")
    try:
        repo, home = os.path.join(root, "repo"), os.path.join(root, "home")
        make_repository(repo)
        prompt = f"Rehearse {os.path.basename(scenario)}"
        with _as_home(home):
            task = Commands(home).add(NewTask(prompt=prompt, directory=repo, scenario=steps, timeout=timeout))
            run_here(home, agents=1, idle_exit=0.0)
            return Queries(home).task(task.id), find_leftovers(home)
    finally:
        delete_tree(root)


@contextlib.contextmanager
def _as_home(home: str) -> Iterator[None]:
    """Use `home` as this process's home until the block ends, so that a rehearsal does not touch the user's home."""
    before = os.environ.get("HOLDFAST_HOME")
    os.environ["HOLDFAST_HOME"] = home
    try:
        yield
    finally:
        if before is None:
            del os.environ["HOLDFAST_HOME"]
        else:
            os.environ["HOLDFAST_HOME"] = before


def find_leftovers(home: str) -> list[str]:
    """Return the problems that `doctor` finds in the home, and the processes of its runs that still live."""
    left = [finding.text for finding in doctor.run_doctor_checks(home, with_agents=False) if finding.level == "problem"]
    return left + [f"process {pid} of run {run}" for pid, run in marked_processes(home)]


def make_repository(path: str) -> None:
    for name, text in _FILES.items():
        os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(text)
    identity = ["-c", "user.name=Rehearsal", "-c", "user.email=rehearsal@localhost"]
    for arguments in (["init", "--quiet", "-b", "main"], ["add", "."], [*identity, "commit", "--quiet", "-m", "Start"]):
        subprocess.run(["git", *arguments], cwd=path, env=environment(), check=True)


# Short, so that a silent agent is diagnosed within a minute. `holdfast rehearse` prints that they are short.
THRESHOLDS = {"stuck_after": 20.0, "tool_silence": 20.0, "startup_timeout": 60.0, "max_runtime": 90.0}
ACCOUNT = "rehearsal"
PROMPT = "Write a file out.txt with the text: hello from agent"
# A CLI reports when a limit ends only for the login of a plan. For an API key it reports only that there is a limit.
_PLAN_SCENARIOS = ("usage-limit", "warning")
_PATIENCE = 300.0
_VERDICTS = frozenset({"task.completed", "task.failed", "task.requeued", "task.paused", "task.cancelled"})


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalResult:
    """The end of one rehearsed run, and what Holdfast would do next."""

    task: Mapping[str, Any]
    state: str  # of the task after the run; queued: the task would run again
    outcome: str
    seconds: float  # from the agent's start to the verdict
    reason: str
    then: str  # what Holdfast would do next
    requests: int  # to the model
    left: Sequence[str]


def thresholds(agent: str) -> dict[str, str]:
    """Return the `health.` settings of a rehearsal. The longest time that the agent retries in silence is added to
    `stuck_after` and `max_runtime`."""
    more = {"stuck_after": _adapter(agent).longest_quiet_retry, "max_runtime": _adapter(agent).longest_quiet_retry}
    return {key: f"{seconds + more.get(key, 0.0):g}s" for key, seconds in THRESHOLDS.items()}


def rehearse_agent(agent: str, scenario: str, *, timeout: float | None) -> RehearsalResult:
    """Run a real agent CLI once against a stub that plays `scenario`. Return how the run ended."""
    adapter = _adapter(agent)
    name, *arguments = scenario.split("/")
    if problem := why_unknown(name, arguments):
        raise UsageError(problem)
    program = _program(agent, adapter)
    root = tempfile.mkdtemp(prefix="holdfast-rehearsal-")
    try:
        with StubServer() as stub:
            repo, home = os.path.join(root, "repo"), os.path.join(root, "home")
            make_repository(repo)
            login = _fresh_login(root, agent, adapter, stub.url(name, *arguments), scenario)
            with _as_home(home), _settings(root, agent, program, login):
                return _one_run(home, repo, agent, timeout, stub)
    finally:
        delete_tree(root)


def _adapter(agent: str) -> CliAgent:
    known = [name for name in STUB_ACCOUNTS if name in AGENTS]
    if agent not in known:
        raise UsageError(
            f"There is no agent CLI '{agent[:60]}' to rehearse with. The known ones are {', '.join(known)}."
        )
    adapter: Any = AGENTS[agent]  # the adapters of all real CLIs are of this type
    found: CliAgent = adapter
    return found


def _program(agent: str, adapter: CliAgent) -> str:
    wanted = str(config.load_valid_values()[f"{agent}.binary"] or adapter.binary)
    found = shutil.which(os.path.expanduser(wanted))
    if found is None:
        raise Unavailable(
            f"{adapter.title} is not installed here: there is no program '{wanted}'. Install it, or name it with "
            f"`{agent}.binary` in {config.user_file_path()}."
        )
    return os.path.abspath(found)


def _fresh_login(root: str, agent: str, adapter: CliAgent, url: str, scenario: str) -> JsonObject:
    place = os.path.join(root, "login")
    for name, text in {".keep": "", **adapter.fresh_config}.items():
        path = os.path.join(place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    stand = STUB_ACCOUNTS[agent]
    env = stand.plan if stand.plan and any(word in scenario for word in _PLAN_SCENARIOS) else stand.env
    scratch = os.path.join(root, "tmp")  # gemini, for example, leaves error reports there
    os.mkdir(scratch)
    return {"config_dir": place, "base_url": url + stand.path, "env": {**env, "TMPDIR": scratch}}


@contextlib.contextmanager
def _settings(root: str, agent: str, program: str, login: Mapping[str, Any]) -> Iterator[None]:
    """Apply the rehearsal's own settings in this process, without any of the user's, until the block ends."""
    path = os.path.join(root, "config.toml")
    tables: dict[str, Mapping[str, Any]] = {
        agent: {
            "binary": program,
            "account": ACCOUNT,
            "model": STUB_ACCOUNTS[agent].model,
        },
        # Full permissions are safe: the stub requests only what the scenario has, in a repository that is deleted.
        "permissions": {"mode": "full", "sandbox": True},
        "health": {**thresholds(agent), "adaptive_timeout": False},
        f"accounts.{agent}.{ACCOUNT}": {key: value for key, value in login.items() if key != "env"},
        f"accounts.{agent}.{ACCOUNT}.env": login["env"],
    }
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"agent = {json.dumps(agent)}\n")
        for name, table in tables.items():
            file.write(f"\n[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    before = dict(os.environ)
    for key in config.SETTINGS:
        os.environ.pop(variable_name(key), None)
    os.environ["HOLDFAST_CONFIG"] = path
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _one_run(home: str, repo: str, agent: str, timeout: float | None, stub: StubServer) -> RehearsalResult:
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
    left, row = find_leftovers(home), queries.task(task.id)
    ended, verdict = _first_ending(queries, task.id) or ({}, {})
    started = next((run["started_at"] for run in row["runs"] if run["started_at"]), None)
    return RehearsalResult(
        task=row,
        state={"task.requeued": "queued"}.get(verdict.get("kind", ""), verdict.get("kind", ".unknown").split(".")[1]),
        outcome=str(ended.get("data", {}).get("outcome", row["outcome"])),
        seconds=max(0.0, ended["at"] - started) if ended and started else 0.0,
        reason=str(verdict.get("reason") or row["reason"]),
        then=_describe_next_step(verdict),
        requests=len(stub.requests()),
        left=left,
    )


def _stop_after_first_run(home: str, task_id: str, over: threading.Event) -> None:
    """Stop the supervisor after the first run, however often Holdfast would try again."""
    deadline = time.monotonic() + _PATIENCE
    queries = Queries(home)
    while not over.wait(0.1):
        if _first_ending(queries, task_id) or time.monotonic() > deadline:
            Commands(home, create=False).down("now")
            return


def _first_ending(queries: Queries, task_id: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return the end of the first run and the decision about its task, as events. None: not decided yet."""
    events = queries.events(task_id=task_id)
    ended = next((event for event in events if event["kind"] == "run.ended"), None)
    decided = next((event for event in events if event["kind"] in _VERDICTS), None)
    return (ended or {}, decided) if decided else None


def _describe_next_step(verdict: Mapping[str, Any]) -> str:
    data = verdict.get("data", {})
    match verdict.get("kind"):
        case "task.completed":
            return "nothing more, the task is done."
        case "task.requeued":
            return f"it runs the task again{_wait(' after', data['delay'])}."
        case "task.paused" if data["resume_after"] is None:
            return "it waits until a person fixes the cause and types `holdfast resume`."
        case "task.paused":
            return f"it continues by itself{_wait(' after', data['resume_after'] - verdict['at']) or ' at once'}."
        case None:
            return "unknown, because the run did not end in time."
    return "nothing by itself; `holdfast retry` would try it again."


def _wait(words: str, seconds: float) -> str:
    from holdfast.api.format import duration

    return f"{words} {duration(seconds)}" if seconds >= 1 else ""
