"""The keeper: one small process per agent, which outlives the supervisor and ends the agent's process tree with proof.

Forked by keeper_fork_server.py, or run as `python -I -S -X utf8 keeper.py RUN_DIR LOCK_FD READY_FD`. The keeper must
keep working while Holdfast is upgraded underneath. So it is one file with one thread, uses only the standard library,
and imports nothing later. docs/architecture/keeper.md has the protocol. In short:

1. The launcher holds the run's flock and the keeper inherits the lock. While the keeper lives the lock is taken. A
   free lock proves that no keeper lives or will wake.
2. The keeper becomes a child subreaper. Every process of the agent's tree, daemons included, ends up as its child.
3. The keeper forks the agent and puts the agent into cgroups of its own where intent.json names some. The agent waits
   on a go-pipe and is released only after pid.json is on disk. The keeper stays outside of the agent's cgroups.
4. The keeper waits for: the agent's end, a stop signal (TERM fast, USR1 graceful), the deadline, a limit that is hit,
   or the supervisor's silence.
5. Every path ends in the same steps, the "ladder". The leader (the agent's first process) gets TERM. The rest gets TERM
   when the leader is gone. The whole tree shares one grace period. When that is over, the keeper sends KILL through
   `cgroup.kill` and to every descendant by its pidfd. The keeper reaps until the kernel returns ECHILD and the cgroup
   shows `populated 0`: then no process is left.
   Processes in a container are not descendants of the keeper. The ender that intent.json names (containers/client.py)
   ends them through their engine, and its exit code is the proof. Without that proof the keeper stays and tries again.
6. The cgroups are removed. Then exit.json and empty.json are overwritten in place, in space reserved at launch, fsynced
   and renamed. Only then does the keeper exit, which frees the lock. Until then it keeps the lock and tries again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import stat
import sys
import time
from collections.abc import Mapping

PROTOCOL = 1
ROOM = 4096
KILL_EVERY = 0.01  # seconds to the second KILL of the tree; the pause then grows up to SLOWEST_KILL
SLOWEST_KILL = 1.0
RETRY_RECORDS = 0.5
LOOK_EVERY = 5.0  # seconds between checks of the output size; heartbeats wake the keeper about as often anyway
LOOK_SOON = 0.25  # the same, while the output grows fast
GROWS_FAST = 8 << 20
FASTEST_DISK = 500e6  # bytes a second
WATCH_EVERY = 0.5  # seconds between checks of memory and processes, when they have a limit
HEAD_KEPT = 1 << 20  # bytes; the beginning of a log is never punched, because agents print their identity there
PUNCH_AT_LEAST = 4 << 20
OOM_SCORE = 500  # when memory is short, the kernel kills agents before keepers and supervisors
DATA_SLACK = 1.25  # the rlimit is above the limit, so that the keeper's own check comes first and knows the cause
RMDIR_TRIES = 50
ENDED_OUT_OF_MEMORY = 3  # an ender's other exit code for success, besides 0
RESERVED_SPACE_GONE = (errno.ENOENT, errno.ENXIO, errno.ELOOP, errno.EISDIR, errno.ENOTDIR)
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FAULT_PREFIX = "HOLDFAST_FAULT"  # variables that arm crash points; an agent never gets them

_libc = ctypes.CDLL(None, use_errno=True)
if hasattr(_libc, "fallocate"):  # not on macOS, where this file is only imported
    _libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


_fault = _trace = _once = ""
_hits: dict[str, int] = {}


def set_faults(environment: Mapping[str, str]) -> None:
    """Arm the fault points from this process's environment, which the supervisor gave it, never from the agent's."""
    global _fault, _trace, _once
    _fault = environment.get("HOLDFAST_FAULT", "")
    _trace = environment.get("HOLDFAST_FAULT_TRACE", "")
    _once = environment.get("HOLDFAST_FAULT_ONCE", "")  # a file; if it exists, another keeper had the fault already


def fault_point(name: str, may_fail: bool = False) -> None:
    """Crash or fail here if HOLDFAST_FAULT asks for it. Same syntax as faults.py, which the keeper must not import."""
    if not (_fault or _trace):
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _trace:
        with open(_trace, "a", encoding="utf-8") as trace:
            trace.write(f"{name}:{_hits[name]}{'' if may_fail else ':kill-only'}\n")
    for word in _fault.split(","):
        point, _, rest = word.partition(":")
        hit, _, action = rest.partition(":")
        if point == name and _hits[name] == int(hit or 1):
            if _once:
                try:
                    os.close(os.open(_once, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return
            if action in ("", "kill", "stop"):
                os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)
            elif action == "exit":
                os._exit(70)
            elif may_fail:
                raise OSError(getattr(errno, action), f"injected at {name}")


def read_file(path: str) -> bytes:
    """Read a whole file without Python's file objects, whose buffers would cost every keeper memory of its own."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        blocks = [os.read(fd, 16384)]
        while blocks[-1]:
            blocks.append(os.read(fd, 65536))
        return b"".join(blocks)
    finally:
        os.close(fd)


