"""Evidence: the rows, refs, directories and processes of one home, gathered without the code that made them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import apsw

Row = dict[str, Any]
NEWER_TABLES = ("checkpoints",)  # tables of newer stores: an older one that is checked before its migration lacks them
TABLES = (
    "repos",
    "tasks",
    "runs",
    "workspaces",
    "salvages",
    "spends",
    "hosts",
    "requests",
    "events",
    "alerts",
    "usage",
)
_MARK = b"HOLDFAST_RUN_DIR="
_LARGEST = 64 << 20  # bytes that are read of a file: an agent can make a sparse one of any length
_FORMAT = re.compile(rb"(?im)^\s*(objectformat|refstorage)\s*=\s*(\w+)\s*$")


class Evidence:
    """Evidence about one home. The tables are read at once, in one snapshot. Everything else is read on first use."""

    def __init__(self, home: str) -> None:
        self.home = os.path.realpath(home)
        self.given_home = home
        path = os.path.join(home, "holdfast.db")
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(10_000)
        try:
            with connection:  # one snapshot for all tables
                self.integrity = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)")]
                self.orphan_rows = [f"{row[0]} row {row[1]}" for row in connection.execute("PRAGMA foreign_key_check")]
                self.tables = {table: list(_rows(connection, f"SELECT * FROM {table}")) for table in TABLES}
                there = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema")}
                for table in NEWER_TABLES:
                    found = list(_rows(connection, f"SELECT * FROM {table}")) if table in there else []
                    self.tables[table] = found
        finally:
            connection.close()

    @cached_property
    def tasks(self) -> dict[str, Row]:
        return {row["id"]: row for row in self.tables["tasks"]}

    @cached_property
    def runs(self) -> dict[str, Row]:
        return {row["id"]: row for row in self.tables["runs"]}

    @cached_property
    def events(self) -> list[Row]:
        ordered = sorted(self.tables["events"], key=lambda row: row["seq"])
        return [{**row, "data": json.loads(row["data"])} for row in ordered]

    # -- the file system -------------------------------------------------------------------------------------------

    def workspace_directories(self) -> Iterator[str]:
        root = os.path.join(self.given_home, "workspaces")
        for repo in list_names(root):
            if repo != ".trash":
                for name in list_names(os.path.join(root, repo)):
                    path = os.path.join(root, repo, name)
                    if os.path.isdir(path) and not os.path.islink(path):
                        yield path

    def owner_markers(self) -> Iterator[str]:
        """Yield the workspaces that have an owner marker on disk."""
        root = os.path.join(self.given_home, "workspaces")
        for repo in list_names(root):
            for name in list_names(os.path.join(root, repo)):
                if name.endswith((".owner.json", ".owner.json.new")):
                    yield os.path.join(root, repo, name.split(".owner.json")[0])

    def trash(self) -> list[str]:
        return list_names(os.path.join(self.given_home, "workspaces", ".trash"))

    def run_directories(self) -> list[str]:
        return list_names(os.path.join(self.given_home, "runs"))

    def half_written_files(self) -> list[str]:
        """Return half-written files. They are normal while a process writes them, and a leak otherwise."""
        found = [os.path.join(self.given_home, "scratch", name) for name in list_names(f"{self.given_home}/scratch")]
        found += [
            os.path.join(folder, name)
            for folder in (os.path.join(self.given_home, "shadows"), os.path.join(self.given_home, "backups"))
            for name in list_names(folder)
            if name.endswith((".new", ".part"))
        ]
        for run in self.run_directories():
            folder = os.path.join(self.given_home, "runs", run)
            found += [os.path.join(folder, name) for name in list_names(folder) if name.endswith(".new")]
        return found

    # -- git -------------------------------------------------------------------------------------------------------

    def worktree_entries(self, common_dir: str) -> Iterator[tuple[str, str]]:
        """Yield (entry, worktree path) of every git worktree entry whose worktree is in this home."""
        folder = os.path.join(common_dir, "worktrees")
        for name in list_names(folder):
            said = _read(os.path.join(folder, name, "gitdir")).decode(errors="surrogateescape").strip()
            path = os.path.realpath(os.path.dirname(said)) if said else ""
            if path.startswith(self.home + "/") or not path:
                yield name, path

    def branches(self, common_dir: str) -> dict[str, str]:
        out = git(common_dir, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/holdfast/")
        return {line.split()[0].removeprefix("refs/heads/"): line.split()[1] for line in out.splitlines()}

    def blobs_beyond(self, git_dir: str, tip: str, base: str | None) -> set[str]:
        """Return every object that `tip` reaches and `base` does not."""
        bounds = [f"^{base}"] if base else []
        return {line.split()[0] for line in git(git_dir, "rev-list", "--objects", tip, *bounds).splitlines()}

    def shadow(self, repo_id: str) -> str:
        return os.path.join(self.given_home, "shadows", f"{repo_id}.git")

    # -- processes -------------------------------------------------------------------------------------------------

    def marked_processes(self) -> dict[int, str]:
        """Return living processes of this home's runs, as pid → run id. Agents are found by their environment, and
        keepers by their working directory."""
        homes = {self.home, self.given_home}
        runs = os.path.join(self.home, "runs") + "/"
        prefixes = tuple(_MARK + os.fsencode(os.path.join(home, "runs")) + b"/" for home in homes)
        found = {}
        for pid in living():
            environment = _read(f"/proc/{pid}/environ")
            if _MARK in environment:  # few processes have it, so most need not be split
                for variable in environment.split(b"\0"):
                    if variable.startswith(prefixes):
                        found[pid] = variable.rsplit(b"/", 1)[1].decode(errors="replace")
            folder = _link(f"/proc/{pid}/cwd")
            if folder.startswith(runs):
                found[pid] = folder.removeprefix(runs).split("/")[0]
        return found

    def processes_inside(self) -> dict[int, str]:
        """Return living processes whose working directory is in a workspace of this home, as pid → directory."""
        root = os.path.join(self.home, "workspaces") + "/"
        found = {}
        for pid in living():
            folder = _link(f"/proc/{pid}/cwd")
            if folder.startswith(root):
                found[pid] = folder
        return found

    def cgroups(self) -> Iterator[tuple[str, str]]:
        """Yield (run id, directory) of every cgroup that is named after this home, in any mounted hierarchy.

        A cgroup that Holdfast makes to test cgroups has the name `probe-PID` instead of a run id. The base cgroup of a
        trial by `doctor` has a name of that form too.
        """
        name = "holdfast-" + hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        trial = f"{name}-trial-"
        for line in _read("/proc/self/mountinfo").decode(errors="surrogateescape").splitlines():
            left, _, right = line.partition(" - ")
            if right.startswith(("cgroup ", "cgroup2 ")):
                for folder, folders, _files in os.walk(left.split()[4]):
                    if os.path.basename(folder).startswith(trial):
                        yield "probe-" + os.path.basename(folder).removeprefix(trial), folder
                        folders.clear()
                    elif os.path.basename(folder) == name:
                        yield from ((run, os.path.join(folder, run)) for run in folders)
                        folders.clear()

    def supervisor_lives(self) -> bool:
        """True if the process of a recorded host still lives, according to the kernel."""
        boot = _read("/proc/sys/kernel/random/boot_id").decode().strip()
        for host in self.tables["hosts"]:
            stat = _read(f"/proc/{host['pid']}/stat").rpartition(b")")[2].split()
            if host["boot_id"] == boot and stat and stat[0] != b"Z" and int(stat[19]) == host["start_ticks"]:
                return True
        return False


def task_of(branch: str) -> str:
    """Return the task of a branch: `holdfast/TASK`, `holdfast/TASK-r2` after a fresh start, or `holdfast/TASK--NAME`
    for a member of a parallel stage."""
    return branch.removeprefix("holdfast/").partition("-")[0]


def living() -> list[int]:
    """Return the pids of all processes that are not zombies, without our own."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            stat = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if stat and stat[0] not in (b"Z", b"X"):
                found.append(int(name))
    return found


