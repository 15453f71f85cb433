"""The outcome of a task as text: changed files, refused tool calls, the gate.

`completed` alone only means that the agent reported success. These words accompany it on every screen. The module
imports little, because `ps` imports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.base.stored_json import load_stored_json
from holdfast.base.text import one_line

MOST_NAMED = 2  # refused tool calls that a sentence names


def decode_truth(row: dict[str, Any]) -> None:
    """Replace the column `truth` of a raw row by the fields `changed_files`, `refused_calls` and `refused_first`."""
    kept = load_stored_json(row.pop("truth")) if row.get("truth") else row.pop("truth", None) or {}
    names = [str(name) for call in kept.get("first") or () for name in call]
    row["changed_files"], row["refused_calls"] = kept.get("changed"), kept.get("refused")
    row["refused_first"] = list(dict.fromkeys(names))


def end_clause(row: Mapping[str, Any]) -> str:
    """Return one clause about a task that has ended, for a list."""
    text, word = row["reason"] or "", row["failure_reason"]
    told = ", ".join(_merge_words(row) + short_words(row))
    if told:
        return f"{told}: {text}"
    return text if not word or text.startswith(word) else f"{word}: {text}"


def _merge_words(row: Mapping[str, Any]) -> list[str]:
    """Return "merged into main", or "not merged" if a branch has work and no `holdfast merge` of it is recorded."""
    if row["state"] != "completed" or "merged_into" not in row:
        return []
    if row["merged_into"]:
        return [f"merged into {one_line(row['merged_into'], 80)}"]
    return ["not merged"] if row["branch"] and row["changed_files"] else []


def state_words(row: Mapping[str, Any]) -> str:
    """Return the state and a short form of the outcome: "completed, no changes, 3 refused"."""
    return ", ".join([str(row["state"]), *short_words(row)])


def short_words(row: Mapping[str, Any]) -> list[str]:
    """Return "no changes" and "3 refused", as far as they are true of a task that completed."""
    if row["state"] != "completed":
        return []
    told = ["no changes"] if row.get("changed_files") == 0 else []
    return [*told, f"{row['refused_calls']} refused"] if row.get("refused_calls") else told


def truth_lines(row: Mapping[str, Any]) -> list[str]:
    """Return sentences about the work of a task that has ended: its files, its refused tool calls and its gate."""
    files, refused, told = row.get("changed_files"), row.get("refused_calls"), []
    if files is not None:
        told.append(f"It changed {files} file{'' if files == 1 else 's'}." if files else "It changed no files.")
    if refused:
        told.append(
            f"{describe_refused(refused, row['refused_first'])}. To allow commands: `holdfast help permissions`."
        )
    gate = row.get("gate")
    if gate is not None and gate["passed"]:
        words = f"ts gate `{one_line(gate['command'], 200)}` passed"
        told += [] if words in str(row.get("reason")) else [f"I{words}."]
    return told


def describe_refused(count: int, first: Sequence[str]) -> str:
    """Return "2 tool calls were refused (Bash: make test)"."""
    calls = "1 tool call was refused" if count == 1 else f"{count} tool calls were refused"
    more = ", …" if len(first) > MOST_NAMED else ""
    return f"{calls} ({', '.join(one_line(name, 80) for name in first[:MOST_NAMED])}{more})" if first else calls
