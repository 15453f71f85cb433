"""A repository's tracker, played by tests/harness/tracker_stand_in.py: its issues, how it behaves, what others do."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness import tracker_stand_in

SCRIPT = Path(tracker_stand_in.__file__)


class StandIn:
    def __init__(self, repo: Path) -> None:
        self.folder = repo / ".beads"
        self.folder.mkdir()
        (self.folder / ".gitignore").write_text("*\n")
        self._file = self.folder / "standin.json"
        self._file.write_text(json.dumps({"issues": [], "how": {}}))

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        fd = os.open(f"{self._file}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            data = json.loads(self._file.read_text())
            yield data
            aside = self._file.with_suffix(".aside")
            aside.write_text(json.dumps(data))
            aside.replace(self._file)
        finally:
            os.close(fd)

    def behave(self, **how: Any) -> None:
        with self.changing() as data:
            data["how"] = how

    def add(self, issue_id: str, **fields: Any) -> str:
        with self.changing() as data:
            issue = {"id": issue_id, "title": f"Do {issue_id}", "status": "open", "priority": 2, "issue_type": "task"}
            data["issues"].append({**issue, **fields})
        return issue_id

    def set(self, issue_id: str, **fields: Any) -> None:
        """What a person does."""
        with self.changing() as data:
            next(issue for issue in data["issues"] if issue["id"] == issue_id).update(fields)

    def delete(self, issue_id: str) -> None:
        with self.changing() as data:
            data["issues"] = [issue for issue in data["issues"] if issue["id"] != issue_id]

    def get(self, issue_id: str) -> dict[str, Any]:
        data = json.loads(self._file.read_text())
        found: dict[str, Any] = next(issue for issue in data["issues"] if issue["id"] == issue_id)
        return found

    def stands(self, issue_id: str) -> tuple[str, str | None]:
        issue = self.get(issue_id)
        return issue["status"], issue.get("assignee")

    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
