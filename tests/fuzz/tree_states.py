"""Random states of a work tree: what an agent may do to one, and what must be found again afterwards.

Nothing here is Holdfast: the operations are git's and the file system's, and what is expected comes from a repository
of its own that looks at the same directory.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NAMES = [
    "README.md",
    "src/app.py",
    "a",
    "a/b",
    "dir/x",
    "dir/y.txt",
    "dir/deep/z",
    "ünïcode ☃",
    " lead",
    "-x",
    'q"q',
    "n\nl",
]


@dataclass
class Agent:
    """Somebody at work in one workspace. Every step is written down, so that a failure can be read."""

    tree: Path
    entry: Path  # the worktree's git directory
    common: Path
    branch: str
    env: dict[str, str]
    rng: random.Random
    steps: list[str] = field(default_factory=list)
    commits: set[str] = field(default_factory=set)
    must_stay: set[str] = field(default_factory=set)  # why the directory may not be removed
    converts: bool = False

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.tree, env=self.env, capture_output=True, check=False, timeout=60
        )
        if cwd is None:
            self.steps.append(f"git {' '.join(arguments)} → {done.returncode}")
        return done.stdout.decode(errors="surrogateescape")

    def work(self) -> None:
        for _ in range(self.rng.randrange(3, 22)):
            self.act(self.rng.choice(STEPS))
        for _ in range(self.rng.choice([0, 0, 0, 1, 2, 3])):
            self.act(self.rng.choice(BLOWS))

    def act(self, step: Callable[[Agent], None]) -> None:
        self.steps.append(step.__name__)
        try:
            step(self)
        except OSError as error:
            self.steps.append(f"  {error}")
        head = self.git("rev-parse", "--verify", "--quiet", "HEAD", cwd=self.tree) if self.is_ours() else ""
        if head.strip():
            self.commits.add(head.strip())

    def is_ours(self) -> bool:
        """Whether git in the tree still means this worktree: an emptied `.git` leads elsewhere."""
        link = self.tree / ".git"
        return link.is_file() and link.read_text() == f"gitdir: {self.entry}\n" and self.entry.is_dir()

    def some_file(self) -> Path:
        """One that is there, or a name for one."""
        found = [path for path in sorted(self.tree.rglob("*")) if ".git" not in path.parts and is_file(path)]
        return self.rng.choice(found) if found and self.rng.random() < 0.6 else self.tree / self.rng.choice(NAMES)

    def content(self) -> bytes:
        kind = self.rng.randrange(5)
        word = f"{self.rng.random()}"
        if kind == 0:
            return f"{word}\r\nsecond\r\n".encode()
        if kind == 1:
            return self.rng.randbytes(50_000)
        if kind == 2:
            return b""
        return f"{word}\n".encode()


def is_file(path: Path) -> bool:
    """Not a pipe: nobody reads from it."""
    return path.is_symlink() or path.is_file()


def write(agent: Agent) -> None:
    path = agent.some_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(agent.content())


def rewrite_in_disguise(agent: Agent) -> None:
    """The same size and the same times: only what the kernel keeps tells."""
    path = agent.some_file()
    if path.is_file() and not path.is_symlink():
        seen = path.stat()
        path.write_bytes(agent.rng.randbytes(seen.st_size))
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def delete(agent: Agent) -> None:
    agent.some_file().unlink(missing_ok=True)


def move(agent: Agent) -> None:
    target = agent.tree / agent.rng.choice(NAMES)
    target.parent.mkdir(parents=True, exist_ok=True)
    agent.some_file().rename(target)


def git_mv(agent: Agent) -> None:
    agent.git("mv", "-f", "--", str(agent.some_file()), agent.rng.choice(NAMES))


def chmod(agent: Agent) -> None:
    agent.some_file().chmod(agent.rng.choice([0o755, 0o644, 0o700]))


def link(agent: Agent) -> None:
    path = agent.some_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(agent.rng.choice(["/proc/nowhere", "src", "../..", "README.md"]))  # nothing can be made there


def directory_for_file(agent: Agent) -> None:
    path = agent.some_file()
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)
    (path / "inside").write_bytes(agent.content())


def file_for_directory(agent: Agent) -> None:
    for name in ("dir", "src", "a"):
        path = agent.tree / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            path.write_bytes(agent.content())
            return


def odd_files(agent: Agent) -> None:
    os.mkfifo(agent.tree / f"pipe{agent.rng.randrange(1000)}")


def add(agent: Agent) -> None:
    agent.git("add", *agent.rng.choice([["-A"], ["-u"], ["-N", "."], ["--", str(agent.some_file())]]))


def add_and_change(agent: Agent) -> None:
    path = agent.some_file()
    agent.git("add", "--", str(path))
    if agent.rng.random() < 0.5:
        path.unlink(missing_ok=True)
    else:
        write(agent)


def remove_cached(agent: Agent) -> None:
    agent.git("rm", "-q", "--cached", "-f", "--", str(agent.some_file()))


def commit(agent: Agent) -> None:
    agent.git("add", "-A")
    agent.git("commit", "-qm", "work", *agent.rng.choice([[], ["--amend"], ["--allow-empty"]]))


def detach(agent: Agent) -> None:
    agent.git("checkout", "-q", "--detach", *agent.rng.choice([[], ["-f"], ["HEAD~1"]]))


def back(agent: Agent) -> None:
    agent.git("checkout", "-q", *agent.rng.choice([[], ["-f"]]), agent.branch)


def reset(agent: Agent) -> None:
    agent.git("reset", "-q", agent.rng.choice(["--soft", "--mixed", "--hard"]), agent.rng.choice(["HEAD", "HEAD~1"]))


def stash(agent: Agent) -> None:
    agent.git("stash", *agent.rng.choice([["-q"], ["-qu"], ["pop", "-q"]]))


def conflict(agent: Agent) -> None:
    """Two commits over one file, and an operation that stumbles over them."""
    path = agent.tree / "README.md"
    if path.is_dir():
        return
    agent.git("add", "-A")
    agent.git("commit", "-qm", "before")
    mine = agent.git("rev-parse", "HEAD").strip()
    path.unlink(missing_ok=True)
    path.write_bytes(agent.content() + b"theirs")
    agent.git("commit", "-qam", "theirs")
    theirs = agent.git("rev-parse", "HEAD").strip()
    agent.git("reset", "-q", "--hard", mine)
    path.unlink(missing_ok=True)
    path.write_bytes(agent.content() + b"ours")
    agent.git("commit", "-qam", "ours")
    agent.commits |= {oid for oid in (mine, theirs) if oid}
    agent.git(
        *agent.rng.choice([["merge", "-q"], ["rebase", "-q"], ["cherry-pick"], ["merge", "-q", "--no-commit"]]), theirs
    )


def abort(agent: Agent) -> None:
    agent.git(agent.rng.choice(["merge", "rebase", "cherry-pick"]), "--abort")


def hide(agent: Agent) -> None:
    """Git does not look at it any more; then it changes."""
    path = agent.some_file()
    agent.git("update-index", agent.rng.choice(["--assume-unchanged", "--skip-worktree"]), "--", str(path))
    if path.is_file() and agent.rng.random() < 0.7:
        path.write_bytes(agent.content())


def split_index(agent: Agent) -> None:
    agent.git("update-index", agent.rng.choice(["--split-index", "--no-split-index", "--untracked-cache"]))


def ignore(agent: Agent) -> None:
    (agent.tree / ".gitignore").write_text(agent.rng.choice(["*.txt\n", "dir/\n", "/a\n", "!README.md\nsrc\n", ""]))


def attributes(agent: Agent) -> None:
    (agent.tree / ".gitattributes").write_text(agent.rng.choice(["* text=auto\n", "*.txt eol=crlf\n", "* -text\n"]))
    agent.converts = True


def prune(agent: Agent) -> None:
    agent.git("gc", "--quiet", "--prune=now")


def break_link(agent: Agent) -> None:
    """What git calls in this tree afterwards may go to no repository, or to none of ours."""
    link = agent.tree / ".git"
    if link.is_dir():
        return
    link.unlink(missing_ok=True)
    if agent.rng.random() < 0.6:
        link.write_text(agent.rng.choice(["", "gitdir: /nowhere\n", "rubbish"]))


def mend_link(agent: Agent) -> None:
    if not (agent.tree / ".git").is_dir():
        (agent.tree / ".git").write_text(f"gitdir: {agent.entry}\n")


def damage_index(agent: Agent) -> None:
    index = agent.entry / "index"
    kind = agent.rng.randrange(3)
    if kind == 0:
        index.unlink(missing_ok=True)
    elif index.exists() and agent.rng.random() < 0.5:
        index.write_bytes(index.read_bytes()[: agent.rng.randrange(40)])
        agent.must_stay.add("index")


def stale_lock(agent: Agent) -> None:
    (agent.entry / "index.lock").touch()


def drop_entry(agent: Agent) -> None:
    """Its reflog and its index are the agent's own loss; files and branches are not."""
    if agent.rng.random() < 0.3 and agent.entry.is_dir():
        shutil.rmtree(agent.entry)
        agent.commits.clear()


