"""A stage for the privileged sweep: a home of another user, canaries around it, and trees that mean harm."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.other_user import OTHER_USER, is_root, reachable_directory

import holdfast

PROGRAMS = Path(holdfast.__file__).parent / "workspaces" / "removal"
INSTALLED = ("holdfast-cleanup", "root_cleanup.py", "delete_tree.py")
LINE = re.compile(r"holdfast-cleanup: swept=(\d+) failed=(\d+) skipped=(\d+) roots=(.+)\n")
STRANGER = OTHER_USER + 1
EVIL = "#!/bin/sh\ntouch {canary}\n"


class RootStage:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.trash = self.home / "workspaces" / ".trash"
        self.executed = root / "executed"  # whoever is made to run anything of the user's leaves this
        self.outside = root / "outside"
        self.programs = root / "libexec"
        self.programs.mkdir()
        for name in INSTALLED:
            shutil.copy(PROGRAMS / name, self.programs / name)
        self.trash.mkdir(parents=True)
        for path in (self.home, self.trash.parent, self.trash):
            path.chmod(0o700)
            os.chown(path, OTHER_USER, OTHER_USER)
        (self.outside / "below").mkdir(parents=True)
        for name in ("precious", "below/precious", "file"):
            (self.outside / name).write_text(f"canary {name}")
        self._before = self._seen()

    def sweep(
        self,
        *,
        env: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        programs: Path | None = None,
        cwd: Path | None = None,
    ) -> tuple[int, int, int]:
        """Run the entry as systemd would; (swept, failed, skipped). It says one line and ends with 0, whatever."""
        self.done = subprocess.run(
            [*prefix, str((programs or self.programs) / "holdfast-cleanup")],
            env={"PATH": os.environ["PATH"], "HOLDFAST_CLEANUP_HOMES": str(self.home), **(env or {})},
            cwd=cwd or "/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert self.done.returncode == 0, self.done.stderr
        line = LINE.fullmatch(self.done.stdout)
        assert line is not None, (self.done.stdout, self.done.stderr)
        assert "Traceback" not in self.done.stderr
        return int(line[1]), int(line[2]), int(line[3])

    def entry(self, name: str = "abcdefgh", *, marker: str | None = "", owner: int = OTHER_USER) -> Path:
        """A directory in the trash with a file in it; `marker`: the id it names (its own), None: without."""
        tree = self.trash / name
        tree.mkdir()
        (tree / "file").write_text("x")
        os.chown(tree, owner, owner)
        if marker is not None:
            self.mark(name, marker or name.removesuffix("-half-made"))
        return tree

    def mark(self, name: str, workspace: str) -> Path:
        path = self.trash / f"{name}.trashed.json"
        path.write_text(json.dumps({"workspace": workspace, "task": "t", "repo": "r", "path": "/x"}))
        os.chown(path, OTHER_USER, OTHER_USER)
        return path

    def without_openat2(self) -> None:
        """As on a kernel before 5.6."""
        program = self.programs / "delete_tree.py"
        with_it, without = "_probed: list[Callable[[int, str, int], int] | None] = []", "_probed = [None]"
        assert with_it in program.read_text()
        program.write_text(program.read_text().replace(with_it, without))

    def left(self) -> list[str]:
        return sorted(path.name for path in self.trash.iterdir())

    def assert_untouched(self) -> None:
        """Nothing outside changed, not even a mode or a time of change; and nothing was executed."""
        assert self._seen() == self._before
        assert not self.executed.exists()

    def _seen(self) -> dict[str, object]:
        paths = [self.outside, *sorted(self.outside.rglob("*"))]
        return {
            str(path): (path.stat().st_mode, path.stat().st_uid, path.stat().st_mtime_ns)
            + ((path.read_text(),) if path.is_file() else ())
            for path in paths
        }

    def grow_everything(self, tree: Path, levels: int = 4096) -> None:
        """Everything that a tree can hold to lead somebody astray."""
        targets = ["../../../../outside", "/", "/proc/self/root", "..", ".", "loop7", "no"]
        for number, target in enumerate([str(self.outside), str(self.outside / "file"), *targets]):
            (tree / f"loop{number}").symlink_to(target)
        os.link(self.outside / "file", tree / "hard")
        os.utime(self.outside / "file", ns=(0, self._before_time("file")))
        os.mkfifo(tree / "fifo")
        os.mknod(tree / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod(tree / "disk", 0o666 | stat.S_IFBLK, os.makedev(7, 200))
        with socket.socket(socket.AF_UNIX) as server, _inside(tree):
            server.bind("socket")
        raw = os.fsencode(tree)
        for name in (b"new\nline", b"\x1b[2Jescape", b"not utf-8 \xff\xfe", b"-rf", b"*", b"x" * 255, b" "):
            with open(raw + b"/" + name, "wb"):
                pass
            os.mkdir(raw + b"/d" + name[:254])
        (tree / "closed" / "below").mkdir(parents=True)
        (tree / "closed" / "below" / "file").touch()
        (tree / "closed").chmod(0)
        (tree / "setuid").touch()
        (tree / "setuid").chmod(0o6755)
        self._grow_repository(tree / "repo")
        grow_deep(tree, levels)

    def _before_time(self, name: str) -> int:
        seen = self._before[str(self.outside / name)]
        assert isinstance(seen, tuple)
        return int(seen[2])

    def _grow_repository(self, repo: Path) -> None:
        """One in which whoever runs git, in whatever way, runs something else."""
        evil = repo / "evil"
        repo.mkdir()
        evil.write_text(EVIL.format(canary=self.executed))
        evil.chmod(0o755)
        subprocess.run(["git", "init", "--quiet", str(repo)], check=True)
        with (repo / ".git" / "config").open("a") as config:
            config.write(f"[core]\n\tfsmonitor = {evil}\n\tpager = {evil}\n\tsshCommand = {evil}\n")
            config.write(f'[filter "evil"]\n\tclean = {evil}\n\tsmudge = {evil}\n\tprocess = {evil}\n')
            config.write(f"[diff]\n\texternal = {evil}\n")
        (repo / ".gitattributes").write_text("* filter=evil\n")
        hooks = repo / ".git" / "hooks"
        shutil.rmtree(hooks, ignore_errors=True)
        hooks.mkdir()
        for hook in ("pre-commit", "post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
            shutil.copy(evil, hooks / hook)
        for trap in ("os.py", "json.py", "sitecustomize.py", "delete_tree.py", "python3", "id", "find", "rm", "git"):
            (repo / trap).write_text(EVIL.format(canary=self.executed) if "." not in trap else self._python_trap())
            (repo / trap).chmod(0o755)

    def _python_trap(self) -> str:
        return f"open({str(self.executed)!r}, 'w')\n"


def grow_deep(tree: Path, levels: int) -> None:
    here = os.open(tree, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """A socket's path may be no longer than 108 bytes."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def root_stage() -> Iterator[RootStage]:
    if not is_root():
        pytest.skip("NOT RUN: the privileged sweep is root's, and this run is not root")
    with reachable_directory("holdfast-root-") as root:
        root.chmod(0o755)
        try:
            yield RootStage(root)
        finally:
            subprocess.run(["rm", "-rf", "--one-file-system", str(root)], check=False)  # rmtree cannot go that deep