def boot_id() -> str:
    return read_file("/proc/sys/kernel/random/boot_id").decode().strip()


def process_stat(pid: int) -> tuple[int, int, str] | None:
    """Return (parent, start ticks, state letter) of a process, or None when the process is gone."""
    try:
        fields = read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None  # gone, or hidden from us: another user's process, which is not in our tree
    return int(fields[1]), int(fields[19]), fields[0].decode()


def descendants(root: int) -> list[tuple[int, int]]:
    """Return every process below `root` as (pid, start ticks), from one snapshot of /proc."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = process_stat(int(name))
            if stat is not None:
                children.setdefault(stat[0], []).append((int(name), stat[1]))
    found: list[tuple[int, int]] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(pid for pid, _start in below)
    return found


def signal_exactly(pid: int, start_ticks: int, number: int) -> None:
    """Signal exactly that process: the pidfd pins the process, the start time proves that the pid was not reused."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        stat = process_stat(pid)
        if stat is not None and stat[1] == start_ticks:
            signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return  # gone meanwhile, or we may not signal it (setuid): the ladder tries again, ever more slowly
    finally:
        os.close(fd)


def measure_tree(root: int) -> tuple[int, int]:
    """Return (bytes of private memory, number of threads) below `root`. The kernel's own limit counts threads too."""
    memory = members = 0
    for pid in tree_pids(root):
        try:
            fields = read_file(f"/proc/{pid}/statm").split()
            memory += (int(fields[1]) - int(fields[2])) * resource.getpagesize()
            members += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue  # ended meanwhile
    return memory, members


def tree_pids(root: int) -> list[int]:
    """Return the pids below `root`. Walks only that tree if the kernel lists children: cheap enough to repeat."""
    if not os.path.exists(f"/proc/{root}/task/{root}/children"):
        return [pid for pid, _start in descendants(root)]
    found: list[int] = []
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                below = list(map(int, read_file(f"/proc/{pid}/task/{thread}/children").split()))
            except OSError:
                continue  # the thread ended meanwhile
            found.extend(below)
            waiting.extend(below)
    return found


def read_counter(path: str, word: str) -> int:
    """Return the number after `word` in a file of "word number" lines (memory.events, pids.events, vmstat), or 0."""
    try:
        _before, found, after = (b"\n" + read_file(path)).partition(f"\n{word} ".encode())
        return int(after.split(maxsplit=1)[0]) if found else 0
    except (OSError, ValueError, IndexError):
        return 0


def nearest_oom_counter(memory_events: str) -> str:
    """Return the file that counts the kernel's OOM kills of the fewest other processes beside the run.

    `memory_events`: the file of the run's own cgroup. Next is the v1 memory cgroup that the run is in, which does not
    count those below it. The last is the whole machine.
    """
    if memory_events and os.path.exists(memory_events):
        return memory_events
    for line in read_file("/proc/self/cgroup").decode(errors="replace").splitlines():
        _number, controllers, path = line.split(":", 2)
        counter = f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.oom_control"
        if "memory" in controllers.split(",") and os.path.exists(counter):
            return counter
    return "/proc/vmstat"