def nested(agent: Agent) -> None:
    if agent.rng.random() < 0.3:
        folder = agent.tree / f"nested{agent.rng.randrange(9)}"
        folder.mkdir(exist_ok=True)
        (folder / "file").write_bytes(agent.content())
        agent.git("init", "-q", cwd=folder)
        if agent.rng.random() < 0.5:
            agent.git("add", ".", cwd=folder)
            agent.git("commit", "-qm", "inside", cwd=folder)


STEPS: list[Callable[[Agent], None]] = [
    write, write, write, write, write, rewrite_in_disguise, rewrite_in_disguise, delete, move, git_mv, chmod, link,
    directory_for_file, file_for_directory, odd_files, add, add, add, add_and_change, add_and_change, add_and_change,
    remove_cached, commit, commit, commit, detach, back, reset, stash, conflict, conflict, abort, hide, hide,
    split_index, ignore, attributes,
]  # fmt: skip
# After these git may not answer any more, so they come last; files are written in between.
BLOWS: list[Callable[[Agent], None]] = [
    prune, break_link, break_link, mend_link, damage_index, damage_index, stale_lock, drop_entry, nested, write, delete,
]  # fmt: skip


@dataclass
class Expected:
    """What must be found again: blob ids with where they were seen, and commits."""

    files: dict[str, bytes] = field(default_factory=dict)  # path → content
    staged: dict[str, str] = field(default_factory=dict)  # blob → where
    commits: set[str] = field(default_factory=set)
    nested: bool = False


