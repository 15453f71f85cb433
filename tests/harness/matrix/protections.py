"""Lives in which one protection stands alone between an agent and trouble: a keeper's lifeline, the lock that it
inherits, the go-pipe, who a recorded process is, and that nothing is called done before it is dead.

What happens is seen from outside: by process ids that agents and bystanders leave, not by what Holdfast says of them.
Most of it shows only with a protection left out (campaign/mutants.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness.matrix.scenario import Play, Scenario
from tests.harness.matrix.steps import add, commands_of, events_tell, insist, task_id, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.checker.evidence import Evidence

A_WHILE = 15.0  # for what must come, on a busy machine; what comes soon is not waited for
A_MOMENT = 2.0  # for what must not come
ORPHAN_GRACE = 1.0
ORPHAN, OVERTAKEN, UNRECORDED, STUBBORN = "be left alone", "be overtaken", "be unrecorded", "take its time"
UNHURRIED = "be claimed late"
OLD_START, OLD_BOOT = "leave a pid that is reused", "leave a pid of another boot"
_HERE = "echo $$ > $WORLD/pid-$$; touch $WORLD/working\n"
_UNTIL_GO = "until [ -e $WORLD/go ]; do sleep 0.05; done\n"


def orphaned(world: World) -> None:
    """The supervisor is killed and nobody comes: the keeper ends its agent by itself, and the next one starts again."""
    once = "[ -e $WORLD/working ] && exit 0\n" + _HERE + _UNTIL_GO
    settings = {"HOLDFAST_HEALTH_ORPHAN_GRACE": f"{ORPHAN_GRACE}s"}
    add(world, ORPHAN, write("early.txt", "early") + once, settings=settings)
    world.start("up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    world.kill("up")
    if not _comes(lambda: not _agents(world), ORPHAN_GRACE + A_WHILE):
        _tell(world, f"leaked: process: an agent lives {A_WHILE:.0f} s after its keeper should have ended it")
    (world.root / "go").touch()
    up_to_the_end(world, "up2")


def bystander(world: World) -> None:
    """Agents end while no supervisor looks. When one does, the pids of their keepers belong to others: one since then,
    one since a reboot. Both have the run's lock open, as a backup program might. A cancel must not reach them."""
    for number, prompt in enumerate((OLD_START, OLD_BOOT)):
        script = write(f"{number}.txt", prompt) + f"touch $WORLD/working-{number}\n" + _UNTIL_GO
        add(world, prompt, script, role=f"add{number}")
    world.start("up")
    both = lambda: all((world.root / f"working-{number}").exists() for number in range(2))  # noqa: E731 - a fact
    world.wait_until(both, "both agents work", while_running="up")
    world.kill("up")
    (world.root / "go").touch()
    for number, prompt in enumerate((OLD_START, OLD_BOOT)):
        run = _run_directory(world, prompt)
        if run is None or not _comes((run / "empty.json").exists, A_WHILE):
            continue  # the fault came before there was a run
        _put_another_in_its_place(world, run, number, is_of_this_boot=prompt == OLD_START)
        _cancel(world, f"cancel{number}", prompt)
    world.start("up2")
    _comes(lambda: not world.is_running("up2") or _bystanders_that_died(world), A_WHILE)
    if _bystanders_that_died(world):
        _tell(world, f"lost: process: {_bystanders_that_died(world)} of no concern to us was ended")
    _end_bystanders(world)  # whoever takes one for a keeper would wait for it for ever
    world.wait("up2")


def overtaken(world: World) -> None:
    """A keeper is slow to start (stopped, where the case says so), its supervisor dies, the next one comes before the
    keeper has recorded anything: by its lock it is known to be there, and no second agent is started."""
    together = 'for f in $WORLD/pid-*; do [ -e "$f" ] && kill -0 ${f##*-} && touch $WORLD/together; done\n'
    add(world, OVERTAKEN, together + _HERE + write("done.txt", "done") + _UNTIL_GO)
    world.start("up")
    is_working = (world.root / "working").exists
    world.wait_until(lambda: _stopped_keeper(world) or is_working(), "it is on its way", while_running="up")
    world.kill("up")
    if any(fault.action == "stop" for fault in world.case.faults):  # by a supervisor that may be dead already
        _comes(lambda: _stopped_keeper(world), A_WHILE)
    keeper = _stopped_keeper(world)
    world.start("up2")
    if keeper and _comes(is_working, _patience(world)):
        os.kill(keeper, signal.SIGCONT)  # another agent is at work: now it gets company
        _comes((world.root / "together").exists, A_WHILE)
    elif keeper:
        os.kill(keeper, signal.SIGCONT)
    (world.root / "go").touch()
    world.wait("up2")
    if (world.root / "together").exists():
        _tell(world, "twice: agent: a second one was started while the first was at work")


def unrecorded(world: World) -> None:
    """A keeper dies between the fork of its agent and the record of it (stopped there, where the case says so): what
    no record names has not run. The supervisor beats slowly, because each of its beats lets a stopped keeper go on."""
    world.beat_every = 30.0
    add(world, UNRECORDED, write("done.txt", "done") + _HERE)
    world.start("up")
    is_working = (world.root / "working").exists
    world.wait_until(lambda: _stopped_keeper(world) or is_working(), "it is on its way", while_running="up")
    if keeper := _stopped_keeper(world):
        _comes(is_working, _patience(world))
        os.kill(keeper, signal.SIGKILL)
    world.wait("up")