class KeeperCgroups:
    """The run's own cgroups, as intent.json names them. Without any, every method does nothing.
    The v2 leaf can be killed and proven empty. On systems with v1 controllers, further groups only hold limits."""

    def __init__(self, wanted: dict[str, object]) -> None:
        self.leaf = str(wanted.get("leaf", ""))
        self.groups = [str(path) for path in wanted.get("groups", [])]  # type: ignore[attr-defined]  # a JSON list
        pairs: list[list[str]] = wanted.get("settings", [])  # type: ignore[assignment]  # a JSON list of pairs
        self.settings = [(str(path), str(value)) for path, value in pairs]
        self.memory_events = str(wanted.get("memory_events", ""))
        self.process_events = str(wanted.get("process_events", ""))
        self.note = ""  # why there is no leaf, or why a limit is not set, although it was wanted

    def make(self) -> None:
        """Make the cgroups and set their limits. The agent runs without what fails, and pid.json records why."""
        try:
            fault_point("keeper.cgroup", may_fail=True)
            for group in self.groups:
                os.makedirs(group, mode=0o755, exist_ok=True)
            fault_point("keeper.cgroup_made")
        except OSError as problem:
            self.give_up(problem)
            return
        for path, value in self.settings:
            try:
                write_file(path, value)
            except OSError as problem:  # only this limit is not held by the cgroup; the leaf can still be killed
                self.note += f"{os.path.basename(path)} could not be set: {problem.strerror}. "
                self.memory_events = "" if "memory" in path else self.memory_events
                self.process_events = "" if "pids" in path else self.process_events

    def take_in(self, pid: int) -> None:
        """Put the agent into the cgroups before it may run, so that all processes it starts are inside too."""
        try:
            for group in self.groups:
                write_file(os.path.join(group, "cgroup.procs"), str(pid))
        except OSError as problem:
            self.give_up(problem)

    def give_up(self, problem: OSError) -> None:
        self.note = f"no cgroup: {problem.strerror} ({problem.filename or 'injected'})"
        self.leaf = self.memory_events = self.process_events = ""

    def kill(self) -> None:
        if self.leaf:
            try:
                write_file(os.path.join(self.leaf, "cgroup.kill"), "1")
            except OSError:
                return  # the keeper also signals the descendants one by one

    def is_full(self, limit: int) -> bool:
        """True if the kernel refused a fork because of this group's limit. The counter has other groups' limits too."""
        if not read_counter(self.process_events, "max"):
            return False
        try:
            return int(read_file(os.path.join(os.path.dirname(self.process_events), "pids.current"))) >= limit - 1
        except (OSError, ValueError):
            return False

    def is_populated(self) -> bool:
        return bool(self.leaf) and read_counter(os.path.join(self.leaf, "cgroup.events"), "populated") != 0

    def remove(self) -> None:
        """Remove the cgroups. A group that stays busy after RMDIR_TRIES tries is left to the sweep."""
        fault_point("keeper.cgroup_remove")
        for group in self.groups:
            for _try in range(RMDIR_TRIES):
                try:
                    for folder, _folders, _files in os.walk(group, topdown=False):  # an agent may make groups inside
                        os.rmdir(folder)
                    break
                except OSError:
                    time.sleep(0.002)