def git(directory: str, *arguments: str) -> str:
    """Return the output of a git command that only reads, or '' if it fails. No hooks run, and no programs that the
    repository's own config names. If a pipe is in the place of a file, git is not started, because it would wait for
    the pipe."""
    if any(_may_block(os.path.join(directory, name)) for name in _READ_BY_GIT):
        return ""
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOW_PROTOCOL": "none",  # missing objects are not fetched
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
    }
    with tempfile.TemporaryDirectory(prefix="holdfast-checker-") as view:
        env["GIT_COMMON_DIR"] = _fill_view(view, directory)
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", f"--git-dir={directory}", *arguments],
            env=env, capture_output=True, check=False, timeout=120, cwd="/",
        )  # fmt: skip
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else ""


def _fill_view(view: str, git_dir: str) -> str:
    """Fill a directory that stands for the repository, with the format of its files as its only configuration."""
    named = _read(os.path.join(git_dir, "commondir")).decode(errors="surrogateescape").strip()
    common = os.path.normpath(os.path.join(git_dir, named))
    for name in ("info", "objects", "packed-refs", "refs", "reftable", "shallow", "worktrees"):
        if not _may_block(os.path.join(common, name)):
            os.symlink(os.path.join(common, name), os.path.join(view, name))
    config = _read(os.path.join(common, "config"))
    kept = b"".join(b"\t%s = %s\n" % found for found in _FORMAT.findall(config))
    version = b"1" if kept else b"0"
    with open(os.path.join(view, "config"), "wb") as file:
        file.write(b"[core]\n\trepositoryformatversion = " + version + b"\n[extensions]\n" + kept)
    with open(os.path.join(view, "HEAD"), "wb") as file:
        file.write(_read(os.path.join(common, "HEAD")))
    return view


# Files that git opens in a git directory, whatever it is asked.
_READ_BY_GIT = ("HEAD", "commondir", "config", "config.worktree", "gitdir", "index", "packed-refs", "shallow")


def _may_block(path: str) -> bool:
    """True if git would wait for the file: it is a pipe, a socket or a device."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def list_names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(path: str) -> bytes:
    """Return the content of a plain file, or b'' for anything else. A pipe that an agent made in its place does not
    block this call."""
    try:
        with open(path, "rb", opener=_open_now) as file:
            return file.read(_LARGEST) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


def _open_now(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _rows(connection: apsw.Connection, query: str) -> Iterator[Row]:
    cursor = connection.execute(query)
    names: list[str] | None = None
    for values in cursor:
        names = names or [column[0] for column in cursor.get_description()]
        yield dict(zip(names, values, strict=True))
