"""Driving Holdfast from outside: the CLI, a real repository, real processes, and witnesses that are not Holdfast."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests import json_outputs
from tests.harness.mutations import Mutation
from tests.warm import CAN_BE_WARM, Warm, fits

from holdfast.cli.main import COMMANDS, UNFORESEEN

T = TypeVar("T")
LONGEST_NAP = 0.2
PATIENCE = 120.0  # how long a fact may take on a loaded machine before a test gives up


def wait_until(fact: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Wait for a fact, not for time: returns as soon as `fact()` is truthy, fails by name when it never is.

    A look takes a tenth of the time at most: where a command is asked, others could do nothing else meanwhile."""
    deadline = time.monotonic() + patience
    while True:
        began = time.monotonic()
        value = fact()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            pytest.fail(f"this never became true: {what}")
        time.sleep(min(max(0.01, 9 * (now - began)), LONGEST_NAP))


def wait_filled(path: Path, what: str) -> str:
    """Until somebody has written into a file, not only made it; what it says."""
    return wait_until(lambda: path.exists() and path.read_text(), what) or ""


STRICT = "HOLDFAST_TEST_STRICT" in os.environ  # `make test-strict`, on a quiet machine: the numbers as required


def in_company(seconds: float) -> float:
    """How long what takes so long on a machine of its own may take here, where others keep every core busy."""
    return seconds if STRICT else seconds * max(4.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))


def user_name() -> str:
    """The name of this process's uid, as events have it. A uid may have no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def waits_for_lock(pid: int) -> bool:
    """Asleep in a blocking flock: the kernel lists it among the waiters."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(words[1] == "->" and int(words[5]) == pid for words in lines)


@contextlib.contextmanager
def stopped_between_writes(fleet: Fleet, supervisor: subprocess.Popen[bytes]) -> Iterator[None]:
    """The supervisor is SIGSTOPped while it holds no lock of the store, so that others can still write."""
    with (fleet.home / "turnstile.lock").open("r+b") as turnstile:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        supervisor.send_signal(signal.SIGSTOP)
        wait_until(lambda: state_of(supervisor.pid) == "T", "the supervisor is stopped")
    try:
        yield
    finally:
        supervisor.send_signal(signal.SIGCONT)


