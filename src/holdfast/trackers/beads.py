"""The adapter for beads, by its command line: `br` (beads_rust) or `bd`. docs/adr/ describes how the two really behave.

Neither tool's exit code is reliable: `bd update` ends with 0 when a claim was refused. Neither claim is atomic. Both
tools resolve a part of an id to some other issue. So the adapter reads first, changes in one call, reads again, and
compares whole ids.

Answers are arrays, objects, or an envelope around either. `br` prints arrays, older tools an object, newer ones
`{"schema_version": 1, "data": …}`. An entry without an id or a status is not an issue. One value of a wrong type makes
the whole answer unknown. Authors of issues may write anything: characters that cannot be stored are replaced, and an
issue whose id could be read as an option is not used.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.base import faults
from holdfast.base.text import is_text
from holdfast.core.tasks.trackers import IN_PROGRESS, OPEN, Issue
from holdfast.secrets.redact import redact_text
from holdfast.trackers.port import (
    Changed,
    ChangeDone,
    ChangeRefused,
    FoundIssue,
    MissingIssue,
    OverwrittenChange,
    Shown,
    TrackerRunner,
    UnknownAnswer,
)

MOST = 64 * 1024 * 1024  # bytes of an answer; a larger one is not parsed
_ENVELOPES = ("data", "issues", "issue", "result", "results", "items")
_DEEPEST = 3
LONGEST_ID = 200
_WIDEST = 100
_CHANGE = re.compile(r"^\s*(assignee|status):\s+(.*?)\s+(?:→|->)\s+(.*?)\s*$", re.MULTILINE)
_NOBODY = frozenset({"", "(none)", "none", "-"})


def is_safe_id(issue_id: str) -> bool:
    """True if an id can be passed to a command as an argument and is not read as an option."""
    return (
        len(issue_id) <= LONGEST_ID and not issue_id.startswith("-") and issue_id.isprintable() and " " not in issue_id
    )


class _NotUnderstood(ValueError):
    """An answer of a form that this adapter does not know."""


def parse_issues(output: bytes) -> Sequence[Issue] | UnknownAnswer:
    """Return all issues of an answer, or Unknown if any part cannot be understood."""
    if len(output) > MOST:
        return UnknownAnswer(f"its answer is larger than {MOST // 1024 // 1024} MiB")
    try:
        return [_issue(found) for found in _unwrapped(json.loads(output.decode()), 0)]
    except UnicodeDecodeError:
        return UnknownAnswer("its answer is not UTF-8 text")
    except _NotUnderstood as why:
        return UnknownAnswer(f"its answer is not understood: {why}")
    except (ValueError, RecursionError):
        shown = output[:_WIDEST].decode(errors="replace").strip()
        return UnknownAnswer(f"its answer is not JSON: {shown!r}" if shown else "its answer is empty")


def parse_error_code(output: bytes) -> str:
    """Return the stable code of an error that a tool printed as JSON, or an empty text."""
    try:
        error = json.loads(output.decode())["error"]
        return str(error["code"]) if isinstance(error, dict) else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def parse_old_values(output: bytes) -> dict[str, str | None]:
    """Return the values before a change, as `br update` prints them (`assignee: ann → (none)`).

    Empty if the tool prints nothing about them.
    """
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
        raise _NotUnderstood("an issue that is not an object")
    status = _text(value, "status")
    priority = value.get("priority")
    labels = value.get("labels") or []
    if not isinstance(labels, list):
        raise _NotUnderstood("labels that are not a list")
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
    """Return the text of a key. A missing or null key is an empty text, unless the key is needed.

    Raise _NotUnderstood if a needed key is missing or the value has a wrong type.
    """
    found = value.get(key)
    if found is None and not needed:
        return ""
    if not isinstance(found, str) or (needed and not found):
        raise _NotUnderstood(f"its `{key}` is {'missing' if found in (None, '') else 'not text'}")
    return _storable(found)


def _storable(text: str) -> str:
    return text if is_text(text) else text.encode(errors="replace").decode().replace("\0", "�")


TIMED_OUT = 124
SETTLING = 0.2  # seconds in which another party's racing claim becomes visible
MOST_READY = "100"
_NOT_FOUND = ("not found", "no issue", "does not exist")
_NO_SUCH_OPTION = ("unexpected argument", "unknown flag", "unknown option", "unrecognized", "unknown argument")
_NO_WORK = frozenset({"epic", "message", "molecule", "gate"})  # kinds of issues that are not worked on as such


class BeadsTracker:
    """The tracker of one repository. `command` is the beginning of every command line."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str,
        run: TrackerRunner,
        env: Mapping[str, str],
        timeout: float,
        label: str = "",
        settling: float = SETTLING,
    ) -> None:
        self._command = tuple(command)
        self._cwd = cwd
        self._runner = run
        self._env = env
        self._timeout = timeout
        self._label = label
        self._settling = settling
        self._refused_options: set[str] = set()  # options that this tool does not know, not tried again

    async def ready(self) -> Sequence[Issue] | UnknownAnswer:
        wanted = ("--label", self._label) if self._label else ()
        answer = await self._run_command(("ready", "--json", *wanted), optional=("--unassigned", "--limit", MOST_READY))
        if isinstance(answer, UnknownAnswer):
            return answer
        code, out, err = answer
        found = parse_issues(out) if code == 0 else UnknownAnswer(_failure(code, err or out))
        if isinstance(found, UnknownAnswer):
            return found
        return [issue for issue in found if issue.is_free and issue.kind not in _NO_WORK and is_safe_id(issue.id)]

    async def show(self, issue_id: str) -> Shown:
        arguments = ("show", issue_id, "--json" if self._is_bd else "--format", *(() if self._is_bd else ("json",)))
        answer = await self._run_command(arguments)
        if isinstance(answer, UnknownAnswer):
            return answer
        code, out, err = answer
        if code != 0 and not out.strip().startswith((b"[", b"{")) and _has_no_such_option(err):
            answer = await self._run_command(("show", issue_id, "--json"))
            if isinstance(answer, UnknownAnswer):
                return answer
            code, out, err = answer
        if code != 0:
            said = (err + out).decode(errors="replace").lower()
            known = parse_error_code(err) or parse_error_code(out)
            if known == "ISSUE_NOT_FOUND" or (not known and any(word in said for word in _NOT_FOUND)):
                return MissingIssue()
            return UnknownAnswer(_failure(code, err or out))
        found = parse_issues(out)
        if isinstance(found, UnknownAnswer):
            return found
        exactly = [issue for issue in found if issue.id == issue_id]
        if len(exactly) == 1:
            return FoundIssue(exactly[0])
        return MissingIssue() if found else UnknownAnswer("its answer has no issue in it")

    async def claim(self, issue_id: str, name: str) -> Changed:
        before = await self.show(issue_id)
        if not isinstance(before, FoundIssue):
            return _gone(before)
        if before.issue.is_held_by(name):
            return ChangeDone()  # claimed by us before a crash, or a moment ago
        if not before.issue.is_free:
            return _refused(before.issue)
        faults.effect("tracker.claim")
        said = await self._change(("update", issue_id, "--claim"), name)
        faults.passed("tracker.claimed")
        overwrote = await self._restore_overwritten(
            issue_id, name, said, expected=(None, OPEN), ours=(name, IN_PROGRESS)
        )
        if overwrote is not None:
            return ChangeDone(overwrote)
        await asyncio.sleep(self._settling)
        return self._compare_result(await self.show(issue_id), said, lambda issue: issue.is_held_by(name))

    async def release(self, issue_id: str, name: str) -> Changed:
        before = await self.show(issue_id)
        if not isinstance(before, FoundIssue):
            return _gone(before)
        if not before.issue.is_held_by(name):
            return _refused(before.issue)
        faults.effect("tracker.release")
        said = await self._change(("update", issue_id, "--assignee", "", "--status", OPEN), name)
        faults.passed("tracker.released")
        overwrote = await self._restore_overwritten(
            issue_id, name, said, expected=(name, IN_PROGRESS), ours=(None, OPEN)
        )
        if overwrote is not None:
            return ChangeDone(overwrote)
        # Another assignee took the issue in a proper way. Only our own name means that nothing was released.
        return self._compare_result(await self.show(issue_id), said, lambda issue: issue.assignee != name)

    async def close(self, issue_id: str, name: str, note: str) -> Changed:
        before = await self.show(issue_id)
        if not isinstance(before, FoundIssue):
            return _gone(before)
        if not before.issue.is_held_by(name):
            return _refused(before.issue)
        faults.effect("tracker.close")
        said = await self._change(("close", issue_id, "--reason", redact_text(note)), name)
        faults.passed("tracker.closed")
        after = await self.show(issue_id)
        if isinstance(after, FoundIssue) and after.issue.is_over and after.issue.assignee not in (name, None):
            # Another party took the issue over before our change, and our change closed it.
            back = await self._restore(issue_id, name, after.issue.assignee, IN_PROGRESS)
            return ChangeDone(OverwrittenChange(after.issue.assignee, IN_PROGRESS, back))
        return self._compare_result(after, said, lambda issue: issue.is_over)

    async def note(self, issue_id: str, name: str, text: str) -> Changed:
        faults.effect("tracker.note")
        said = await self._change(("comments", "add", issue_id, redact_text(text)), name)
        return said if isinstance(said, UnknownAnswer) else ChangeDone()

    # -- pieces --------------------------------------------------------------------------------------------------

    async def _restore_overwritten(
        self,
        issue_id: str,
        name: str,
        said: bytes | UnknownAnswer,
        *,
        expected: tuple[str | None, str],
        ours: tuple[str | None, str],
    ) -> OverwrittenChange | None:
        """Restore the values that our change overwrote, if they differ from the values that we had read.

        The tool prints the values before the change. They are restored only if the issue is still as we left it.
        """
        if isinstance(said, UnknownAnswer):
            return None
        before = parse_old_values(said)  # a field that is not listed did not change
        assignee, status = before.get("assignee", ours[0]), before.get("status", ours[1])
        if not before or (assignee, status) == expected or status is None:
            return None
        after = await self.show(issue_id)
        if not isinstance(after, FoundIssue) or (after.issue.assignee, after.issue.status) != ours:
            return OverwrittenChange(assignee, status, restored=False)
        return OverwrittenChange(assignee, status, await self._restore(issue_id, name, assignee, status))

    async def _restore(self, issue_id: str, name: str, assignee: str | None, status: str) -> bool:
        faults.effect("tracker.restore")
        await self._change(("update", issue_id, "--assignee", assignee or "", "--status", status), name)
        after = await self.show(issue_id)
        return isinstance(after, FoundIssue) and (after.issue.assignee, after.issue.status) == (assignee, status)

    def _compare_result(self, after: Shown, said: bytes | UnknownAnswer, is_done: object) -> Changed:
        assert callable(is_done)
        if not isinstance(after, FoundIssue):
            return _gone(after)
        if is_done(after.issue):
            return ChangeDone()
        return said if isinstance(said, UnknownAnswer) else _refused(after.issue)

    async def _change(self, arguments: Sequence[str], name: str) -> bytes | UnknownAnswer:
        """Run a change and return its output.

        An exit code other than 0 is only a hint: the caller reads the issue back.
        """
        answer = await self._run_command(arguments, optional=("--actor", name), name=name)
        if isinstance(answer, UnknownAnswer):
            return answer
        code, out, err = answer
        return out if code == 0 else UnknownAnswer(_failure(code, err or out))

    async def _run_command(
        self, arguments: Sequence[str], *, optional: Sequence[str] = (), name: str = ""
    ) -> tuple[int, bytes, bytes] | UnknownAnswer:
        """Run a command of the tool. `optional` arguments are left out if the tool does not know them."""
        kind = arguments[0]
        if optional and kind not in self._refused_options:
            answer = await self._run((*arguments, *optional), name)
            if isinstance(answer, UnknownAnswer) or answer[0] == 0 or not _has_no_such_option(answer[2]):
                return answer
            self._refused_options.add(kind)
        return await self._run(arguments, name)

    async def _run(self, arguments: Sequence[str], name: str) -> tuple[int, bytes, bytes] | UnknownAnswer:
        words = (*self._command, *arguments)
        env = {**self._env, "BEADS_ACTOR": name, "BD_ACTOR": name} if name else self._env
        try:
            code, out, err = await self._runner(words, cwd=self._cwd, env=env, timeout=self._timeout)
        except OSError as error:
            return UnknownAnswer(f"`{self._command[0]}` cannot be started: {error.strerror or error}")
        if code == TIMED_OUT and err.startswith(b"timed out"):
            return UnknownAnswer(
                f"`{os.path.basename(words[0])} {arguments[0]}` did not answer within {self._timeout:g} s"
            )
        return code, out, err

    @property
    def _is_bd(self) -> bool:
        return os.path.basename(self._command[0]) == "bd"


def _has_no_such_option(errors: bytes) -> bool:
    said = errors.decode(errors="replace").lower()
    return any(words in said for words in _NO_SUCH_OPTION)


def _failure(code: int, output: bytes) -> str:
    words = " ".join(output.decode(errors="replace").split())[:200]
    return f"it ended with {code}: {words}" if words else f"it ended with {code} and printed nothing"


def _gone(shown: MissingIssue | UnknownAnswer) -> Changed:
    return shown if isinstance(shown, UnknownAnswer) else ChangeRefused("it is gone")


def _refused(issue: Issue) -> ChangeRefused:
    return ChangeRefused(issue.holder, is_free=issue.is_free, is_over=issue.is_over)