def write_file(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def remove_obstacle(name: str) -> None:
    """Unlink whatever has this name. A directory cannot be unlinked or overwritten, so it is renamed."""
    try:
        os.unlink(name)
    except FileNotFoundError:
        return
    except OSError:
        os.rename(name, f"{name}.obstacle-{time.monotonic_ns()}")


class Output:
    """The size of out.log and err.log, and holes punched into them to free disk space. Offsets stay valid."""

    def __init__(self, limit: int, kept: int) -> None:
        self.limit = limit  # bytes of both logs together; 0: no limit
        self.kept = kept
        self.files = [os.open(name, os.O_RDWR | os.O_CLOEXEC) for name in ("out.log", "err.log")]
        self.punched = [HEAD_KEPT, HEAD_KEPT]
        self.written = 0
        self.look_at = 0.0

    def look(self, now: float) -> bool:
        """True if the output limit is exceeded. Sets the time of the next check: soon while the output grows fast."""
        sizes = [os.fstat(fd).st_size for fd in self.files]
        grown, self.written = sum(sizes) - self.written, sum(sizes)
        soon = LOOK_SOON if grown > GROWS_FAST else LOOK_EVERY
        if self.limit:  # so that even on the fastest disk the limit is not exceeded by much
            soon = min(soon, max(LOOK_SOON, (self.limit - self.written) / FASTEST_DISK))
        self.look_at = now + soon
        for number, size in enumerate(sizes):
            end = (size - self.kept) & ~0xFFF  # whole blocks
            if end - self.punched[number] >= PUNCH_AT_LEAST and self.punch(number, end):
                self.punched[number] = end
        return 0 < self.limit < self.written

    def punch(self, number: int, end: int) -> bool:
        start = self.punched[number]
        mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        fault_point("keeper.punch")
        return int(_libc.fallocate(self.files[number], mode, start, end - start)) == 0  # False: cannot punch holes here


class Records:
    """The records that the keeper writes into the run directory. Every write is durable before it is visible."""

    def __init__(self) -> None:
        self._directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._filled: set[str] = set()

    def create(self, name: str, content: dict[str, object]) -> None:
        fault_point("keeper.create", may_fail=True)
        remove_obstacle(name + ".new")
        fd = os.open(name + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(content).encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        self._rename(name + ".new", name)
        fault_point("keeper.created")

    def fill(self, name: str, content: dict[str, object]) -> bool:
        """Write a record into the space that the launcher reserved (`name`.room). Works on a full disk too."""
        if name in self._filled:
            return True
        try:
            self._fill(name, json.dumps(content).encode()[:ROOM].ljust(ROOM))
        except OSError as problem:
            if problem.errno in RESERVED_SPACE_GONE:
                return self._create_without_reserved(name, content)
            return False
        self._filled.add(name)
        return True

    def _create_without_reserved(self, name: str, content: dict[str, object]) -> bool:
        """Write a record whose reserved space the agent removed or replaced. True also if the run directory is gone."""
        try:
            self.create(name, content)
        except FileNotFoundError:
            return True  # the record would never be read
        except OSError:
            return False
        self._filled.add(name)
        return True

    def _fill(self, name: str, block: bytes) -> None:
        fault_point("keeper.fill", may_fail=True)
        # O_NONBLOCK: the agent may have put a FIFO here, and the keeper must not wait for its reader.
        fd = os.open(name + ".room", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileNotFoundError(errno.ENOENT, "something else is in its place", name)
            os.pwrite(fd, block, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        fault_point("keeper.rename", may_fail=True)
        self._rename(name + ".room", name)
        fault_point("keeper.filled")

    def _rename(self, source: str, name: str) -> None:
        """Rename over whatever the agent may have put there, a directory included. Durable on return."""
        try:
            os.rename(source, name)
        except (IsADirectoryError, NotADirectoryError):
            remove_obstacle(name)
            os.rename(source, name)
        os.fsync(self._directory)


class Keeper:
    def __init__(self, intent: dict[str, object], ready_fd: int, environment: bytes) -> None:
        self.intent = intent
        self.environment = environment
        self.ready_fd = ready_fd
        self.records = Records()
        self.grace = float(str(intent["grace"]))
        self.fast_grace = float(str(intent["fast_grace"]))
        self.orphan_grace = float(str(intent["orphan_grace"]))
        self.timeout = float(str(intent["timeout"]))
        limits: dict[str, int] = intent.get("limits") or {}  # type: ignore[assignment]  # a JSON object of numbers
        self.memory_limit = int(limits.get("memory") or 0)
        self.process_limit = int(limits.get("processes") or 0)
        self.cgroups = KeeperCgroups(intent.get("cgroup") or {})  # type: ignore[arg-type]  # a JSON object
        self.output = Output(int(limits.get("output") or 0), int(limits.get("output_kept") or 0) or (64 << 20))
        self.watch_at = time.monotonic() + WATCH_EVERY if self.memory_limit or self.process_limit else float("inf")
        self.oom_counter = nearest_oom_counter("")
        self.oom_kills = read_counter(self.oom_counter, "oom_kill")
        self.ender = [str(word) for word in intent.get("ender") or []]  # type: ignore[attr-defined]  # a JSON list
        self.container_ended = not self.ender
        self.detail = ""
        self.cause: str | None = None  # why the ladder began; None until it begins
        self.kill_at: float | None = None
        self.kill_pause = KILL_EVERY
        self.killing = False
        self.leader = 0
        self.leader_status: int | None = None
        self.exit_record: dict[str, object] = {}
        self.empty = False
        self.exec_error = ""
        self.asked: int | None = None  # the newest stop signal, set by the handler
        self.last_beat = time.monotonic()
        self.deadline = time.monotonic() + self.timeout

    # -- start ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.control = os.open("control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self.record_stop_signal)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self.fork_agent()

    def fork_agent(self) -> None:
        go_r, go_w = os.pipe2(os.O_CLOEXEC)
        self.error_r, error_w = os.pipe2(os.O_CLOEXEC)
        me = os.getpid()
        self.cgroups.make()
        fault_point("keeper.fork", may_fail=True)
        self.leader = os.fork()
        if self.leader == 0:
            os.close(go_w)
            self.become_agent(me, go_r, error_w)
        os.close(go_r)
        os.close(error_w)
        os.set_blocking(self.error_r, False)
        fault_point("keeper.forked")
        self.cgroups.take_in(self.leader)
        self.records.create("pid.json", self.identities())
        fault_point("keeper.recorded")
        with contextlib.suppress(BrokenPipeError):  # the child failed before exec; the error pipe has the reason
            os.write(go_w, b"!")
        os.close(go_w)
        fault_point("keeper.let_go")
        self.send_pid_to_launcher()
        self.deadline = time.monotonic() + self.timeout

    def send_pid_to_launcher(self) -> None:
        """Send the agent's pid to the launcher (which may be dead) by a pipe: the agent could tamper with a file."""
        try:
            os.write(self.ready_fd, str(self.leader).encode())
        except OSError:
            return
        finally:
            os.close(self.ready_fd)

    def identities(self) -> dict[str, object]:
        me, leader = process_stat(os.getpid()), process_stat(self.leader)
        assert me is not None
        assert leader is not None  # our unreaped child
        return {
            "protocol": PROTOCOL,
            "boot_id": boot_id(),
            "keeper": {"pid": os.getpid(), "start": me[1]},
            "agent": {"pid": self.leader, "start": leader[1]},
            "tier": "cgroup" if self.cgroups.leaf else "subreaper",
            "leaf": self.cgroups.leaf,
            "note": self.cgroups.note,
        }

    def become_agent(self, keeper: int, go: int, error: int) -> None:
        """Prepare the forked child for the agent, wait on the go-pipe, exec. Never returns."""
        argv = [str(word) for word in self.intent["argv"]]  # type: ignore[attr-defined]  # a JSON list
        doing = "prepare its process"
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(126)
            for number in (
                signal.SIGTERM,
                signal.SIGUSR1,
                signal.SIGCHLD,
                signal.SIGINT,
                signal.SIGHUP,
                signal.SIGPIPE,
                signal.SIGXFSZ,  # Python ignores it
            ):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            self.limit_agent()
            os.dup2(os.open("stdin", os.O_RDONLY), 0)
            os.dup2(os.open("out.log", os.O_WRONLY | os.O_APPEND), 1)
            os.dup2(os.open("err.log", os.O_WRONLY | os.O_APPEND), 2)
            doing = f"enter {self.intent['cwd']}"
            os.chdir(str(self.intent["cwd"]))
            if os.read(go, 1) != b"!":
                os._exit(126)  # the keeper died before pid.json was on disk: the agent was never started
            doing = f"run '{argv[0]}'"
            os.execvpe(argv[0], argv, json.loads(self.environment))
        except BaseException as problem:  # noqa: BLE001 - any error must reach the record, not unwind into the keeper
            why = problem.strerror if isinstance(problem, OSError) else str(problem)
            os.write(error, f"could not {doing}: {why}".encode(errors="replace")[:600])
        os._exit(127)

    def limit_agent(self) -> None:
        """Set the limits that the kernel can hold without a cgroup. Runs in the forked child."""
        try:
            with open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
                file.write(str(max(OOM_SCORE, int(file.read() or b"0"))).encode())
        except OSError:
            pass  # this only changes which process the kernel kills when memory is short
        if self.memory_limit and not self.cgroups.memory_events:
            _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            most = int(self.memory_limit * DATA_SLACK)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    # -- wait ----------------------------------------------------------------------------------------------------

    def record_stop_signal(self, number: int, _frame: object) -> None:
        self.asked = number

    def run(self) -> None:
        """Wait, and climb the ladder, until no process of the tree is left."""
        poller = select.poll()
        for fd in (self.wake_r, self.control, self.error_r):
            poller.register(fd, select.POLLIN)
        while True:
            self.reap()
            if self.empty:
                return
            self.react(time.monotonic())
            wait = max(0.0, self.next_moment() - time.monotonic())
            for fd, _event in poller.poll(wait * 1000 + 1):
                if fd == self.error_r:
                    poller.unregister(fd)
                self.read(fd)

    def reap(self) -> None:
        """Collect every child that ended. ECHILD proves that none is left, because a subreaper inherits all orphans."""
        orphans = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.end_container()
                self.empty = self.container_ended and not self.cgroups.is_populated()
                return
            if pid == 0:
                if orphans and self.killing:
                    self.kill_children()
                return
            orphans = True
            if pid == self.leader and self.leader_status is None:
                self.leader_ended(status)

    def leader_ended(self, status: int) -> None:
        self.leader_status = status
        self.read(self.error_r)
        self.end_container()
        self.detect_oom_kill()
        self.detect_peak_memory(status)
        if self.cause is None:
            self.cause = "exec_failed" if self.exec_error else "exited"
        self.exit_record = self.ending(status)
        self.terminate_rest(time.monotonic())  # before the record, because the disk may be slow
        self.records.fill("exit.json", self.exit_record)  # finish() tries again if this fails
        fault_point("keeper.leader_ended")

    def end_container(self) -> None:
        """End the agent's container once its client in this tree is gone. Waits for the ender, which has a deadline."""
        if self.container_ended:
            return
        fault_point("keeper.end_outside")
        try:
            ender = os.posix_spawn(self.ender[0], self.ender, {})
        except OSError:
            return  # for example no process can be started: the keeper stays and tries again until it has proof
        code = os.waitstatus_to_exitcode(os.waitpid(ender, 0)[1])
        self.container_ended = code in (0, ENDED_OUT_OF_MEMORY)
        if code == ENDED_OUT_OF_MEMORY and self.cause is None:
            self.cause = "out_of_memory"
            self.detail = "the kernel killed a process in its container"

    def terminate_rest(self, now: float) -> None:
        """Send TERM to the rest of the tree when the leader ended. It gets the rest of the grace period.
        A leader that only launches others ends at once and leaves them behind."""
        self.kill_at = now + self.grace if self.kill_at is None else self.kill_at
        self.signal_tree(signal.SIGTERM)

    def react(self, now: float) -> None:
        """Begin or continue the ladder, according to signals, deadlines and limits."""
        if self.asked is not None:
            fast = self.asked == signal.SIGTERM
            self.asked = None
            self.begin("stopped", now, self.fast_grace if fast else self.grace)
        elif now >= self.deadline and self.cause is None:
            self.begin("timeout", now, self.grace)
        elif now >= self.last_beat + self.orphan_grace and self.cause is None:
            self.begin("orphaned", now, self.grace)
        self.check_limits(now)
        if self.kill_at is not None and now >= self.kill_at:
            self.killing = True
            self.signal_tree(signal.SIGKILL)
            self.kill_at = now + self.kill_pause
            self.kill_pause = min(SLOWEST_KILL, self.kill_pause * 1.5)

    def begin(self, cause: str, now: float, grace: float) -> None:
        """Start the ladder, or shorten one that is running. A leader that ended by itself keeps its cause."""
        first = self.kill_at is None
        self.kill_at = now + grace if self.kill_at is None else min(self.kill_at, now + grace)
        if self.leader_status is None:
            if self.cause is None:
                self.cause = cause
            if first:
                fault_point("keeper.begin_end")
                signal_exactly(self.leader, self.leader_start(), signal.SIGTERM)
                signal_exactly(self.leader, self.leader_start(), signal.SIGCONT)

    def check_limits(self, now: float) -> None:
        """Check the limits when a check is due. Only the run that hit a limit is ended, with the limit as its cause."""
        if now >= self.output.look_at and self.output.look(now) and self.cause is None:
            self.detail = f"{self.output.written} bytes of {self.output.limit}"
            self.begin("output_limit", now, self.fast_grace)
        if now < self.watch_at or self.cause is not None:
            return
        self.watch_at = now + WATCH_EVERY
        if self.detect_oom_kill():
            self.begin("out_of_memory", now, self.fast_grace)
            return
        if self.process_limit and self.cgroups.is_full(self.process_limit):
            self.detail = f"the kernel refused to start more than {self.process_limit}"
            self.begin("process_limit", now, self.fast_grace)
        elif not (self.cgroups.memory_events and self.cgroups.process_events):
            self.check_tree_limits(now)

    def check_tree_limits(self, now: float) -> None:
        """Check the limits that no cgroup holds."""
        memory, members = measure_tree(os.getpid())
        if self.memory_limit and not self.cgroups.memory_events and memory > self.memory_limit:
            self.detail = f"its processes hold {memory} bytes of {self.memory_limit}"
            self.begin("out_of_memory", now, self.fast_grace)
        elif self.process_limit and not self.cgroups.process_events and members > self.process_limit:
            self.detail = f"{members} of {self.process_limit}"
            self.begin("process_limit", now, self.fast_grace)

    def detect_oom_kill(self) -> bool:
        """True if the kernel killed a process because of the run's own memory limit."""
        if self.cause is None and self.memory_limit and read_counter(self.cgroups.memory_events, "oom_kill"):
            self.cause = "out_of_memory"
            self.detail = f"the kernel killed a process in its cgroup at the limit of {self.memory_limit} bytes"
            return True
        return False

    def detect_peak_memory(self, status: int) -> None:
        """Set the cause "out of memory" if no cgroup holds the limit, the agent failed, and a process reached it."""
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        is_held_by_us = self.memory_limit and not self.cgroups.memory_events
        if self.cause is None and is_held_by_us and status != 0 and peak >= self.memory_limit:
            self.cause = "out_of_memory"
            self.detail = f"one of its processes held {peak} bytes; the limit is {self.memory_limit}"

    def leader_start(self) -> int:
        stat = process_stat(self.leader)
        return stat[1] if stat is not None else -1

    def signal_tree(self, number: int) -> None:
        fault_point("keeper.signal")
        if number == signal.SIGKILL:
            self.cgroups.kill()  # atomic, so processes that fork meanwhile are killed too
        for pid, start in descendants(os.getpid()):
            signal_exactly(pid, start, number)
            if number != signal.SIGKILL:
                signal_exactly(pid, start, signal.SIGCONT)  # a stopped process receives TERM only after CONT

    def kill_children(self) -> None:
        """Kill the keeper's direct children. Orphans become the keeper's children when their parent is reaped.
        A process that forks and exits every few milliseconds is gone before a snapshot of /proc is complete. But the
        list of the keeper's own children is one small file. They are not reaped yet, so their pids cannot be reused."""
        me = os.getpid()
        self.kill_at, self.kill_pause = time.monotonic() + KILL_EVERY, KILL_EVERY
        try:
            children = read_file(f"/proc/{me}/task/{me}/children").split()
        except OSError:
            return  # a kernel without CONFIG_PROC_CHILDREN: only the snapshots remain, now repeated sooner
        fault_point("keeper.kill_children")
        for pid in children:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except PermissionError:
                continue  # setuid: the ladder tries again, ever more slowly

    def next_moment(self) -> float:
        if self.kill_at is not None:
            return self.kill_at
        return min(self.deadline, self.last_beat + self.orphan_grace, self.output.look_at, self.watch_at)

    def read(self, fd: int) -> None:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        if fd == self.error_r:
            self.exec_error += data.decode(errors="replace")
        elif fd == self.control:
            self.record_heartbeats(data)

    def record_heartbeats(self, data: bytes) -> None:
        """Record the supervisor's heartbeats by their send time: old ones in the pipe do not prove that it is alive."""
        for line in data.split(b"\n"):
            try:
                sent = float(line.split()[1]) if line.startswith(b"beat ") else 0.0
            except (IndexError, ValueError):
                continue  # an incomplete line: the next heartbeat is complete
            self.last_beat = max(self.last_beat, min(sent, time.monotonic()))

    # -- end -----------------------------------------------------------------------------------------------------

    def ending(self, status: int) -> dict[str, object]:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "protocol": PROTOCOL,
            "cause": self.cause,
            "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "detail": (self.exec_error or self.detail)[:600],
            "at": time.time(),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
            "max_rss_kb": usage.ru_maxrss,
            "oom_kills": self.count_oom_kills(),
        }

    def count_oom_kills(self) -> int:
        """Return the kernel's OOM kills during the run, as near to the run as the machine counts them."""
        counter = nearest_oom_counter(self.cgroups.memory_events)
        return read_counter(counter, "oom_kill") - (self.oom_kills if counter == self.oom_counter else 0)

    def finish(self) -> None:
        """Remove the cgroups and write the last records. Until they are written the keeper holds its lock, so no
        supervisor takes it for dead."""
        fault_point("keeper.finish")
        self.output.look(time.monotonic())  # an agent may write a lot and end between two looks
        self.cgroups.remove()
        proof_of = "ECHILD and populated 0" if self.cgroups.leaf else "ECHILD"
        proof_of += " and the engine says that its container does not run" if self.ender else ""
        proof = {"protocol": PROTOCOL, "proof": proof_of, "by": "keeper", "at": time.time()}
        while not (self.records.fill("exit.json", self.exit_record) and self.records.fill("empty.json", proof)):
            time.sleep(RETRY_RECORDS)


def run_keeper(run_dir: str, lock_fd: int, ready_fd: int, environment: bytes) -> None:
    """Run a keeper from start to end. Never returns: the interpreter's own shutdown would only delay the exit."""
    os.set_inheritable(lock_fd, False)  # an agent that held the lock would look like a living keeper
    os.set_inheritable(ready_fd, False)
    os.chdir(run_dir)
    os.umask(0o077)
    intent = json.loads(read_file("intent.json"))
    if intent["protocol"] != PROTOCOL:
        raise SystemExit(f"keeper: intent.json has protocol {intent['protocol']}, this keeper has {PROTOCOL}")
    os.umask(int(intent.get("umask", 0o022)))  # so that the agent's files get the user's usual modes
    keeper = Keeper(intent, ready_fd, environment)
    keeper.start()
    keeper.run()
    keeper.finish()
    os._exit(0)


def main() -> None:
    """Keep a run without the fork server. Our environment is the agent's plus the supervisor's fault variables."""
    set_faults(os.environ)
    of_agent = {name: value for name, value in os.environ.items() if not name.startswith(FAULT_PREFIX)}
    run_keeper(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.dumps(of_agent).encode())


if __name__ == "__main__":
    main()
