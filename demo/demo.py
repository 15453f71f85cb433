"""The demonstration: every way a task can go, with real processes, on a throw-away repository and home.

It drives the `holdfast` command as a user would, kills things on the way, and at the end counts what is left from
/proc and git, not from Holdfast's own tables.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).parent / "scenarios"
PATIENCE = 60.0


class Demo:
    def __init__(self, root: Path) -> None:
        self.root, self.home, self.repo = root, root / "home", root / "repo"
        self.env = {**os.environ, "HOLDFAST_HOME": str(self.home), "DEMO_ROOT": str(root)}
        self.failures: list[str] = []

    # -- telling -------------------------------------------------------------------------------------------------

    def title(self, text: str) -> None:
        print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)

    def say(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def check(self, fact: bool, text: str) -> None:
        print(f"   {'ok  ' if fact else 'BAD '} {text}", flush=True)
        if not fact:
            self.failures.append(text)

    # -- doing ---------------------------------------------------------------------------------------------------

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.repo, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def holdfast(self, *arguments: str, show: bool = True) -> str:
        if show:
            print(f"   $ holdfast {' '.join(arguments)}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self.repo,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if show:
            for line in (done.stdout + done.stderr).splitlines():
                print(f"     {line}", flush=True)
        return done.stdout

    def add(self, prompt: str, scenario: str) -> str:
        path = str(SCENARIOS / f"{scenario}.toml")
        shown = os.path.relpath(path)
        print(f'   $ holdfast add "{prompt}" --scenario {shown}', flush=True)
        task = json.loads(self.holdfast("add", prompt, "--scenario", path, "--json", show=False))
        self.say(f"  → {task['id']}")
        return str(task["id"])

    def show(self, task_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.holdfast("show", task_id, "--json", show=False))
        return shown

    def wait(self, fact: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not fact():
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: this never happened: {what}")
            time.sleep(0.05)

    def wait_state(self, task_id: str, state: str) -> dict[str, Any]:
        self.wait(lambda: self.show(task_id)["state"] == state, f"task {task_id} is {state}")
        return self.show(task_id)

    def running_agent(self, task_id: str) -> int:
        """The agent's pid, once it runs."""

        def pids() -> list[int]:
            return [run["pid"] for run in self.show(task_id)["runs"] if run["state"] == "started"]

        self.wait(lambda: bool(pids()), f"an agent of {task_id} runs")
        return pids()[0]

    def supervisor_pid(self) -> int:
        return int((self.home / "supervisor.lock").read_text())

    # -- the acts ------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        self.repo.mkdir()
        (self.repo / "app.py").write_text("print('hello')\n")
        self.git("init", "--quiet", "-b", "main")
        self.git("config", "user.name", "Demo")
        self.git("config", "user.email", "demo@localhost")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "Start")
        self.title("A repository and a supervisor")
        self.holdfast("init")
        self.holdfast("up", "--detach")

    def success(self) -> None:
        self.title("1. Success: the branch is the result")
        task_id = self.add("Say hello politely", "success")
        task = self.wait_state(task_id, "completed")
        self.say(f"completed on branch {task['branch']}:")
        for line in self.git("log", "--oneline", "main.." + task["branch"]).splitlines():
            self.say(f"    {line}")
        files = self.git("ls-tree", "--name-only", task["branch"]).split()
        self.check(
            "polite.py" in files and "notes.txt" in files, "both the commit and the uncommitted leftover are there"
        )

    def failure(self) -> None:
        self.title("2. Failure: the worktree goes, the work stays")
        task_id = self.add("Refactor everything", "failure")
        task = self.wait_state(task_id, "failed")
        self.say(f"failed: {task['reason']}")
        self.holdfast("salvage", "restore", task_id[:4], "--branch", "rescued")
        self.check(self.git("show", "rescued:half.py") == "# half done", "its uncommitted file is back, byte for byte")

    def cancel(self) -> None:
        self.title("3. Cancel: the whole tree ends, daemons and TERM-ignorers included")
        task_id = self.add("Start a dev server and ignore me", "stubborn")
        pid = self.running_agent(task_id)
        self.wait(lambda: len(processes_of(self.home)) >= 5, "the agent and its children run")
        before = len(processes_of(self.home))
        began = time.monotonic()
        self.holdfast("cancel", task_id[:4])
        self.say(f"{before} processes of the run before (keeper included), {time.monotonic() - began:.1f} s later:")
        self.check(not lives(pid) and not processes_of(self.home), "none lives, counted from /proc")

    def killed_agent(self) -> None:
        self.title("4. An agent killed with kill -9 is taken again, in the same tree")
        task_id = self.add("Work in two halves", "killed")
        pid = self.running_agent(task_id)
        self.wait((self.root / "halfway").exists, "the agent is half way")
        self.say(f"$ kill -9 {pid}")
        os.kill(pid, signal.SIGKILL)
        task = self.wait_state(task_id, "completed")
        self.say("runs: " + ", ".join(f"{run['number']} {run['outcome']}" for run in task["runs"]))
        text = self.git("show", f"{task['branch']}:two-halves.txt")
        self.check(text == "first half\nsecond half", "the second run continued where the first was killed")

    def limit(self) -> None:
        self.title("5. A usage limit pauses the task; it resumes by itself")
        task_id = self.add("Spend too much", "limit")
        self.wait_state(task_id, "paused")
        self.holdfast("why", task_id[:4])
        task = self.wait_state(task_id, "completed")
        resumed = [e for e in self.events(task_id) if e["kind"] == "task.resumed"]
        self.check(len(resumed) == 1 and len(task["runs"]) == 2, f"it continued by itself: {resumed[0]['message']}")

    def killed_supervisor(self) -> None:
        self.title("6. The supervisor killed with kill -9: the next one adopts its agent")
        task_id = self.add("Take your time", "adopted")
        agent = self.running_agent(task_id)
        self.wait((self.root / "at-work").exists, "the agent is at work")
        supervisor = self.supervisor_pid()
        self.say(f"$ kill -9 {supervisor}")
        os.kill(supervisor, signal.SIGKILL)
        self.wait(lambda: not lives(supervisor), "the supervisor is dead")
        self.check(lives(agent), f"the agent (pid {agent}) works on under its keeper")
        self.holdfast("up", "--detach")
        self.wait(lambda: any(e["kind"] == "task.adopted" for e in self.events(task_id)), "it is adopted")
        (self.root / "go").touch()
        task = self.wait_state(task_id, "completed")
        self.check(
            len(task["runs"]) == 1 and task["runs"][0]["pid"] == agent, "one run, the same pid: nothing ran twice"
        )

    def events(self, task_id: str) -> list[dict[str, Any]]:
        listed = self.holdfast("events", task_id, "--json", show=False)
        return [json.loads(line) for line in listed.splitlines()]

    def count(self) -> None:
        self.title("What is left")
        self.wait(lambda: not self.holdfast("workspaces", "--json", show=False), "all workspaces are removed")
        self.holdfast("ps", "--all")
        self.holdfast("doctor")
        self.holdfast("down")
        self.holdfast("doctor", "--invariants", "--at-rest")
        processes = processes_of(self.home)
        worktrees = [
            line for line in self.git("worktree", "list", "--porcelain").splitlines() if line.startswith("worktree ")
        ][1:]
        leaked = [
            b
            for b in self.git("for-each-ref", "--format=%(refname)", "refs/heads/holdfast/").split()
            if self.is_empty(b)
        ]
        for what, found in (("processes", processes), ("worktrees", worktrees), ("branches", leaked)):
            if found:
                self.failures.append(f"{what} left: {found}")
        print(f"\n{len(processes)} processes, {len(worktrees)} worktrees, {len(leaked)} branches leaked", flush=True)

    def is_empty(self, branch: str) -> bool:
        """A branch of ours without a commit of its own is a leak; one with work is a result."""
        return self.git("rev-list", "--count", f"main..{branch}") == "0"


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_of(home: Path) -> list[int]:
    """Agents and their descendants by their environment, which names a run of this home; keepers by where they work."""
    needle = b"HOLDFAST_RUN_DIR=" + os.fsencode(home)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
                folder = os.readlink(entry / "cwd")
            except OSError:
                continue
            if (needle in environment or folder.startswith(f"{home}/runs/")) and lives(int(entry.name)):
                found.append(int(entry.name))
    return found


def main() -> int:
    root = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    demo = Demo(root)
    try:
        demo.prepare()
        for act in (demo.success, demo.failure, demo.cancel, demo.killed_agent, demo.limit, demo.killed_supervisor):
            act()
        demo.count()
    finally:
        if (demo.home / "holdfast.db").exists():
            demo.holdfast("down", "--now", show=False)
        shutil.rmtree(root, ignore_errors=True)
    for failure in demo.failures:
        print(f"demo: not as promised: {failure}", file=sys.stderr)
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
