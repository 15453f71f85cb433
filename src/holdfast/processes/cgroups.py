"""Cgroups for agents: one v2 leaf per run, which can be killed atomically and proven empty (ADR 0013).

A probe (mkdir, move, kill, rmdir) finds out whether this user may make cgroups. The version is no indication: mounts
may be hybrid (v1 controllers, v2 without any), read-only, or delegated only in part. A limit is set on the v2 leaf if
that has the controller, else on a group in the controller's v1 hierarchy. Without either, rlimits and the keeper's own
checks hold the limit.

The home's file `cgroups` lists every base directory that this home has made. A base is recorded before it is made, and
every start checks the list. The place of a base depends on the cgroup in which `holdfast up` was started, so the next
start may use another one. `doctor` only tries: its bases are listed in `cgroups.trial-PID` until they are removed.

A probe that is killed leaves no process: the process that it kills reads from a pipe of the probe, and ends with it.
Its empty groups carry the probe's pid. The next start, `sweep` and `purge` remove those of dead probes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.files import listed, open_private
from holdfast.core.task_settings import RunLimits
from holdfast.processes.identity import read_process

NAME = "cgroups"
_PROBE_NAME = re.compile(r"probe-(\d+)")
_TRIAL_FILE = re.compile(NAME + r"\.trial-(\d+)")
CONTROLLERS = ("memory", "pids", "cpu")
PROVE_PATIENCE = 5.0
LOOK_AGAIN = 0.005

# controller → (file in v2, file in v1)
_LIMIT_FILES = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
    "cpu": ("cpu.weight", "cpu.shares"),
}


@dataclass(frozen=True, slots=True)
class HomeCgroups:
    """The directories in which the runs of one home have their cgroups."""

    base: str  # in the v2 hierarchy; one directory per run below it
    controllers: Mapping[str, str] = field(default_factory=dict)  # memory, pids, cpu → base in its hierarchy

    def intent(self, run_id: str, limits: RunLimits) -> dict[str, object]:
        """Return the cgroups that the keeper of a run has to make, as intent.json lists them."""
        leaf = os.path.join(self.base, run_id)
        groups, settings, values = [leaf], [], _limit_values(limits)
        if limits.processes_ceiling is not None and self.controllers.get("pids") == self.base:
            values.setdefault("pids", limits.processes_ceiling)  # one more write; the leaf is made anyway
        for controller, value in values.items():
            if controller in self.controllers:
                group = os.path.join(self.controllers[controller], run_id)
                groups += [group] if group not in groups else []
                settings += _settings(controller, group, value, is_v2=group == leaf)
        wanted: dict[str, object] = {"leaf": leaf, "groups": groups, "settings": settings}
        for controller, key, files in (
            ("memory", "memory_events", ("memory.events", "memory.oom_control")),
            ("pids", "process_events", ("pids.events", "pids.events")),
        ):
            if controller in self.controllers:
                folder = os.path.join(self.controllers[controller], run_id)
                wanted[key] = os.path.join(folder, files[0 if folder == leaf else 1])
        return wanted

    def remove(self, run_id: str) -> None:
        """Remove the groups of a run that is proven empty."""
        for base in self._bases:
            remove_group(os.path.join(base, run_id))

    def leave(self) -> None:
        """Remove the bases if no run is left. The kernel refuses to remove a base in which a run has a group."""
        for base in self._bases:
            with contextlib.suppress(OSError):
                faults.passed("cgroup.leave")
                os.rmdir(base)

    @property
    def _bases(self) -> set[str]:
        return {self.base, *self.controllers.values()}


def base_name(home: str) -> str:
    """Return the name of this home's base directories. It depends on the home, so two homes never share a group."""
    return "holdfast-" + hashlib.sha256(os.fsencode(os.path.realpath(home))).hexdigest()[:12]


def is_our_leaf(leaf: object, home: str, run_id: str) -> bool:
    """True if a recorded leaf belongs to that run. The agent can write the record and name an unrelated cgroup."""
    if not isinstance(leaf, str) or not os.path.isabs(leaf) or os.path.normpath(leaf) != leaf:
        return False
    parent, name = os.path.split(leaf)
    if name != run_id or os.path.basename(parent) != base_name(home):
        return False
    try:
        return os.stat(parent).st_dev == os.stat(_own_groups()[""][0]).st_dev  # a real cgroup, not an imitation
    except (OSError, KeyError):
        return False


async def end_leaf(leaf: str, base: str) -> bool:
    """Kill everything in a dead keeper's leaf. True proves that the leaf is empty.

    A missing leaf counts as empty, because only an empty one can be removed. That holds only if the leaf was directly
    below `base`, where our own runs have theirs.
    """
    import asyncio  # not at the top: commands that only list the bases (`top --once`) must start fast

    deadline = asyncio.get_running_loop().time() + PROVE_PATIENCE
    while True:
        faults.passed("cgroup.kill")
        try:
            _write(f"{leaf}/cgroup.kill", "1")
            if not is_populated(leaf):
                remove_group(leaf)
                return True
        except FileNotFoundError:
            return os.path.dirname(leaf) == base
        except OSError:
            return False
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(LOOK_AGAIN)


