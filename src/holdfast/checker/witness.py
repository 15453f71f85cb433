"""A witness: acknowledged tasks, agents that ran and bytes that they wrote. They are seen from outside and compared
with the home."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.checker.evidence import Evidence, git, task_of
from holdfast.checker.violation import Violation

LIVE_WORKSPACES = ("intended", "ready", "preserved")


@dataclass(frozen=True, slots=True)
class Witness:
    """Facts that were seen from outside the product."""

    acknowledged: tuple[str, ...] = ()
    wrote: tuple[tuple[str, str, str], ...] = ()  # (task, path, git blob id)
    ran: tuple[str, ...] = ()  # run ids, one for each agent process that started


def read_witness(path: str) -> Witness:
    acknowledged, wrote, ran = [], [], []
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = json.loads(line)
            if "acknowledged" in words:
                acknowledged.append(str(words["acknowledged"]))
            elif "wrote" in words:
                wrote.append((str(words["task"]), str(words["wrote"]), str(words["blob"])))
            elif "ran" in words:
                ran.append(str(words["ran"]))
    return Witness(tuple(acknowledged), tuple(wrote), tuple(ran))


def check_witness(evidence: Evidence, witness: Witness) -> Iterator[Violation]:
    """Yield violations: acknowledged tasks, agents or bytes that are missing from the home or are there twice."""
    for task_id in witness.acknowledged:
        if task_id not in evidence.tasks:
            yield Violation("lost", "task", f"{task_id} was acknowledged, but is not in the store")
    for run_id, times in Counter(witness.ran).items():
        if times > 1:
            yield Violation("twice", "agent", f"run {run_id} had {times} agents")
        if run_id not in evidence.runs:
            yield Violation("leaked", "agent", f"an agent ran as {run_id}, which has no row")
        elif evidence.runs[run_id]["state"] == "settled" and evidence.runs[run_id]["started_at"] is None:
            yield Violation("silent", "agent", f"run {run_id} is recorded as one that never started, but its agent ran")
    kept: dict[str, set[str]] = {}
    for task_id, path, blob in witness.wrote:
        if task_id not in kept:
            kept[task_id] = _kept_blobs(evidence, task_id)
        if blob not in kept[task_id] and not _is_in_workspace(evidence, task_id, path, blob):
            yield Violation("lost", "bytes", f"{path}, written by task {task_id}, is on no branch, salvage or disk")


def _kept_blobs(evidence: Evidence, task_id: str) -> set[str]:
    """Return the objects in the task's branches, in the branches that they were merged into, and in its salvages."""
    task = evidence.tasks[task_id]
    repo = next(row for row in evidence.tables["repos"] if row["id"] == task["repo_id"])
    found: set[str] = set()
    for branch, tip in evidence.branches(repo["common_dir"]).items():
        if task_of(branch) == task_id:
            found |= evidence.blobs_beyond(repo["common_dir"], tip, None)
    for target in _merged_into(evidence, task_id):
        found |= evidence.blobs_beyond(repo["common_dir"], f"refs/heads/{target}", None)
    for row in evidence.tables["salvages"]:
        if row["task_id"] == task_id:
            found |= evidence.blobs_beyond(evidence.shadow(row["repo_id"]), row["ref"], None)
    return found


def _merged_into(evidence: Evidence, task_id: str) -> set[str]:
    told = (row for row in evidence.tables["events"] if row["task_id"] == task_id and row["kind"] == "branch.merged")
    return {str(json.loads(row["data"])["into"]) for row in told}


def _is_in_workspace(evidence: Evidence, task_id: str, path: str, blob: str) -> bool:
    """True if the content is in the task's workspace: as a file, in its index, or in a commit of its HEAD."""
    for row in evidence.tables["workspaces"]:
        if row["task_id"] != task_id or row["state"] not in LIVE_WORKSPACES:
            continue
        where = os.path.join(row["path"], path)
        if os.path.isfile(where):
            with open(where, "rb") as file:
                if blob_id(file.read()) == blob:
                    return True
        own = os.path.join(row["path"], ".git")
        if blob in git(own, "ls-files", "--stage") or blob in evidence.blobs_beyond(own, "HEAD", None):
            return True
    return False


def blob_id(content: bytes) -> str:
    """Return the id that git gives to a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