def state_of(pid: int) -> str:
    """The kernel's letter for it: R, S, T, Z, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def lives(pid: int) -> bool:
    """Whether a process is there and not a zombie, by /proc alone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_of(folder: Path) -> dict[int, str]:
    """Every process whose environment, working directory or command line mentions `folder`: an independent witness."""
    needle = os.fsencode(folder)
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            texts = [(entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()]
            texts.append(os.fsencode(os.readlink(entry / "cwd")))
        except OSError:
            continue
        if any(needle in text for text in texts) and lives(int(entry.name)):
            found[int(entry.name)] = texts[1].replace(b"\0", b" ").decode(errors="replace")
    return found


def _start_warm(
    words: list[str],
    env: Mapping[str, str],
    where: Path,
    streams: tuple[int, int, int],
    session: bool,
    mutant: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    pipes: dict[int, int] = {}
    given: list[int] = []
    with contextlib.ExitStack() as closing:
        for number, stream in enumerate(streams):
            if stream == subprocess.PIPE:
                pipes[number], stream = os.pipe()
                closing.callback(os.close, stream)
            elif stream == subprocess.STDOUT:
                stream = given[1]
            elif stream == subprocess.DEVNULL:
                stream = os.open(os.devnull, os.O_RDWR)
                closing.callback(os.close, stream)
            given.append(stream)
        process = _warm().start(words, env, str(where), given, session=session, mutant=mutant)
    process.stdout, process.stderr = (os.fdopen(pipes[number], "rb") if number in pipes else None for number in (1, 2))
    return process


FILES = {"README.md": "# Test\n", "src/app.py": "print('hello')\n"}
# Read by the interpreter, the C library or a module of ours before a command could be told.
COLD_VARIABLES = ("PYTHON", "LD_", "LC_", "LANGUAGE", "LOC", "MALLOC", "GLIBC", "OPENSSL", "SSL_", "HOLDFAST_DEBUG")


@functools.cache
def _warm() -> Warm:
    warm = Warm()
    atexit.register(warm.close)
    return warm


@functools.cache
def _template() -> Path:
    """The repository that most fleets begin with: made once, by the same steps, and copied."""
    folder = Path(tempfile.mkdtemp(prefix="pytest-fleet-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Fleet(folder, FILES).repo


class Fleet:
    """Drives the CLI from outside, as a user would."""

    def __init__(self, root: Path, files: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.home = root / "home"
        self.repo = root / "repo"
        self.python = ""  # which interpreter runs Holdfast; ours unless tests/other_user.py chose another
        self.may_be_warm = CAN_BE_WARM and "HOLDFAST_TEST_COLD" not in os.environ  # False: always a new interpreter
        self.has_our_schemas = True  # False: an older version of the product prints the JSON
        self.mutant = ""  # of tests/harness/mutations.py: what `start` and `up` run
        self.prefix: tuple[str, ...] = ()  # in front of every command; tests/other_user.py makes it another user's
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root / "user"),
            "HOLDFAST_HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        (root / "user").mkdir()
        (root / "user" / ".gitconfig").write_text("[user]\n\tname = Tess Tester\n\temail = tess@example.org\n")
        self._supervisors: list[subprocess.Popen[bytes]] = []
        self.make_repo(self.repo, files)

    # -- git -----------------------------------------------------------------------------------------------------

    def make_repo(self, path: Path, files: Mapping[str, str] | None = None) -> Path:
        if files is None and not self.prefix:
            shutil.copytree(_template(), path, dirs_exist_ok=True)
            self.git("update-index", "-q", "--refresh", cwd=path)  # the index knows each file's inode
            return path
        for name, text in (files or FILES).items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
        self.git("init", "--quiet", "-b", "main", cwd=path)
        self.git("add", ".", cwd=path)
        self.git("commit", "--quiet", "-m", "Start", cwd=path)
        return path

    def git(self, *arguments: str, cwd: Path | None = None, check: bool = True) -> str:
        done = subprocess.run(
            [*self.prefix, "git", *arguments],
            cwd=cwd or self.repo,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"git {arguments}: {done.stderr}"
        return done.stdout.strip()

    def worktrees(self, repo: Path | None = None) -> list[str]:
        """What git knows beside the checkout itself."""
        lines = self.git("worktree", "list", "--porcelain", cwd=repo).splitlines()
        return [line.split(" ", 1)[1] for line in lines if line.startswith("worktree ")][1:]

    def branches(self, repo: Path | None = None) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads/holdfast/", cwd=repo).split()

    def file_on_branch(self, branch: str, path: str) -> str:
        return self.git("show", f"{branch}:{path}")

    # -- the command line ----------------------------------------------------------------------------------------

    def cli(
        self,
        *arguments: object,
        code: int | None = 0,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: bytes | None = None,
        timeout: float = 120,
        prefix: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        words, environment, where = [str(word) for word in arguments], {**self.env, **(env or {})}, cwd or self.repo
        if self._may_be_warm(words, environment, where, prefix):
            done = _warm().run(words, environment, str(where), stdin, timeout)
        else:
            done = subprocess.run(
                [*self.prefix, *prefix, self.python or sys.executable, "-m", "holdfast", *words],
                cwd=where,
                env=environment,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                check=False,
                timeout=timeout,
            )
        text = subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        assert "Traceback" not in text.stderr, text.stderr
        assert text.returncode != UNFORESEEN, text.stderr
        if code is not None:
            assert text.returncode == code, f"holdfast {arguments} → {text.returncode}\n{text.stdout}\n{text.stderr}"
        if self.has_our_schemas:
            json_outputs.check(words, text.stdout, text.stderr)
        return text

    def start(
        self,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        session: bool = False,
    ) -> subprocess.Popen[bytes]:
        """A command that goes on while the test does, with streams as subprocess.Popen takes them (stdin: no pipe)."""
        words, environment, where = [str(word) for word in arguments], {**self.env, **(env or {})}, cwd or self.repo
        if self._may_be_warm(words, environment, where):
            mutant = (self.mutant, str(self.root / "mutant")) if self.mutant else ()
            return _start_warm(words, environment, where, (stdin, stdout, stderr), session, mutant)
        command = Mutation(self.mutant, self.root / "mutant").command
        return subprocess.Popen(
            [*self.prefix, self.python or command[0], *command[1:], *words],
            cwd=where,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=session,
        )

    def _may_be_warm(self, words: list[str], env: Mapping[str, str], where: Path, prefix: Sequence[str] = ()) -> bool:
        """Only in ordinary surroundings: all else is started as a user's shell would start it."""
        return (
            self.may_be_warm
            and not (self.prefix or prefix or self.python)
            and words[:1] != []
            and (words[0] in COMMANDS or words[0] == "__complete")
            and not any(name.startswith(COLD_VARIABLES) for name in env)
            and env.get("LANG") == "C.UTF-8"
            and where.is_dir()
            and all(word.isprintable() for word in words)
            and fits(words, env)
        )

    def json(self, *arguments: object) -> list[dict[str, Any]]:
        """The objects that the command prints, without the number of the format."""
        lines = self.cli(*arguments, "--json").stdout.splitlines()
        return [{key: value for key, value in json.loads(line).items() if key != "schema"} for line in lines]

    def add(self, *arguments: object, command: tuple[object, ...] = (), **options: Any) -> str:
        """Queue a task; its id. `command` goes behind `--`."""
        behind = ("--", *command) if command else ()
        return str(json.loads(self.cli("add", *arguments, "--json", *behind, **options).stdout)["id"])

    @contextlib.contextmanager
    def as_its_user(self) -> Iterator[None]:
        """In this process, with the environment that the command line gets: for what a command would only cost more."""
        kept = dict(os.environ)
        os.environ.clear()
        os.environ.update(self.env)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(kept)

    def queue(self, script: str, *, prompt: str = "work", directory: Path | None = None, **options: Any) -> str:
        """`add`, without the tenth of a second that a command costs: `script` is for sh, `options` are NewTask's."""
        from holdfast.api.commands import Commands, NewTask

        with self.as_its_user():
            where = str(directory or self.repo)
            new = NewTask(prompt=prompt, directory=where, command=("sh", "-c", script), **options)
            return Commands(str(self.home)).add(new).id

    def show(self, task_id: str) -> dict[str, Any]:
        """What `show --json` prints, but for the budgets; read in this process: tests ask often, and a command costs
        40 ms of CPU each time. `shown` asks the command."""
        task = self._queries().task(task_id)
        shown: dict[str, Any] = json.loads(json.dumps({key: value for key, value in task.items() if key != "spends"}))
        return shown

    def shown(self, task_id: str) -> dict[str, Any]:
        return self.json("show", task_id)[0]

    def events(self, task_id: str | None = None) -> list[dict[str, Any]]:
        """What `events --json` prints, likewise."""
        found: list[dict[str, Any]] = json.loads(json.dumps(self._queries().last_events(task_id=task_id, limit=100000)))
        return found

    def _queries(self) -> Any:
        from holdfast.api.queries import Queries

        return Queries(str(self.home))

    def kinds(self, task_id: str) -> list[str]:
        return [event["kind"] for event in self.events(task_id)]

    def scenario(self, *steps: Mapping[str, Any], name: str = "scenario") -> Path:
        path = self.root / f"{name}-{time.monotonic_ns()}.json"
        path.write_text(json.dumps({"step": list(steps)}))
        return path

    def add_scenario(self, *steps: Mapping[str, Any], options: tuple[object, ...] = ()) -> str:
        return self.add("play", "--scenario", self.scenario(*steps), *options)

    # -- supervisors ---------------------------------------------------------------------------------------------

    def up(self, *arguments: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A supervisor in the foreground of a process of ours; returns when it is registered."""
        with (self.root / "supervisor.log").open("ab") as log:
            process = self.start(
                "up", *arguments, env=env, cwd=self.root, stdout=log.fileno(), stderr=log.fileno(), session=True
            )
        self._supervisors.append(process)
        wait_until(
            lambda: process.poll() is not None or self.supervisor_pid() == process.pid, "the supervisor is registered"
        )
        return process

    def supervisor_pid(self) -> int | None:
        from holdfast.api.queries import Queries
        from holdfast.base.errors import Unavailable

        try:
            running = Queries(str(self.home)).supervisor()
        except Unavailable as trouble:
            if "of an older version" not in str(trouble):
                return None
            with closing(sqlite3.connect(f"file:{self.home}/holdfast.db?mode=ro", uri=True)) as store:
                row = store.execute("SELECT pid FROM hosts WHERE state = 'active'").fetchone()
            return int(row[0]) if row else None
        return int(running["pid"]) if running else None

    def kill_supervisor(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def wait_state(self, task_id: str, *states: str, patience: float = PATIENCE) -> dict[str, Any]:
        from holdfast.api.queries import Queries

        queries = Queries(str(self.home))
        wait_until(
            lambda: queries.state(task_id)["state"] in states,
            f"task {task_id} is {' or '.join(states)} (it is {queries.state(task_id)['state']})",
            patience,
        )
        return self.show(task_id)

    def wait_started(self, task_id: str) -> dict[str, Any]:
        """Until an agent of the task runs. A claimed task has no run yet: its workspace comes first."""
        wait_until(
            lambda: any(run["state"] == "started" for run in self.show(task_id)["runs"]), f"{task_id} has an agent"
        )
        return self.show(task_id)

    def wait_clean(self) -> None:
        """Until nothing waits to be removed."""
        from holdfast.api.queries import Queries

        queries = Queries(str(self.home))
        wait_until(
            lambda: all(row["state"] in ("preserved", "gone") for row in queries.workspaces(everything=True)),
            "every finished workspace is gone or preserved",
        )

    def doctor(self) -> str:
        return self.cli("doctor").stdout

    def log(self) -> str:
        return (self.root / "supervisor.log").read_text(errors="replace")

    def close(self) -> None:
        """End what is still there (a failed test leaves things), by pid, and only what is ours."""
        for process in self._supervisors:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=20)
            if process.poll() is None:
                self.kill_supervisor(process)
