"""Violations, and a fingerprint of everything that recovery could change.

The fingerprint must be the same before and after a second recovery.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from holdfast.checker.evidence import Evidence, git

_LASTING = ("repos", "tasks", "runs", "workspaces", "salvages", "spends", "requests", "alerts")


def fingerprint(home: str) -> dict[str, str]:
    """Return a mapping from a part of the home to its content as text, so that a difference can be shown."""
    evidence = Evidence(home)
    parts = {name: _text(evidence.tables[name]) for name in _LASTING}
    parts["task events"] = _text([row for row in evidence.events if row["task_id"] is not None])
    parts["directories"] = _text(
        [
            *sorted(evidence.workspace_directories()),
            *sorted(evidence.owner_markers()),
            *evidence.trash(),
            *evidence.run_directories(),
        ]
    )
    for repo in evidence.tables["repos"]:
        parts[f"refs of {repo['path']}"] = git(repo["common_dir"], "for-each-ref")
        parts[f"entries of {repo['path']}"] = _text(list(evidence.worktree_entries(repo["common_dir"])))
        if os.path.isdir(evidence.shadow(repo["id"])):
            refs = git(evidence.shadow(repo["id"]), "for-each-ref").splitlines()
            # Checkpoints of ended tasks may be deleted at any time.
            lasting = [line for line in refs if "\trefs/checkpoint/" not in line]
            parts[f"shadow of {repo['path']}"] = "\n".join(lasting)
    return parts


def _text(value: object) -> str:
    return json.dumps(value, indent=0, default=str, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: work that is lost, leaked or done twice, a loop, or a silent failure."""

    promise: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.rule}: {self.text}"