def is_populated(leaf: str) -> bool:
    with open(f"{leaf}/cgroup.events", encoding="ascii") as file:
        return "populated 1" in file.read()


def probe_cgroups(home: str, record: CgroupRecord | None = None) -> HomeCgroups | str:
    """Return the cgroups of this home, or the reason why there are none. The probe is real: it kills a process in one.

    The base is below our own cgroup if limits can be held there, else below the nearest ancestor where they can.
    Controllers are not available below a cgroup that contains processes. So a sibling of our own cgroup often has
    controllers that a child does not have.

    `record` lists each base before it is made, and names it: a trial has a name of its own, because a supervisor may
    be using the real base.
    """
    own = _own_groups()
    if "" not in own:
        return "no cgroup v2 hierarchy is mounted"
    point, path = own[""]
    name = record.name if record else base_name(home) + _trial_suffix()
    usable: HomeCgroups | None = None
    problems = []
    for parent in _own_group_and_parents(point, path):
        found = _try_base(os.path.join(parent, name), own, record.note if record else lambda _base: None)
        if isinstance(found, str):
            problems.append(found)
            continue
        if usable is not None and found.base in found.controllers.values():
            remove_group(usable.base)
            return found
        usable = usable or found
        if found.base != usable.base:
            remove_group(found.base)
        if found.base in found.controllers.values():
            break
    return usable or problems[0]


def _own_group_and_parents(point: str, path: str) -> Iterator[str]:
    """Yield our own cgroup directory, its parent, and so on, up to the mount point or a group with limits."""
    while True:
        yield path
        if path == point or _has_limits(path):
            return
        path = os.path.dirname(path)


def _has_limits(group: str) -> bool:
    """True if this group has a limit, which also holds for us. Agents must not escape from it."""
    files = (f"{group}/{name}" for name in ("memory.max", "memory.high", "pids.max", "cpu.max"))
    return any(words[:1] not in ([], ["max"]) for words in map(_words, files))


def _try_base(base: str, own: Mapping[str, tuple[str, str]], note: Callable[[str], None]) -> HomeCgroups | str:
    faults.passed("cgroup.probe")
    group = os.path.join(base, f"probe-{os.getpid()}")
    try:
        note(base)
        os.makedirs(group, exist_ok=True)
        problem = _try_kill(group)
        remove_group(group)
    except OSError as error:
        remove_group(base)
        return f"{error.strerror} ({error.filename or base})"
    if problem:
        remove_group(base)
    return problem or HomeCgroups(base, _controllers(own, base, note))


def _try_kill(group: str) -> str:
    """Move a process of ours into the group, kill the group, wait for the process to die. Return a problem or "".

    The process reads from a pipe that only we hold open. So it ends by itself if we are killed before it is.
    """
    faults.passed("cgroup.try")
    victim = subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/", start_new_session=True
    )
    try:
        _write(f"{group}/cgroup.procs", str(victim.pid))
        faults.passed("cgroup.tried")
        if not is_populated(group):
            return "a process that was moved in is not there"
        _write(f"{group}/cgroup.kill", "1")
        victim.wait(timeout=5)
        return ""
    except subprocess.TimeoutExpired:
        return "cgroup.kill killed nothing"
    finally:
        victim.send_signal(signal.SIGKILL)  # safe: either it is not reaped yet, or Popen knows that it is
        victim.communicate()


def _controllers(own: Mapping[str, tuple[str, str]], base: str, note: Callable[[str], None]) -> dict[str, str]:
    """Return the base of each controller that can hold limits: in v2 if `base` has the controller, else in v1."""
    found = {}
    for name in _words(f"{base}/cgroup.controllers"):
        if name in CONTROLLERS:
            with contextlib.suppress(OSError):
                _write(f"{base}/cgroup.subtree_control", f"+{name}")
                found[name] = base
    for name in CONTROLLERS:
        if name not in found and name in own:
            group = os.path.join(own[name][1], os.path.basename(base))
            probe = os.path.join(group, f"probe-{os.getpid()}")
            faults.passed("cgroup.controller")
            with contextlib.suppress(OSError):
                note(group)
                os.makedirs(probe, exist_ok=True)
                if os.access(os.path.join(probe, _LIMIT_FILES[name][1]), os.W_OK):
                    found[name] = group
                remove_group(probe)
    return found


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _own_groups() -> dict[str, tuple[str, str]]:
    """Return (mount point, our directory) per hierarchy: "" is v2; "memory", "pids", "cpu" are the v1 ones."""
    mounts: dict[str, tuple[str, str]] = {}  # key → (mount point, root of the mount)
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            kind, _source, options = right.split()[:3]
            root, point = (_plain(word) for word in left.split()[3:5])
            if kind == "cgroup2":
                mounts.setdefault("", (point, root))
            elif kind == "cgroup":
                for name in set(options.split(",")) & set(CONTROLLERS):
                    mounts.setdefault(name, (point, root))
    found = {}
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _number, names, path = line.rstrip("\n").split(":", 2)
            for name in names.split(","):
                if name in mounts:
                    point, root = mounts[name]
                    inside = os.path.relpath(path, root)
                    mine = os.path.normpath(os.path.join(point, "" if inside.startswith("..") else inside))
                    found[name] = point, mine
    return found


