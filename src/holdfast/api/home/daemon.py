"""The start of a supervisor: in the foreground, or in the background."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.api.commands import change_store, operator_name
from holdfast.api.queries import Queries
from holdfast.api.requests import read_result
from holdfast.base import clock, faults
from holdfast.base.errors import Conflict, Refused, Unavailable
from holdfast.base.files import open_private
from holdfast.base.home import ensure_home
from holdfast.base.units import show_duration
from holdfast.core.model import RequestKind
from holdfast.core.tasks.requests import StopCause
from holdfast.processes.caller import find_caller
from holdfast.store.open import open_store
from holdfast.supervisor.home_lock import has_lock_file, refuse_stopped

if TYPE_CHECKING:
    from holdfast.api.fleet.models import SupervisorRow

START_PATIENCE = 30.0
MOST_STARTS = 3  # supervisors in a row that a watcher starts without any event of its task


def run_here(home: str, *, agents: int | None, idle_exit: float | None) -> None:
    """Run a supervisor in this process. Return when the supervisor has stopped."""
    from holdfast import config
    from holdfast.supervisor.settings import SupervisorSettings
    from holdfast.wiring import reload, supervisor

    ensure_home(home)
    flags = {"agents": agents}
    settings = config.load(flags=flags)
    supervisor.run_supervisor(
        home,
        settings,
        reload.apply_settings(SupervisorSettings(agents=settings["agents"], idle_exit=idle_exit), settings),
        flags,
    )


def take_over(home: str, *, agents: int | None, idle_exit: float | None) -> str | None:
    """Ask the running supervisor of the home to take over the options of `up`, and return a sentence about the change.

    None: no supervisor runs. Raise Conflict, and change nothing, if the supervisor cannot take them over.
    """
    try:
        queries = Queries(home)
        running = queries.supervisor()
    except Unavailable:  # the store does not exist yet, or has to be migrated by the supervisor first
        return None
    # Without the lock file, the supervisor has lost its home and will end.
    if running is None or _is_unit() or not has_lock_file(home):
        return None
    pid = running["pid"]
    refuse_stopped(home, str(pid))
    if running["version"] != __version__:
        raise Conflict(
            f"The supervisor (pid {pid}) is of version {running['version']}, this is {__version__}. Nothing was "
            "changed. To upgrade it, run `holdfast down --keep-agents`, then `holdfast up`."
        )
    if agents is not None:
        from holdfast import config

        config.load(flags={"agents": agents})  # a number that it could not take over is refused here
    answer = _ask_take_over(queries, running, {"agents": agents, "idle_exit": idle_exit})
    if answer is None:
        return take_over(home, agents=agents, idle_exit=idle_exit)  # it has ended: another may run by now
    return _describe_take_over(pid, json.loads(answer), idle_exit)


def _is_unit() -> bool:
    """True if this process is the main process of a systemd unit. A unit does not hand its options to a supervisor that
    runs already: with exit code 0 systemd would count the unit as done. The lock of the home refuses the process
    instead.
    """
    return os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())


def _ask_take_over(queries: Queries, running: SupervisorRow, wanted: dict[str, object]) -> str | None:
    """Ask the running supervisor, and return its answer as JSON. None: the supervisor has ended or was ending, and is
    gone now.
    """
    request = change_store(
        queries.home,
        lambda tx: tx.requests.ask(RequestKind.TAKE_OVER, None, operator_name(), "", wanted, clock.now()),
    )
    deadline = time.monotonic() + START_PATIENCE
    while time.monotonic() < deadline:
        now_running = queries.supervisor()  # read before the answer: it may answer as its last act
        answer = read_result(queries, request)
        if answer is not None and answer.is_done(RequestKind.TAKE_OVER):
            return answer.detail
        if now_running is None or now_running["id"] != running["id"]:
            queries.wait_gone(running, deadline)
            return None
        time.sleep(0.01)
    raise Unavailable(
        f"The supervisor (pid {running['pid']}) is stopping or does not answer. Nothing was changed. See `holdfast ps`."
    )


def _describe_take_over(pid: int, values: dict[str, list[float | None]], wanted: float | None) -> str:
    (had, has), (was, left) = values["agents"], values["idle_exit"]
    if was is None and wanted is not None:
        raise Conflict(
            f"The supervisor (pid {pid}) stays until `holdfast down`, so it takes no --idle-exit. Nothing was changed. "
            f"To start one that ends when idle, run `holdfast down`, then `holdfast up --idle-exit {wanted:g}s`."
        )
    runs = f"It runs {has} agents at once." if had == has else f"It now runs {has} agents at once, not {had}."
    if was == left:
        ends = "" if left is None else f" It ends after {show_duration(left)} without work."
        return f"Already running, pid {pid}. {runs}{ends}"
    stays = "stays until `holdfast down`" if left is None else f"ends after {show_duration(left)}"
    return (
        f"Took over the running supervisor, pid {pid}. It would have ended after {show_duration(was or 0.0)} without "
        f"work. "
        f"Now it {stays}. {runs}"
    )


def start_detached(home: str, *, agents: int | None, idle_exit: str | None) -> int:
    """Start a supervisor in the background, wait until it is registered, and return its pid.

    Raise Refused inside a run of this home: a supervisor started there would have the agent's environment and lifetime.
    """
    if find_caller(home) is not None:
        raise Refused(
            "No supervisor is running, and this process is inside a run. What was queued stays queued. Ask a "
            "person for `holdfast up`."
        )
    ensure_home(home)
    open_store(home, create=True).close()
    queries = Queries(home)
    running = queries.supervisor()
    if running is not None:
        raise Conflict(f"A supervisor is already running on {home} (pid {running['pid']}).")
    log_path = log_file(home)
    arguments = [sys.executable, "-m", "holdfast", "up"]
    if agents is not None:
        arguments += ["--agents", str(agents)]
    if idle_exit is not None:
        arguments += ["--idle-exit", idle_exit]
    deadline = time.monotonic() + START_PATIENCE
    process, log_end = _spawn(home, arguments, log_path)
    while time.monotonic() < deadline:
        code = process.poll()  # asked once per turn, and before the store: the answer may change at any moment
        running = queries.supervisor()
        if running is not None and running["pid"] == process.pid:
            # A caller that lives on (`top`) must reap the supervisor when it ends.
            threading.Thread(target=process.wait, daemon=True).start()
            return process.pid
        if code in (0, Conflict.exit_code) and running is not None:  # it found that one, and asked it to stay
            raise Conflict(f"A supervisor is already running on {home} (pid {running['pid']}).")
        if code == Conflict.exit_code:
            time.sleep(0.1)  # another supervisor is ending or starting: try again until one is registered
            process, log_end = _spawn(home, arguments, log_path)
        elif code is not None:
            why = describe_supervisor_end(log_path, log_end, code)
            raise Unavailable(f"The supervisor ended at once: {why} (its log: {log_path})")
        time.sleep(0.01)
    raise Unavailable(f"The supervisor did not come up within {START_PATIENCE:.0f} s; its log: {log_path}")


def ensure_supervisor(queries: Queries) -> int | None:
    """Start a supervisor that ends after 60 s without work, and return its pid. None: a supervisor runs already."""
    try:
        return start_detached(queries.home, agents=None, idle_exit="60s") if queries.supervisor() is None else None
    except Conflict:
        return None  # another process started a supervisor at the same moment


def refuse_another_start(queries: Queries, task_id: str, starts: int, since: int) -> None:
    """Raise Unavailable if a person stopped the supervisor after event `since`, or if supervisors keep ending before
    they have done anything for the task."""
    home = queries.home
    last = queries.view("last_change_of_host", after=since)
    if last and last[0]["kind"] == "host.stopped" and last[0]["reason"] != StopCause.IDLE:
        how = "`holdfast down`" if last[0]["reason"] == StopCause.DOWN else "a signal"
        raise Unavailable(
            f"The supervisor was stopped by {how}, so no other one is started. Task {task_id} is kept as it is. "
            f"Continue "
            f"with `holdfast up`; see `holdfast why {task_id}`."
        )
    if starts > MOST_STARTS:
        why = describe_supervisor_end(log_file(home)).removesuffix(".")
        raise Unavailable(
            f"The supervisor ended {starts} times right after its start: {why}. "
            f"Task {task_id} is kept as it is. `holdfast up` in a terminal shows why; its log: {log_file(home)}"
        )


def _spawn(home: str, arguments: list[str], log_path: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a supervisor. Return its process, and the size of the log before it."""
    faults.effect("daemon.spawn")
    if os.path.islink(log_path):
        raise Unavailable(
            f"{log_path} is a symbolic link, which is not followed. Nothing was started. Remove it, then try again. To "
            "have the log elsewhere, run `holdfast up` in the foreground and redirect its output."
        )
    with open(log_path, "ab", opener=open_private) as log:
        os.fchmod(log.fileno(), 0o600)  # an earlier version made the log readable to others
        log_end = os.fstat(log.fileno()).st_size
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, "HOLDFAST_HOME": home, **_settings_place()},
            start_new_session=True,
        )
    return process, log_end


def _settings_place() -> dict[str, str]:
    """Return HOLDFAST_CONFIG as an absolute path: the supervisor works in `/`, where a relative path would mean another
    file."""
    from holdfast.config import user_file_path

    return {"HOLDFAST_CONFIG": user_file_path()} if os.environ.get("HOLDFAST_CONFIG") else {}


def log_file(home: str) -> str:
    return os.path.join(home, "supervisor.log")


def describe_supervisor_end(log_path: str, log_end: int = 0, code: int | None = None) -> str:
    """Return the reason why a supervisor ended: the signal, or the last line of its log after `log_end`."""
    if code is not None and code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    with open(log_path, encoding="utf-8", errors="replace") as file:
        file.seek(log_end)
        lines = file.read().strip().splitlines()
    return lines[-1] if lines else f"exit code {code}, without a message" if code else "no message"