def expectation(agent: Agent, scratch: Path) -> Expected:
    """Everything that git would add, by a repository that knows nothing but this directory and its ignore rules."""
    found = Expected(commits=set(agent.commits))
    agent.git("init", "-q", "--bare", str(scratch), cwd=agent.common)
    looking = {**agent.env, "GIT_DIR": str(scratch), "GIT_WORK_TREE": str(agent.tree)}
    out = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard", "-z"],
        cwd=agent.tree,
        env=looking,
        capture_output=True,
        check=True,
    ).stdout
    for name in [os.fsdecode(raw) for raw in out.split(b"\0") if raw]:
        path = agent.tree / name
        if name.endswith("/"):
            found.nested = True
        elif path.is_symlink():
            found.files[name] = os.fsencode(os.readlink(path))
        elif path.is_file():
            found.files[name] = path.read_bytes()
    if agent.entry.is_dir():
        with_index = {**agent.env, "GIT_DIR": str(agent.entry), "GIT_WORK_TREE": str(agent.tree)}
        listed = subprocess.run(
            ["git", "ls-files", "-s", "-z"], cwd=agent.tree, env=with_index, capture_output=True, check=False
        ).stdout
        for line in listed.split(b"\0"):
            if line:
                mode, oid, stage = line.split(b"\t")[0].decode().split()
                if mode != "160000" and oid != EMPTY and set(oid) != {"0"}:  # git lists nothings of a split index
                    found.staged[oid] = f"stage {stage} {line!r}"
    return found


EMPTY = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
