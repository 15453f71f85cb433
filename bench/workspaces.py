"""Workspaces against plain git in the same run: making, removing; a start after a crash storm; a burst of tasks."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.by_hand import BY_HAND, environment, wait_gone
from bench.figures import Figure, Scale, median
from bench.proc import Patience
from bench.stage import Stage

from holdfast.base.ids import new_id
from holdfast.core.model import Repo, Strategy, TaskSpec, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.names import task_branch, workspace_path
from holdfast.workspaces.strategies.worktree import WorktreeStrategy

PER_FOLDER = 100
FILE = "".join(f"line {number} of a file as they are\n" for number in range(40))  # 1.3 KB
START_GOAL = 2.0  # seconds from the start of the process to the claim of a waiting task (R-TREE-08 allows 5)
NEW_FILE = "echo work > new.txt"
GONE_GOAL = 30.0  # seconds until all leaked worktrees are saved and gone


def run(scale: Scale, folder: Path) -> list[Figure]:
    figures = []
    for files in scale.tree_sizes:
        figures += _against_git(scale, folder / f"tree-{files}", files)
    return [*figures, *_sweep(scale, folder / "sweep"), _burst(scale, folder / "burst")]


# -- one worktree ------------------------------------------------------------------------------------------------------


def _against_git(scale: Scale, folder: Path, files: int) -> list[Figure]:
    """Ours and git's in turn, each at its own new path and branch; the medians are compared."""
    repo = _repository(folder, files)
    ours, plain = _Ours(folder, repo), _Plain(folder, repo)
    spent: dict[str, list[float]] = {}
    rounds = scale.tree_rounds if files <= 1000 else max(1, scale.tree_rounds // 4)
    for number in range(rounds):
        for side, steps in (("plain", plain), ("ours", ours)) if number % 2 else (("ours", ours), ("plain", plain)):
            for name, step in steps.steps(number).items():
                began = time.perf_counter()
                step()
                spent.setdefault(f"{side} {name}", []).append(time.perf_counter() - began)
    ours.close()
    middle = {name: median(values) for name, values in spent.items()}
    shown = {f"{name} ms": round(value * 1e3, 1) for name, value in middle.items()}
    detail = {"files": files, "rounds": rounds}
    made = {name: value for name, value in shown.items() if " add" in name or " prepare" in name}
    gone = {name: value for name, value in shown.items() if name not in made}
    return [
        Figure(
            name=f"workspaces.prepare.{files}",
            value=middle["ours prepare"] / middle["plain add"],
            unit="× git worktree add",
            goal=1.0,
            detail={**detail, **made},
        ),
        Figure(
            name=f"workspaces.remove.{files}",
            value=middle["ours removed"] / middle["plain remove"],
            unit="× git worktree remove --force",
            goal=1.0,
            detail={**detail, **gone},
        ),
    ]


def _repository(folder: Path, files: int) -> Path:
    repo = folder / "repo"
    for number in range(files):
        path = repo / f"part{number // PER_FOLDER}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n{FILE}")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "Start"], ["gc", "-q"]):
        identity = ["-c", "user.name=Bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0"]
        subprocess.run(["git", *identity, *words], cwd=repo, check=True)
    return repo


class _Plain:
    """What people and most tools do."""

    def __init__(self, folder: Path, repo: Path) -> None:
        self._folder, self._repo = folder, repo

    def steps(self, number: int) -> dict[str, Callable[[], None]]:
        path = str(self._folder / f"plain{number}")
        return {
            "add": lambda: self._git("worktree", "add", "-q", "-b", f"plain{number}", path, "main"),
            "remove": lambda: self._git("worktree", "remove", "--force", path),
        }

    def _git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self._repo, check=True, stdout=subprocess.DEVNULL)


