"""A throw-away home and repository with a real supervisor, for the benchmarks that need the whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bench.proc import Patience

from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.errors import Unavailable
from holdfast.core.model import TaskSpec
from holdfast.store import doorbell
from holdfast.store.port.transaction import Transaction
from holdfast.store.sqlite.engine.store import SqliteStore

T = TypeVar("T")
PATIENCE = 240.0
TICK = os.sysconf("SC_CLK_TCK")


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.repo = folder, folder / "home", folder / "repo"
        for made in (folder, self.home, self.repo, folder / "user"):
            made.mkdir()
        (folder / "user" / ".gitconfig").write_text("[user]\n\tname = Bench\n\temail = bench@example.org\n")
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "user"),
            "HOLDFAST_HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        (self.repo / "README.md").write_text("# Bench\n")
        for arguments in (("init", "--quiet", "-b", "main"), ("add", "."), ("commit", "--quiet", "-m", "Start")):
            subprocess.run(["git", *arguments], cwd=self.repo, env=self.env, check=True)
        store = SqliteStore(str(self.home))
        repo = store.write(lambda tx: tx.workspaces.register_repo(str(self.repo), str(self.repo / ".git"), clock.now()))
        store.close()
        self.repo_id = repo.id
        self._supervisor: subprocess.Popen[bytes] | None = None

    # -- the supervisor ------------------------------------------------------------------------------------------

    def up(self, agents: int, env: Mapping[str, str] | None = None) -> None:
        with (self.folder / "supervisor.log").open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "up", "--agents", str(agents)],
                cwd=self.folder,
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait(lambda: Queries(str(self.home)).supervisor() is not None, "the supervisor is registered")

    def supervisor_pid(self) -> int:
        assert self._supervisor is not None
        return self._supervisor.pid

    def kill_supervisor(self) -> None:
        """As an out-of-memory killer would."""
        assert self._supervisor is not None
        self._supervisor.kill()
        self._supervisor.wait()
        self._supervisor = None

    def supervisor_cpu(self) -> tuple[float, float]:
        """CPU seconds of the supervisor's own process, and of the children that it has reaped (keepers, git)."""
        assert self._supervisor is not None
        stat = Path(f"/proc/{self._supervisor.pid}/stat").read_bytes().rpartition(b")")[2].split()
        user, system, children_user, children_system = (int(ticks) / TICK for ticks in stat[11:15])
        return user + system, children_user + children_system

    def supervisor_peak_mib(self) -> float:
        assert self._supervisor is not None
        for line in Path(f"/proc/{self._supervisor.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("/proc does not say how much memory the supervisor used")

    def down(self) -> None:
        """Stop what we started, by its pid; a second signal makes it fast."""
        process, self._supervisor = self._supervisor, None
        if process is None:
            return
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
                return
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.wait()

    # -- tasks ---------------------------------------------------------------------------------------------------

    def queue(self, tasks: Sequence[TaskSpec]) -> None:
        """All in one transaction, as fast as they can come."""

        def add(tx: Transaction) -> None:
            for task in tasks:
                tx.tasks.add(task, clock.now())

        store = SqliteStore(str(self.home))
        store.write(add)
        store.close()
        doorbell.ring(str(self.home))

    def wait_completed(self, count: int) -> None:
        queries = Queries(str(self.home))
        self.wait(lambda: _ended(queries, count), f"{count} tasks have completed")

    def wait(self, fact: Callable[[], T], what: str) -> T:
        patience = Patience(PATIENCE)
        while True:
            try:
                value = fact()
            except Unavailable:
                value = None
            if value:
                return value
            if self._supervisor is not None and self._supervisor.poll() is not None:
                raise RuntimeError(f"the supervisor ended: {(self.folder / 'supervisor.log').read_text()[-2000:]}")
            if patience.is_over():
                raise RuntimeError(f"this never became true: {what}")
            time.sleep(0.02)


def _ended(queries: Queries, count: int) -> bool:
    counts = queries.counts()
    wrong = {state: number for state, number in counts.items() if state in ("failed", "cancelled", "paused")}
    if wrong:
        raise RuntimeError(f"tasks of the benchmark did not complete: {wrong}")
    return counts.get("completed", 0) >= count
