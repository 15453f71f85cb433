"""Processes that are stopped (SIGSTOP) for longer than anybody waits for them, and go on (SIGCONT) when nobody counts
on them any more: a supervisor beyond its lease, with and without another one in its place, a keeper, an agent, git.

A case is `victim/moment/then/seconds`: `supervisor/working/usurped/2`. A moment is `working` (an agent is at work),
`@350` (so many ms after the supervisor's start) or, for git, the number of its process. Then the victim continues by
itself (`on`), is killed (`killed`), its lock is removed and another supervisor takes its place (`usurped`), or its task
is cancelled meanwhile (`cancelled`). While a supervisor is stopped, somebody adds a task. Leases and patience are short
here; where an agent is to outlive its supervisor (`patient-…`) its keeper is as patient as usual, from 60 s on all are.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.campaign.storm import living
from tests.harness.matrix.cases import Case
from tests.harness.matrix.steps import add, commands_of, state, task_id, write
from tests.harness.matrix.world import Stuck, World

from holdfast.api.queries import Queries
from holdfast.checker import fingerprint, violations
from holdfast.checker.evidence import Evidence

SUPERVISOR, KEEPER, AGENT, GIT = "supervisor", "keeper", "agent", "git"
FIRST, SECOND, THIRD = "work", "wait behind it", "be added while nobody looks"
LEASE, GRACE = 1.0, 1.0  # seconds: of a supervisor, and of a keeper that hears nothing
STALL = "1s"  # an agent without a sign of life is stuck after this
PATIENT = "patient-"
LONG = 60.0  # from so many seconds on, everything is as users have it
INSTANTS = 900  # ms after its start in which a supervisor has done all of its work
CALLS = 12  # processes of git that every case has
THEN = {
    SUPERVISOR: ("on", "killed", "usurped", "patient-on", "patient-killed", "patient-usurped"),
    KEEPER: ("on", "killed", "cancelled"),
    AGENT: ("on", "killed", "cancelled"),
    GIT: ("on", "killed"),
}


@dataclass(frozen=True, slots=True)
class Word:
    victim: str
    wall_time_ago: str
    then: str
    seconds: float
    is_patient: bool = False

    @property
    def is_long(self) -> bool:
        return self.seconds >= LONG

    @property
    def agent_lives(self) -> bool:
        """Nobody has a reason to end it, or to start another."""
        return self.victim == SUPERVISOR and (self.is_long or self.is_patient) and self.wall_time_ago == "working"


class Stopped(Grounds):
    name = "stopped"
    about = "SIGSTOP for supervisors, keepers, agents and git beyond lease and patience, then SIGCONT"
    USUAL = 16
    LONG_CASES = ("supervisor/working/on/100", "supervisor/working/usurped/100")

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        chance = random.Random(scope.start_from_head)
        at_work = [f"{who}/working/{then}/2" for who in (SUPERVISOR, KEEPER, AGENT) for then in THEN[who]]
        anywhen = [
            *(f"{SUPERVISOR}/@{chance.randrange(INSTANTS)}/{then}/1.5" for then in THEN[SUPERVISOR] for _ in range(20)),
            *(f"{GIT}/{number}/{then}/1.5" for number in range(1, CALLS) for then in THEN[GIT]),
        ]
        if scope.long:
            return [*self.LONG_CASES, *at_work, *anywhen]
        every = [*chance.sample(at_work, len(at_work)), *chance.sample(anywhen, len(anywhen))]
        return every[: scope.amount(self.USUAL)]

    def play(self, case: str) -> Played:
        began = time.monotonic()
        victim, moment, then, seconds = case.split("/")
        word = Word(victim, moment, then.removeprefix(PATIENT), float(seconds), then.startswith(PATIENT))
        place = f"stopped-{os.getpid()}-{case.replace('/', '-')}"
        world = World(self._root / place, self._root / "template", Case("stopped"), self._broken)
        try:
            try:
                reached = _play(world, word)
                found = [*_judged(world, word), *_rest(world)]
            except Stuck as stuck:
                reached, found = True, [f"loops: {stuck}"]
            log = world.log.read_text(errors="replace")[-4000:] if found and world.log.exists() else ""
            missed = "" if reached else "nothing was there to be stopped"
            return Played(case, tuple(found), missed, seconds=time.monotonic() - began, log=log)
        finally:
            world.close()


def _play(world: World, word: Word) -> bool:
    if not word.is_long:
        world.lease_ttl = LEASE
    if word.victim == GIT and not word.is_long:
        os.environ["HOLDFAST_GIT_TIMEOUT"] = "1"
    try:
        return _played(world, word)
    finally:
        os.environ.pop("HOLDFAST_GIT_TIMEOUT", None)


def _played(world: World, word: Word) -> bool:
    """Whether somebody was stopped."""
    wait = "echo $$ > $WORLD/pid-$$; touch $WORLD/working; until [ -e $WORLD/go ]; do sleep 0.05; done\n"
    patient = {"HOLDFAST_RETRY_BASE": "10ms"}
    if not (word.is_long or word.is_patient):
        patient["HOLDFAST_HEALTH_ORPHAN_GRACE"] = f"{GRACE}s"
    stall = {"HOLDFAST_HEALTH_STUCK_AFTER": STALL} if word.victim == AGENT and word.then == "on" else {}
    add(world, FIRST, write("early.txt", "early") + wait + write("late.txt", "late"), settings={**patient, **stall})
    add(world, SECOND, write("second.txt", "second"), role="add2", settings=patient)
    world.start("up", agents=1)
    pids = _victims(world, word)
    _stop(world, word, pids)
    if word.victim == SUPERVISOR:
        add(world, THIRD, write("third.txt", "third"), role="add3", settings=patient)
    time.sleep(word.seconds)  # this is the fault itself: so long is everybody without them
    _then(world, word, pids)
    if word.then == "usurped":
        world.wait("up")  # it has nothing to wait for: what it started is another's
    (world.root / "go").touch()
    for role in ("up", "usurper"):
        if world.has(role):
            world.wait(role)
    return bool(pids)


def _stop(world: World, word: Word, pids: Sequence[int]) -> None:
    """A supervisor that is to be usurped is stopped between two writes: while it held SQLite's lock nobody could be
    another, and nothing is to be seen but that."""
    with contextlib.ExitStack() as turn:
        if word.then == "usurped":
            turnstile = turn.enter_context((world.home / "turnstile.lock").open("r+b"))
            fcntl.flock(turnstile, fcntl.LOCK_EX)
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        for pid in pids:
            world.wait_until(lambda pid=pid: _is_still(pid), "it is stopped", while_running="up")  # type: ignore[misc]


def _is_still(pid: int) -> bool:
    """Each of its threads: the signal reaches them one after another."""
    try:
        stats = [(thread / "stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return not Path(f"/proc/{pid}").exists()
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)


def _victims(world: World, word: Word) -> list[int]:
    if word.wall_time_ago.startswith("@"):
        time.sleep(float(word.wall_time_ago[1:]) / 1000)  # an instant, not a fact: that is what is tried
        return [world.pid("up")] if world.is_running("up") else []
    if word.victim == GIT:
        return _nth_git(world, int(word.wall_time_ago))
    world.wait_until(lambda: living(world, AGENT), "the agent is recorded", while_running="up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    return [world.pid("up")] if word.victim == SUPERVISOR else living(world, word.victim)


def _nth_git(world: World, wanted: int) -> list[int]:
    seen: set[int] = set()
    deadline = time.monotonic() + 10
    while world.is_running("up") and time.monotonic() < deadline:
        for pid in _below(world.pid("up")):
            with contextlib.suppress(OSError):
                if pid not in seen and Path(f"/proc/{pid}/comm").read_text().strip() == "git":
                    seen.add(pid)
                    if len(seen) == wanted:
                        return [pid]
        if (world.root / "working").exists():
            (world.root / "go").touch()  # there is more of it at the end of a task
    return []


def _then(world: World, word: Word, pids: Sequence[int]) -> None:
    if word.then == "cancelled":
        task = task_id(world, FIRST)
        world.client("cancel", lambda: commands_of(world).cancel(task, "the campaign says so"))
        over = lambda: state(world, FIRST) == "cancelled"  # noqa: E731 - a fact
        world.wait_until(over, "the cancel of a stopped one is carried out", while_running="up")
    elif word.then == "killed":
        for pid in pids:
            _send(pid, signal.SIGKILL)
        if word.victim == SUPERVISOR:
            world.wait("up")
            world.start("usurper", agents=1)
    elif word.then == "usurped":
        _usurp(world)
    for pid in pids:
        _send(pid, signal.SIGCONT)


def _usurp(world: World) -> None:
    """The next one is refused while the lock is held, and says by whom; then somebody removes it."""
    if not world.is_running("up"):
        return
    world.start("refused", agents=1)
    world.wait("refused")
    for lock in ("supervisor.lock", "helpers.lock"):
        (world.home / lock).unlink(missing_ok=True)
    world.start("usurper", agents=1)
    adopts = lambda: _tells(world, "task.adopted") or world.pid("usurper") in _hosts(world)  # noqa: E731 - a fact
    world.wait_until(adopts, "another one is there", while_running="usurper")


def _judged(world: World, word: Word) -> Iterator[str]:
    if word.then == "usurped" and "kill -CONT" not in world.log.read_text(errors="replace"):
        yield "silent: nobody said that the supervisor is stopped, and how it continues"
    world.up("rest")
    ends = {FIRST: "cancelled" if word.then == "cancelled" else "completed", SECOND: "completed", THIRD: "completed"}
    for prompt, wanted in ends.items():
        ended = state(world, prompt)
        if ended != wanted and not (prompt == THIRD and ended == "missing"):  # that one may have been refused
            yield f"lost: '{prompt}' ended {ended}, not {wanted}"
    if word.agent_lives and (runs := len(Queries(str(world.home)).task(task_id(world, FIRST))["runs"])) != 1:
        yield f"twice: its agent lived, and there were {runs} runs"


def _rest(world: World) -> list[str]:
    before = fingerprint(str(world.home))
    world.up("last")
    after = fingerprint(str(world.home))
    found = [f"loops: a second recovery changed {part}" for part in before if before[part] != after.get(part)]
    return found + [str(one) for one in violations(str(world.home), at_rest=True, witness=str(world.witness))]


def _hosts(world: World) -> list[int]:
    return [int(row["pid"]) for row in Evidence(str(world.home)).tables["hosts"]]


def _tells(world: World, kind: str) -> bool:
    return any(event["kind"] == kind for event in Queries(str(world.home)).events())


def _below(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found += [int(child), *_below(int(child))]
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