class _Ours:
    """The strategy as the supervisor uses it, on a loop of its own: marker, lock, entry, hardened checkout; then the
    rename, after which the path is free, and the deletion, which is done in the background."""

    def __init__(self, folder: Path, repo: Path) -> None:
        self._home = str(folder / "home")
        os.mkdir(self._home)
        self._strategy = WorktreeStrategy(self._home, Git(HelperRunner(Children())))
        self._repo = Repo(id="repo", path=str(repo), common_dir=str(repo / ".git"))
        self._base = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=repo, check=True, capture_output=True, text=True
        ).stdout.strip()
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.close()

    def steps(self, number: int) -> dict[str, Callable[[], None]]:
        task = f"task{number}"
        workspace = Workspace(
            id=f"ws{number}",
            task_id=task,
            repo_id="repo",
            strategy=Strategy.WORKTREE,
            path=workspace_path(self._home, "repo", task),
            branch=task_branch(task, 0),
            base_commit=self._base,
            state=WorkspaceState.READY,
            disposition=None,
        )
        strategy, repo, run = self._strategy, self._repo, self._loop.run_until_complete

        def put_away() -> None:
            run(strategy.put_away(repo, workspace))
            run(strategy.drop_empty_branch(repo, workspace))

        return {
            "prepare": lambda: run(strategy.prepare(repo, workspace, None)),
            "removed": put_away,
            "delete": lambda: run(strategy.delete_trash(workspace)),
        }


# -- many --------------------------------------------------------------------------------------------------------------


def _sweep(scale: Scale, folder: Path) -> list[Figure]:
    """The leaks of the tests: of all trees a tenth has unsaved work, a fifth is known by its marker only."""
    from tests.fleet import Fleet
    from tests.leaks import leak_many

    folder.mkdir()
    fleet = Fleet(folder)
    try:
        leak_many(fleet, scale.leaked)
        waiting = fleet.add("wait", command=("true",))
        began = time.time()
        supervisor = fleet.up("--idle-exit", "0s")
        patience = Patience(900)
        while supervisor.poll() is None:
            if patience.is_over():
                raise RuntimeError("the leaked worktrees are not gone")
            time.sleep(0.05)
        ended = time.time()
        claimed = next(event["at"] for event in fleet.events(waiting) if event["kind"] == "task.claimed")
    finally:
        fleet.close()
    shutil.rmtree(folder)  # a thousand foreign trees are in nobody's interest any more
    leaked = {"leaked": scale.leaked}
    return [
        Figure(name="workspaces.sweep", value=float(claimed) - began, unit="s", goal=START_GOAL, detail=leaked),
        Figure(name="workspaces.swept", value=ended - began, unit="s", goal=GONE_GOAL, detail=leaked),
    ]


def _burst(scale: Scale, folder: Path) -> Figure:
    """All queued in one moment, as many agents, each with a new file; until all worktrees are removed."""
    stage = Stage(folder)
    tasks = [
        TaskSpec(
            id=new_id(),
            repo_id=stage.repo_id,
            prompt="work",
            agent="command",
            agent_options={"argv": ["sh", "-c", NEW_FILE]},
            strategy=Strategy.WORKTREE,
        )
        for _ in range(scale.burst)
    ]
    try:
        stage.up(agents=scale.burst)
        began = time.perf_counter()
        stage.queue(tasks)
        stage.wait_completed(scale.burst)
        completed = time.perf_counter() - began
        wait_gone(stage)
        gone = time.perf_counter() - began
    finally:
        stage.down()
    bare = _one_after_another(stage, scale.burst)
    return Figure(
        name="workspaces.by_hand",
        value=gone / bare,
        unit="× a shell loop",
        goal=1.5,
        detail={
            "tasks": scale.burst,
            "× until all completed": round(completed / bare, 2),
            "s until all completed": round(completed, 2),
            "s until all are gone": round(gone, 2),
            "s of the shell loop": round(bare, 2),
        },
    )


def _one_after_another(stage: Stage, count: int) -> float:
    """Return the seconds of what people do without Holdfast: add, run, commit, remove, no record of anything."""
    began = time.perf_counter()
    script = f"for n in $(seq {count}); do {BY_HAND.format(command=NEW_FILE)}; done"
    subprocess.run(["sh", "-ec", script], env=environment(stage, stage.folder), check=True)
    return time.perf_counter() - began
