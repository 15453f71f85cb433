"""What must hold when a soak has come to rest. From outside: the checker, git, /proc, the disk, and the witnesses."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from tests.fleet import processes_of

from holdfast.checker.witness import blob_id

if TYPE_CHECKING:
    from tests.soak import Soak

TERMINAL = ("completed", "failed", "cancelled")


def check(played: Soak) -> list[str]:
    store = apsw.Connection(str(played.fleet.home / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [line for rule in RULES for line in rule(played, store)]
    finally:
        store.close()


def _checker(played: Soak, _store: apsw.Connection) -> Iterator[str]:
    for words in (("doctor", "--invariants", "--at-rest"), ("doctor",)):
        code, out, err = played.holdfast(*words)
        if code != 0:
            yield f"{' '.join(words)} → {code}: {out}{err}"


def _processes(played: Soak, _store: apsw.Connection) -> Iterator[str]:
    for pid, line in processes_of(played.fleet.home).items():
        yield f"pid {pid} lives: {line}"


def _tasks(played: Soak, store: apsw.Connection) -> Iterator[str]:
    states = dict(store.execute("SELECT id, state FROM tasks"))
    for task in played.acknowledged:
        if states.get(task) not in TERMINAL:
            yield f"acknowledged task {task} is {states.get(task, 'not there')}"


def _runs(played: Soak, store: apsw.Connection) -> Iterator[str]:
    overlaps = played.witness / "overlaps"
    if overlaps.exists():
        yield f"two agents of one task at once: {overlaps.read_text()}"
    known = dict(store.execute("SELECT id, task_id FROM runs"))
    ran = played.witness / "ran"
    for run, times in Counter(ran.read_text().split("\n") if ran.exists() else []).items():
        if run and times > 1:
            yield f"run {run} had {times} agents"
        if run and run.split()[0] not in known:
            yield f"an agent ran as {run}, of which there is no row"


def _work(played: Soak, store: apsw.Connection) -> Iterator[str]:
    """Every file that an agent had written: on a branch, in a salvage, or on disk."""
    kept = _objects(played.fleet.repo / ".git", "--branches")
    for shadow in (played.fleet.home / "shadows").glob("*.git"):
        kept |= _objects(shadow, "--all")
    for path in (played.fleet.home / "workspaces").rglob("*.txt"):
        kept.add(blob_id(path.read_bytes()))
    wrote = played.witness / "wrote"
    for line in wrote.read_text().splitlines() if wrote.exists() else []:
        run, task = line.split()
        if blob_id(f"{run}\n".encode()) not in kept:
            yield f"lost: what run {run} of task {task} wrote"
    for note, text in played.scripted.items():
        if (played.witness / note).exists() and blob_id(text.encode()) not in kept:
            yield f"lost: what scenario {note} wrote ({text.strip()})"


def _objects(directory: Path, which: str) -> set[str]:
    done = subprocess.run(
        ["git", f"--git-dir={directory}", "rev-list", "--objects", which], capture_output=True, text=True, check=True
    )
    return {line.split()[0] for line in done.stdout.splitlines()}


def _litter(played: Soak, store: apsw.Connection) -> Iterator[str]:
    """Of git, in the user's repository."""
    common = played.fleet.repo / ".git"
    for path in common.rglob("*.lock"):
        if not path.name.startswith("holdfast"):
            yield f"left in the repository: {path}"
    for path in [*common.rglob("tmp_obj*"), *common.rglob("*.new")]:
        if not path.is_relative_to(common / "objects"):
            yield f"left in the repository: {path}"
    kept = {row[0] for row in store.execute("SELECT path FROM workspaces WHERE state = 'preserved'")}
    for worktree in played.fleet.worktrees():
        if worktree not in kept:
            yield f"a worktree is left: {worktree}"
    for ref in played.fleet.git("for-each-ref", "--format=%(refname)").splitlines():
        if ref != "refs/heads/main" and not ref.startswith("refs/heads/holdfast/"):
            yield f"a ref is left in the repository: {ref}"


def _shadows(played: Soak, store: apsw.Connection) -> Iterator[str]:
    rows = {row[0] for row in store.execute("SELECT ref FROM salvages UNION SELECT ref FROM checkpoints")}
    for shadow in (played.fleet.home / "shadows").glob("*.git"):
        done = subprocess.run(
            ["git", f"--git-dir={shadow}", "for-each-ref", "--format=%(refname)"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        for ref in done.stdout.splitlines():
            if ref not in rows and not ref.startswith("refs/heads/"):  # those came with the clone that it is
                yield f"a ref without a row in {shadow.name}: {ref}"
        for path in shadow.rglob("*.lock"):
            yield f"left in the shadow: {path}"
    query = "SELECT task_id, count(*) FROM checkpoints JOIN tasks ON id = task_id WHERE dropped IS NULL GROUP BY 1"
    for task, count in store.execute(query + " HAVING count(*) > 5"):
        yield f"task {task} has {count} checkpoints"


def _told(played: Soak, store: apsw.Connection) -> Iterator[str]:
    """Each alert, at least once; one key each."""
    heard = Counter(received.key for received in played.receiver.received)
    for key, state, told in store.execute(
        "SELECT key, state, told FROM deliveries JOIN notices ON id = notice_id WHERE target LIKE '%'"
    ):
        if state == "sent" and not heard[key]:
            yield f"notice {key} is recorded as sent, and was never heard"
        if state == "waiting":
            yield f"notice {key} still waits: {told}"
    for key, planned in store.execute("SELECT key, planned FROM notices WHERE planned IS NULL"):
        yield f"nobody looked at notice {key}: {planned}"
    raised = {row[0] for row in store.execute("SELECT alert_id FROM notices WHERE transition = 'raised'")}
    for number, key, level in store.execute("SELECT id, key, level FROM alerts"):
        if number not in raised and level in ("warning", "critical", "error"):
            yield f"alert {number} ({key}) was never to be sent"
    for key, count in store.execute(
        "SELECT key, count(*) FROM alerts WHERE acked_at IS NULL GROUP BY key HAVING count(*) > 1"
    ):
        yield f"{count} open alerts have the key {key}"


def _issues(played: Soak, store: apsw.Connection) -> Iterator[str]:
    names = {row[0] for row in store.execute("SELECT name FROM tracker_name")}
    states = dict(store.execute("SELECT id, state FROM tasks"))
    data = json.loads((played.fleet.repo / ".beads" / "standin.json").read_text())
    for issue in data["issues"]:
        if issue.get("assignee") in names and issue["status"] == "in_progress":
            links = list(store.execute("SELECT task_id, state, reason FROM links WHERE issue = ?", (issue["id"],)))
            yield f"issue {issue['id']} is still ours: {links}"
    for issue, task, state in store.execute("SELECT issue, task_id, state FROM links"):
        if state in ("intended", "claimed", "releasing", "closing"):
            yield f"the link of {issue} to task {task} ({states.get(task)}) is {state}"


def _log(played: Soak, _store: apsw.Connection) -> Iterator[str]:
    for path in (played.fleet.root / "supervisor.log", played.fleet.home / "supervisor.log"):
        text = path.read_text(errors="replace") if path.exists() else ""
        if "Traceback" in text:
            place = text.index("Traceback")
            yield f"{path.name}: {text.count('Traceback')} tracebacks, the first: {text[place : place + 3000]}"


RULES = (_checker, _processes, _tasks, _runs, _work, _litter, _shadows, _told, _issues, _log)
