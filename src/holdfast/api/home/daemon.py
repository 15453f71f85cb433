"""The start of a supervisor: in the foreground, or in the background."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from holdfast.api.queries import Queries
from holdfast.base import faults
from holdfast.base.errors import Conflict, Unavailable
from holdfast.base.files import open_private
from holdfast.base.home import ensure_home
from holdfast.store.open import open_store

START_PATIENCE = 30.0
MOST_STARTS = 3  # supervisors in a row that a watcher starts without any event of its task


def run_here(home: str, *, agents: int | None, idle_exit: float | None) -> None:
    """Run a supervisor in this process. Blocks until the supervisor has stopped."""
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


def start_detached(home: str, *, agents: int | None, idle_exit: str | None) -> int:
    """Start a supervisor in the background, wait until it is registered, and return its pid."""
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
        if code == Conflict.exit_code and running is not None:
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
    """Start a supervisor that ends after 60 s without work, and return its pid. None: one runs already."""
    try:
        return start_detached(queries.home, agents=None, idle_exit="60s") if queries.supervisor() is None else None
    except Conflict:
        return None  # another process started a supervisor at the same moment


def refuse_another_start(home: str, task_id: str, starts: int) -> None:
    """Raise Unavailable if supervisors keep ending before they have done anything for the task."""
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
    """Return HOLDFAST_CONFIG as an absolute path: the supervisor works in `/`, where a relative one would mean another
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