def _plain(word: str) -> str:
    return word.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def _limit_values(limits: RunLimits) -> dict[str, int]:
    wanted = {"memory": limits.memory, "pids": limits.processes, "cpu": limits.cpu_weight}
    return {name: value for name, value in wanted.items() if value is not None}


def _settings(controller: str, group: str, value: int, *, is_v2: bool) -> list[list[str]]:
    name = _LIMIT_FILES[controller][0 if is_v2 else 1]
    if controller == "cpu" and not is_v2:
        value = max(2, value * 1024 // 100)  # 1024 shares equal a weight of 100
    settings = [[os.path.join(group, name), str(value)]]
    if controller == "memory" and is_v2:
        settings.append([os.path.join(group, "memory.oom.group"), "1"])  # so that the kernel kills the whole run
    return settings


def remove_group(group: str) -> bool:
    """Remove an empty group, with the groups that an agent made inside. The kernel refuses if it has processes."""
    try:
        for folder, _folders, _files in os.walk(group, topdown=False):
            faults.passed("cgroup.remove")
            os.rmdir(folder)
    except OSError:
        return False
    return True


def _write(path: str, text: str) -> None:
    faults.passed("cgroup.write")
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


class CgroupRecord:
    """The file `cgroups` of a home: one base directory per line. Lines not named after this home are ignored.

    A trial (`doctor`) has a file and bases of its own, named after its process, so that it never removes a base of a
    supervisor or of another trial.
    """

    def __init__(self, home: str, *, is_trial: bool = False) -> None:
        suffix = _trial_suffix() if is_trial else ""
        self._home = home
        self._file = os.path.join(home, NAME + suffix.replace("-", ".", 1))
        self.name = base_name(home) + suffix

    def note(self, base: str) -> None:
        if base not in self.all():
            faults.effect("cgroup.note")
            with open(self._file, "a", encoding="utf-8", errors="surrogateescape", opener=open_private) as file:
                file.write(base + "\n")

    def all(self) -> list[str]:
        return _read_bases(self._file, self.name)

    def sweep(self, in_use: Iterable[str]) -> int:
        """Remove the empty groups of runs that are over and of dead probes. Return how many.

        They are left only if a keeper or a probe was killed.
        """
        used = set(in_use)
        removed = 0
        for base in self.all():
            for name in listed(base):
                if name not in used and not _is_live_probe(name) and os.path.isdir(os.path.join(base, name)):
                    faults.passed("cgroup.sweep")
                    removed += remove_group(os.path.join(base, name))
        return removed + self._sweep_trials()

    def _sweep_trials(self) -> int:
        removed = 0
        for file, bases in self._dead_trials():
            for base in bases:
                faults.passed("cgroup.sweep_trial")
                removed += os.path.isdir(base) and remove_group(base)
            if not any(os.path.isdir(base) for base in bases):
                os.unlink(file)
        return removed

    def _dead_trials(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the record and the bases of each trial whose process is dead."""
        for name in listed(self._home):
            found = _TRIAL_FILE.fullmatch(name)
            if found and not _lives(int(found[1])):
                file = os.path.join(self._home, name)
                yield file, _read_bases(file, f"{base_name(self._home)}-trial-{found[1]}")

    def leftover_probes(self) -> list[str]:
        """Return the groups that killed probes have left."""
        left = [base for _file, bases in self._dead_trials() for base in bases if os.path.isdir(base)]
        for base in self.all():
            names = (name for name in listed(base) if _PROBE_NAME.fullmatch(name) and not _is_live_probe(name))
            left += [os.path.join(base, name) for name in names]
        return left

    def abandon(self) -> None:
        """Remove every empty group and base of a home that is itself about to be deleted.

        For example a test's home whose last supervisor was killed.
        """
        self.sweep(in_use=())
        self.leave()

    def leave(self) -> None:
        """Remove the bases and then the file, if no run is left. A living run's group keeps its bases."""
        left = []
        for base in self.all():
            with contextlib.suppress(OSError):
                faults.passed("cgroup.unbase")
                os.rmdir(base)
            left += [base] if os.path.isdir(base) else []
        if not left:
            with contextlib.suppress(FileNotFoundError):
                faults.passed("cgroup.forget")
                os.unlink(self._file)


def _read_bases(path: str, base: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return [line for line in file.read().splitlines() if os.path.basename(line) == base]
    except FileNotFoundError:
        return []


def _trial_suffix() -> str:
    return f"-trial-{os.getpid()}"


def _is_live_probe(name: str) -> bool:
    """True if the group's name is that of a probe whose process lives."""
    found = _PROBE_NAME.fullmatch(name)
    return found is not None and _lives(int(found[1]))


def _lives(pid: int) -> bool:
    seen = read_process(pid)
    return not seen.readable or (seen.start_ticks is not None and not seen.zombie)
