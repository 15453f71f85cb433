"""Rehearsals: a scenario played for real (supervisor, worktree, processes) in a throw-away home and repository."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import Any

from holdfast.api.commands import Commands, NewTask
from holdfast.api.home import doctor
from holdfast.api.home.daemon import run_here
from holdfast.api.queries import Queries
from holdfast.api.scenarios import load_scenario
from holdfast.processes.strays import marked_processes
from holdfast.workspaces.git.git import environment
from holdfast.workspaces.removal.trash import delete_tree

_FILES = {"README.md": "# Rehearsal\n", "src/app.py": 'print("hello")\n'}


def rehearse(scenario: str, *, timeout: float | None) -> tuple[dict[str, Any], list[str]]:
    """Play `scenario`; the task as it ended, and everything that was left behind (nothing, if all is well)."""
    steps = load_scenario(scenario)
    root = tempfile.mkdtemp(prefix="holdfast-rehearsal-")
    try:
        repo, home = os.path.join(root, "repo"), os.path.join(root, "home")
        make_repository(repo)
        commands = Commands(home)
        task = commands.add(
            NewTask(prompt=f"Rehearse {os.path.basename(scenario)}", directory=repo, scenario=steps, timeout=timeout)
        )
        run_here(home, agents=1, idle_exit=0.0)
        return Queries(home).task(task.id), left_behind(home)
    finally:
        delete_tree(root)


def left_behind(home: str) -> list[str]:
    left = [finding.text for finding in doctor.examine(home, with_agents=False) if finding.level == "problem"]
    return left + [f"process {pid} of run {run}" for pid, run in marked_processes(home)]


def make_repository(path: str) -> None:
    for name, text in _FILES.items():
        os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(text)
    identity = ["-c", "user.name=Rehearsal", "-c", "user.email=rehearsal@localhost"]
    for arguments in (["init", "--quiet", "-b", "main"], ["add", "."], [*identity, "commit", "--quiet", "-m", "Start"]):
        subprocess.run(["git", *arguments], cwd=path, env=environment(), check=True)
