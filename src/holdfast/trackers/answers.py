"""What the beads tools print, understood: an array, an object, or an envelope around either. Pure.

`br` prints arrays, older tools an object, newer ones `{"schema_version": 1, "data": …}`. What has no id and no status
is no issue, and one value of a wrong type makes the whole answer unknown. Whoever may write issues may write anything:
what cannot be stored is replaced, and an id that could be taken for an option is nobody's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from holdfast.base.text import is_text
from holdfast.core.tasks.trackers import Issue
from holdfast.trackers.port import Unknown

MOST = 64 * 1024 * 1024  # bytes of an answer; more is not read
_ENVELOPES = ("data", "issues", "issue", "result", "results", "items")
_DEEPEST = 3
LONGEST_ID = 200
_WIDEST = 100
_CHANGE = re.compile(r"^\s*(assignee|status):\s+(.*?)\s+(?:→|->)\s+(.*?)\s*$", re.MULTILINE)
_NOBODY = frozenset({"", "(none)", "none", "-"})


def is_usable(issue_id: str) -> bool:
    """Whether an id can be given to a command as an argument, and is not taken for something else."""
    return (
        len(issue_id) <= LONGEST_ID and not issue_id.startswith("-") and issue_id.isprintable() and " " not in issue_id
    )


class _NotUnderstood(ValueError):
    pass


def issues_in(output: bytes) -> Sequence[Issue] | Unknown:
    """Every issue of an answer."""
    if len(output) > MOST:
        return Unknown(f"its answer is larger than {MOST // 1024 // 1024} MiB")
    try:
        return [_issue(found) for found in _unwrapped(json.loads(output.decode()), 0)]
    except UnicodeDecodeError:
        return Unknown("its answer is not UTF-8 text")
    except _NotUnderstood as why:
        return Unknown(f"its answer is not understood: {why}")
    except (ValueError, RecursionError):
        shown = output[:_WIDEST].decode(errors="replace").strip()
        return Unknown(f"its answer is no JSON: {shown!r}" if shown else "its answer is empty")


def error_code(output: bytes) -> str:
    """The stable word of an error that a tool printed as JSON; empty without one."""
    try:
        error = json.loads(output.decode())["error"]
        return str(error["code"]) if isinstance(error, dict) else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def overwritten(output: bytes) -> dict[str, str | None]:
    """What `br update` says of the values before its change (`assignee: ann → (none)`). Empty where a tool says
    nothing."""
    found: dict[str, str | None] = {}
    for field, before, _after in _CHANGE.findall(output.decode(errors="replace")):
        found[field] = None if field == "assignee" and before in _NOBODY else before
    return found


def _unwrapped(value: Any, depth: int) -> list[Any]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise _NotUnderstood(f"{type(value).__name__} where an issue should be")
    if "id" in value:
        return [value]
    inside = [key for key in _ENVELOPES if isinstance(value.get(key), list | dict)]
    if len(inside) != 1 or depth >= _DEEPEST:
        raise _NotUnderstood("an object without an id")
    return _unwrapped(value[inside[0]], depth + 1)


def _issue(value: Any) -> Issue:
    if not isinstance(value, dict):
        raise _NotUnderstood("an issue that is no object")
    status = _text(value, "status")
    priority = value.get("priority")
    labels = value.get("labels") or []
    if not isinstance(labels, list):
        raise _NotUnderstood("labels that are no list")
    return Issue(
        id=_text(value, "id"),
        title=_text(value, "title", needed=False) or "(without a title)",
        status=status,
        assignee=_text(value, "assignee", needed=False).strip() or None,
        description=_text(value, "description", needed=False).strip(),
        acceptance=_text(value, "acceptance_criteria", needed=False).strip(),
        kind=_text(value, "issue_type", needed=False),
        priority=priority if isinstance(priority, int) and not isinstance(priority, bool) else None,
        labels=tuple(_storable(str(label)) for label in labels),
    )


def _text(value: dict[str, Any], key: str, *, needed: bool = True) -> str:
    """A key that is missing or null is empty, unless an issue is none without it. A wrong type is not guessed about."""
    found = value.get(key)
    if found is None and not needed:
        return ""
    if not isinstance(found, str) or (needed and not found):
        raise _NotUnderstood(f"its `{key}` is {'missing' if found in (None, '') else 'no text'}")
    return _storable(found)


def _storable(text: str) -> str:
    return text if is_text(text) else text.encode(errors="replace").decode().replace("\0", "�")