def stubborn(world: World) -> None:
    """Cancelled, with an agent that takes its time: the cancel is answered when it is dead, and not before."""
    add(world, STUBBORN, write("half.txt", "half") + "trap '' TERM\n" + _HERE + "while :; do sleep 0.05; done\n")
    world.start("up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    _cancel(world, "cancel", STUBBORN)
    world.wait_until(lambda: _is_answered(world), "the cancel is answered", while_running="up")
    if _is_answered(world) and _agents(world):
        _tell(world, "leaked: process: a cancel was answered while its agent lived")
    world.wait("up")


def _cancel(world: World, role: str, prompt: str) -> None:
    task = task_id(world, prompt)
    ask = lambda: commands_of(world).cancel(task, "the matrix says so")  # noqa: E731 - opened in the child, after the fork
    insist(world, role, ask, lambda: events_tell(world, "run.stopping"))


def unhurried(world: World) -> None:
    """A supervisor with slow beats: one that was declared lost meanwhile does not hear it from its own beat first."""
    world.beat_every = 30.0
    add(world, UNHURRIED, write("done.txt", "done"))
    world.up("up")


def told(world: World) -> list[str]:
    """What a scenario saw while it was played."""
    file = world.root / "seen"
    return file.read_text().splitlines() if file.exists() else []


def _tell(world: World, words: str) -> None:
    with (world.root / "seen").open("a") as file:
        file.write(words + "\n")


def _comes(fact: Callable[[], object], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _patience(world: World) -> float:
    """For what must not come. With a protection left out it must: that is waited for, however busy the machine is."""
    return A_WHILE if world.is_maimed else A_MOMENT


def _agents(world: World) -> list[int]:
    """Those that live, of all that left their pid."""
    return [pid for file in world.root.glob("pid-*") if _lives(pid := int(file.name.removeprefix("pid-")))]


def _lives(pid: int) -> bool:
    return _state_of(pid) not in ("", "Z", "X")


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _stopped_keeper(world: World) -> int | None:
    """The one that the case stopped."""
    home = os.fsencode(world.home) + b"/runs/"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or _state_of(int(entry.name)) != "T":
            continue
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if home in line and b"keeper.py" in line:
            return int(entry.name)
    return None


def _run_directory(world: World, prompt: str) -> Path | None:
    task = task_id(world, prompt)
    found = [run["id"] for run in Evidence(str(world.home)).runs.values() if run["task_id"] == task] if task else []
    return world.home / "runs" / str(found[-1]) if found else None


def _is_answered(world: World) -> bool:
    return any(row["answered_at"] is not None for row in Evidence(str(world.home)).tables["requests"])


def _put_another_in_its_place(world: World, run: Path, number: int, *, is_of_this_boot: bool) -> None:
    """The keeper's pid as the kernel would give it to somebody else. We cannot wait for that: the record is changed."""
    with (run / "lock").open() as lock:
        other = subprocess.Popen(["sleep", "1000"], stdin=lock, cwd=world.root)
    (world.root / f"bystander-{number}").write_text(str(other.pid))
    record = json.loads((run / "pid.json").read_text())
    record["keeper"]["pid"] = other.pid
    if not is_of_this_boot:
        fields = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()
        record["keeper"]["start"] = int(fields[19])
        record["boot_id"] = "00000000-0000-0000-0000-000000000000"
    (run / "pid.json").write_text(json.dumps(record))


def _bystanders(world: World) -> list[int]:
    return [int(file.read_text()) for file in world.root.glob("bystander-*")]


def _bystanders_that_died(world: World) -> list[int]:
    return [pid for pid in _bystanders(world) if not _lives(pid)]


def _end_bystanders(world: World) -> None:
    for pid in _bystanders(world):
        os.kill(pid, signal.SIGKILL)  # our own child, not reaped yet


def _alone(play: Play, prompts: tuple[str, ...], ends: tuple[str, ...], about: str) -> Scenario:
    """Not in the short run: what they show needs seconds."""
    expected = dict.fromkeys(prompts, ends)
    return Scenario(play, expected, about, keepers_may_die=False, is_attended=True, is_variation=True, also=told)


SCENARIOS: dict[str, Scenario] = {
    "orphaned": _alone(orphaned, (ORPHAN,), ("completed",), "nobody comes back for it: its keeper ends it"),
    "bystander": _alone(
        bystander, (OLD_START, OLD_BOOT), ("completed", "cancelled"), "what a record names is another's process by now"
    ),
    "overtaken": _alone(overtaken, (OVERTAKEN,), ("completed",), "the next supervisor is faster than a keeper"),
    "unrecorded": _alone(unrecorded, (UNRECORDED,), ("completed",), "a keeper dies before it has recorded its agent"),
    "unhurried": _alone(unhurried, (UNHURRIED,), ("completed",), "a supervisor that beats slowly"),
    "stubborn": _alone(stubborn, (STUBBORN,), ("cancelled",), "cancelled, with an agent that takes its time"),
}
