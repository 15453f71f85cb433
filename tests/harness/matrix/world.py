"""One case's world: a home, a repository, a witness, and real processes that are forked from a warm interpreter.

A fresh interpreter per process would cost more than everything else together. The forked ones are real all the same:
they have their own pid, can be killed, and start real keepers, agents and git.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.harness.engines import private
from tests.harness.matrix import git_faults
from tests.harness.matrix.cases import USURP, Case
from tests.harness.mutations import Mutation

from holdfast import config
from holdfast.base import faults
from holdfast.base.errors import HoldfastError
from holdfast.config.retry_budgets import hold_rules_from_settings, workers_from_settings
from holdfast.core.dispatch.pressure import PressureLimits
from holdfast.processes.cgroups import CgroupRecord
from holdfast.supervisor.settings import RetentionTimes, SupervisorSettings
from holdfast.wiring import supervisor

PATIENCE = 150.0  # a recovery that takes longer than this does not end
MAIMED_PATIENCE = 30.0  # that one without one of its protections does not end is no news
USURPATION = 3.0  # how far a usurper may get before the first one continues; it may wait for a lock of that one
KEEPER = "keeper"  # the role of every keeper that a supervisor of ours starts
_NO_PRESSURE = PressureLimits()
_QUICK = {"breaker.hold": "30ms", "breaker.max_hold": "60ms"}


class Stuck(Exception):
    """Something did not come to its end in bounded time."""


class World:
    """Made by the runner for one case; `close` ends every process that is left, and only those.

    `broken`: the mutant that its processes are (tests/harness/mutations.py); empty: none."""

    def __init__(self, root: Path, template: Path, case: Case, broken: str = "") -> None:
        self.root = root
        self.case = case
        self.home = root / "home"
        self.repo = root / "repo"
        self.witness = root / "witness"
        self.log = root / "log"
        self.settings = root / "settings.toml"  # the user's own, if the scenario has some
        # Seconds. Whoever is overtaken mostly hears it from its own beat: what else protects shows only without that.
        is_overtaken = any(fault.action == USURP for fault in case.faults)
        self.beat_every = 30.0 if broken == "fence" or (broken and is_overtaken) else 0.3
        self.lease_ttl = SupervisorSettings(agents=1).lease_ttl
        self.mutation = Mutation(broken, root / "mutant")  # applied in each of our processes
        self.is_maimed = bool(broken)
        self.patience = MAIMED_PATIENCE if broken else PATIENCE
        self._running: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        shutil.copytree(template, self.repo, symlinks=True)
        self.witness.touch()
        self._config = config.load(flags=_QUICK)
        self.burden: Callable[[str], object] = lambda _role: None  # in each of our processes, before its work

    def configure(self, text: str) -> None:
        """The user's file, for every process of this case."""
        self.settings.write_text(text)

    # -- processes -------------------------------------------------------------------------------------------------

    def client(self, role: str, work: Callable[[], object]) -> bool:
        """A short-lived process, like a command: whether it came to its end. It dies or fails where the case says."""
        self._running[role] = self._fork(role, work)
        return self.wait(role) == 0

    def start(self, role: str, *, agents: int = 2, keeping: RetentionTimes | None = None) -> None:
        """A supervisor that ends by itself when nothing is left to do."""
        self._running[role] = self._fork(role, lambda: self._supervise(agents, keeping))

    def up_held(self, role: str) -> int:
        """A supervisor for which no machine has room, until it reads its file, which wants less."""
        self._running[role] = self._fork(role, lambda: self._supervise(2, pressure=PressureLimits(min_memory=2**62)))
        return self.wait(role)

    def up(self, role: str, *, agents: int = 2, keeping: RetentionTimes | None = None) -> int:
        self.start(role, agents=agents, keeping=keeping)
        if any(fault.role == role and fault.action == USURP for fault in self.case.faults):
            self._usurp(role)
        return self.wait(role)

    def used_by_other_runs(self, work: Callable[[], object], until: Path) -> None:
        """A process that is there until the case ends; once `until` exists."""
        self._running[f"beside-{until.name}"] = self._fork("", work)
        for _moment in self.moments(f"{until.name} is there"):
            if until.exists():
                return

    def _supervise(
        self, agents: int, keeping: RetentionTimes | None = None, pressure: PressureLimits = _NO_PRESSURE
    ) -> None:
        kept = keeping or RetentionTimes()
        settings = config.load(flags=_QUICK) if self.settings.exists() else self._config
        how = SupervisorSettings(
            agents=agents,
            idle_exit=0.0,
            beat_every=self.beat_every,
            lease_ttl=self.lease_ttl,
            keeping=kept,
            pressure=pressure,
            staff=workers_from_settings(settings),
            holds=hold_rules_from_settings(settings),
        )
        supervisor.run_supervisor(str(self.home), settings, how, _QUICK)

    def _usurp(self, role: str) -> None:
        """It is stopped at the point, and somebody removed the lock files (with them the next one would end it): a
        second supervisor takes over, up to the same point; then the first goes on under a fence that is not its own."""
        if not self._until_stopped(self._running[role]):
            return
        for lock in ("supervisor.lock", "helpers.lock"):
            (self.home / lock).unlink(missing_ok=True)
        usurper = "usurper"
        self._running[usurper] = self._fork(usurper, lambda: self._supervise(2), plan=self.case.plan_for(role))
        # What a mutant shows needs both facts: the usurper is there, and the first one acts before the usurper
        # continues.
        # Neither waits for the other at the points of mutants, so that takes as long as the machine needs.
        patience = self.patience if self.is_maimed else _usurpation()
        self._until_stopped(self._running[usurper], patience)
        os.kill(self._running[role], signal.SIGCONT)
        self._until_ended(role, patience)  # if it waits for a lock of the usurper, that one has to continue first
        while self.is_running(usurper) and self._until_stopped(self._running[usurper]):
            os.kill(self._running[usurper], signal.SIGCONT)  # it may come to its point only now
        self.wait(role)
        self.wait(usurper)

    def _until_ended(self, role: str, patience: float) -> None:
        deadline = time.monotonic() + patience
        while self.is_running(role) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _until_stopped(self, pid: int, patience: float = PATIENCE) -> bool:
        """True when it is stopped, False when it ended, or waits for a lock that a stopped one holds."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(0.002)
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                return False
            if state in ("Z", "X"):
                return False
            if state in ("T", "t"):
                return True
        return False

    def has(self, role: str) -> bool:
        """Whether it was ever started."""
        return role in self._running

    def is_running(self, role: str) -> bool:
        """Collects it when it has ended."""
        if role in self._codes or role not in self._running:
            return False
        pid, status = os.waitpid(self._running[role], os.WNOHANG)
        if pid == 0:
            return True
        self._codes[role] = os.waitstatus_to_exitcode(status)
        return False

    def wait(self, role: str) -> int:
        """Its exit code; negative: the signal that killed it."""
        if role not in self._codes:
            fd = os.pidfd_open(self._running[role])
            try:
                poller = select.poll()
                poller.register(fd, select.POLLIN)
                if not poller.poll(self.patience * 1000):
                    raise Stuck(f"{role} did not end within {self.patience:.0f} s")
            finally:
                os.close(fd)
            self._until_ended(role, self.patience)  # who traces it may still have to let go of it
        return self._codes[role]

    def kill(self, role: str) -> None:
        if self.is_running(role):
            self.signal(role, signal.SIGKILL)
            self.wait(role)

    def signal(self, role: str, number: int) -> None:
        if self.is_running(role):
            os.kill(self._running[role], number)

    def pid(self, role: str) -> int:
        return self._running[role]

    def begin(self, role: str, work: Callable[[], object]) -> None:
        """Like `client`, and does not wait for it."""
        self._running[role] = self._fork(role, work)

    def wait_until(self, fact: Callable[[], object], what: str, *, while_running: str) -> bool:
        """Until `fact`; False when the process it depends on ended before."""
        for _moment in self.moments(what):
            if fact():
                return True
            if not self.is_running(while_running):
                return bool(fact())
        return False

    def moments(self, what: str) -> Iterator[None]:
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            yield
            time.sleep(0.002)
        raise Stuck(f"this never became true: {what}")

    def _fork(self, role: str, work: Callable[[], object], plan: str | None = None) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        # What a handler raises in the middle of a fork is printed by Python and forgotten.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        try:
            pid = os.fork()
            if pid == 0:
                self._be(role, work, self.case.plan_for(role) if plan is None else plan)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid

    def _be(self, role: str, work: Callable[[], object], plan: str) -> None:
        """In the child. Never returns."""
        code = 70
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self.repo)
            os.environ["HOLDFAST_HOME"] = str(self.home)
            os.environ["WITNESS"] = str(self.witness)
            os.environ["WORLD"] = str(self.root)
            if self.settings.exists():
                os.environ["HOLDFAST_CONFIG"] = str(self.settings)
            # Keepers inherit these from the supervisor, which itself is armed by hand.
            os.environ["HOLDFAST_FAULT"] = self.case.plan_for(KEEPER) if role.startswith("up") else ""
            os.environ["HOLDFAST_FAULT_TRACE"] = str(self.trace_file(KEEPER))
            os.environ["HOLDFAST_FAULT_ONCE"] = str(self.root / "keeper-fault")
            os.environ.update(git_faults.put_in_front(self.root, self.case, role, self.trace_file(role)))
            faults.arm(plan, str(self.trace_file(role)))
            self.mutation.apply()
            self.burden(role)
            work()
            code = 0
        except HoldfastError as error:
            code = error.exit_code
            print(f"{role}: {error}", file=sys.stderr)
        except BaseException:  # noqa: BLE001 - it goes to the log, and its code says so
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    # -- what was seen ---------------------------------------------------------------------------------------------

    def trace_file(self, role: str) -> Path:
        return self.root / f"trace-{role}"

    def reached(self, role: str) -> list[tuple[str, int, bool]]:
        """(point, hit, whether an error can come there) in the order in which they were reached."""
        try:
            lines = self.trace_file(role).read_text().split()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            point, hit, *rest = line.split(":")
            found.append((point, int(hit), not rest))
        return found

    def roles(self) -> list[str]:
        return sorted(path.name.removeprefix("trace-") for path in self.root.glob("trace-*"))

    def acknowledge(self, task_id: str) -> None:
        with self.witness.open("a") as file:
            file.write(json.dumps({"acknowledged": task_id}) + "\n")

    def acknowledged(self) -> list[str]:
        words = [json.loads(line) for line in self.witness.read_text().splitlines()]
        return [str(word["acknowledged"]) for word in words if "acknowledged" in word]

    def gather(self) -> None:
        """What agents that see no more than their channel told there. One may have died in the middle of a line."""
        for path in self.home.glob("runs/*/channel/witness"):
            with self.witness.open("a") as file:
                for line in path.read_text(errors="replace").splitlines():
                    with contextlib.suppress(ValueError):
                        file.write(json.dumps(json.loads(line)) + "\n")

    def close(self) -> None:
        """End what is left. We are a subreaper: every descendant of this case is, or becomes, a child of ours."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            children = _children()
            if not children:
                break
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.002)
        CgroupRecord(str(self.home)).abandon()
        shutil.rmtree(self.root, ignore_errors=True)  # our own directory, and nothing mounts in it


def _usurpation() -> float:
    """Longer where others keep every core busy."""
    return USURPATION * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _children() -> list[int]:
    """But for those who keep an engine for all cases of this process."""
    try:
        pids = [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
        return [pid for pid in pids if pid not in private.sitters]
    except OSError:
        return []
