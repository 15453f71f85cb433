"""A task as a report: Markdown that a person would paste into a pull request.

Agents and gates print arbitrary text. Their text cannot end the fence or the quotation around it. Text with an HTML tag
is fenced, so that the tag has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.api.format import duration, took
from holdfast.api.tasks.results import (
    describe_decision,
    describe_end,
    describe_members,
    pair_decisions,
    read_results,
    stage_headings,
    why_not_passed,
)
from holdfast.api.tasks.why.outcome import truth_lines
from holdfast.base.text import clean_text, one_line

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import ReportRow

MOST_FILES = 100  # named in a report; `show --results --json` has more
_TAG = re.compile(r"<[A-Za-z/!?]")
_SPECIAL = re.compile(r"([\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_]))")  # `_` within a word has no meaning
_CODE = re.compile(r"`([^`]+)`")


def build_report(queries: Queries, task_id: str) -> ReportRow:
    """Return the content of a report. `--json` prints this content."""
    from holdfast.api.tasks.usage import complete
    from holdfast.workspaces.git.refs import has_branch

    task = queries.task(task_id)
    complete(queries, task)
    found = read_results(queries, task_id)
    last = [stage for stage in found["stages"] if stage["commit"] or stage["files"]][-1:]
    return {
        **found,
        "prompt": task["prompt"],
        "messages": task["messages"],
        "reason": task["reason"],
        "repo": task["repo"],
        "agent": task["agent"],
        "labels": task["labels"],
        "base_ref": task["base_ref"],
        "base_commit": task["base_commit"],
        "branch": task["branch"] if task["branch"] and has_branch(task["repo"], task["branch"]) else None,
        "created_at": task["created_at"],
        "ended_at": task["ended_at"],
        "runs": len(task["runs"]),
        "usage": task["usage"],
        "files": sorted({name for stage in last for name in stage["files"]}),
        "commit": last[0]["commit"] if last else None,
        "gate": task["gate"],
        "changed_files": task["changed_files"],
        "refused_calls": task["refused_calls"],
        "refused_first": task["refused_first"],
    }


def render_markdown(found: ReportRow) -> str:
    parts = [
        f"# {_inline(one_line(found['prompt'], 80)) or found['task']}",
        _summary(found),
        f"## The prompt\n\n{_quote(found['prompt'])}",
        *_messages(found),
        *_stages(found),
        *_answers(found),
        *_files(found),
        _more(found),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(found: ReportRow) -> str:
    workflow = f" by the workflow **{_inline(found['workflow'])}**" if found["workflow"] else ""
    lines = [f"Task `{found['task']}` is **{found['state']}**{workflow}."]
    if found["reason"]:
        lines[0] = lines[0].rstrip(".") + f": {_inline(one_line(found['reason'], 300))}."
    cost = took(found["usage"]) if found["usage"] else ""
    runs = f"{found['runs']} run{'' if found['runs'] == 1 else 's'}"
    since = (found["ended_at"] or 0.0) - found["created_at"]
    facts = [
        runs,
        *([f"{duration(max(0.0, since))} from the time it was added to its end"] if found["ended_at"] else []),
    ]
    lines += [_inline(line) for line in truth_lines(found)]
    lines.append(f"It used {', '.join([*facts, *([_inline(cost)] if cost else [])])}.")
    if found["branch"]:
        # The stage's commit is not the newest in a workflow: uncommitted work of the last stage was committed after it.
        commit = f" at `{found['commit'][:12]}`" if found["commit"] and not found["workflow"] else ""
        lines.append(f"Its work is on branch {code(found['branch'])}{commit}, from {code(found['base_ref'])}.")
    return "\n".join(lines)


def _messages(found: ReportRow) -> Iterable[str]:
    for one in found["messages"]:
        fate = "it waits" if one["run"] is None else f"given to run {one['run']}"
        yield f"### Message {one['number']}, by {_inline(one['by'])} ({fate})\n\n{_quote(one['text'])}"


def _stages(found: ReportRow) -> Iterable[str]:
    if not found["stages"]:
        yield "## Stages\n\nNo stage has ended yet."
        return
    rows = [("#", "Stage", "Agent", "Outcome", "Gate", "Took")]
    for number, (name, stage) in enumerate(zip(stage_headings(found["stages"]), found["stages"], strict=True), 1):
        mark = "✓" if stage["passed"] else "✗"
        gate = "" if stage["gate"] is None else f"{'✓' if stage['gate']['passed'] else '✗'} {stage['gate']['how']}"
        began, ended = stage["started_at"], stage["ended_at"]
        spent = duration(max(0.0, ended - began)) if began is not None and ended is not None else ""
        rows.append((str(number), name, stage["agent"], f"{mark} {describe_end(stage)}", gate, spent))
    lines = ["| " + " | ".join(_escape(one_line(cell, 120)) for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    yield "## Stages\n\n" + "\n".join(lines)
    for counted in found["members"]:
        yield f"Members of {_inline(counted['name'])}: {describe_members(counted)}."


def _answers(found: ReportRow) -> Iterable[str]:
    stages, decisions = found["stages"], pair_decisions(found)
    for number, (name, stage, decided) in enumerate(zip(stage_headings(stages), stages, decisions, strict=True), 1):
        yield f"## {number}. {_inline(name)}"
        if not stage["passed"]:
            yield f"It did not pass: {_inline(one_line(why_not_passed(stage), 300))}."
        yield _quote(stage["text"]) if stage["text"] else "It gave no answer."
        gate = stage["gate"]
        if gate is not None:
            yield f"Gate {code(one_line(gate['command'], 200))}: {_inline(one_line(gate['how'], 200))}."
            if gate["output"].strip():
                yield fence_text(gate["output"])
        for one in decided:
            yield f"**{_inline(describe_decision(one))}**" + (
                f":\n\n{_quote(one['changes'])}" if one["changes"] else "."
            )


def _files(found: ReportRow) -> Iterable[str]:
    names = found["files"]
    if not names:
        return
    lines = [f"- {code(one_line(name))}" for name in names[:MOST_FILES]]
    if len(names) > MOST_FILES:
        lines.append(f"- … and more: `holdfast diff {found['task']} --stat`")
    yield f"## Changed files ({len(names)})\n\n" + "\n".join(lines)


def _more(found: ReportRow) -> str:
    task = found["task"]
    lines = [
        f"holdfast show {task} --results   # all of this",
        f"holdfast logs {task}   # the output of its agents",
    ]
    if found["branch"]:
        lines.append(f"holdfast diff {task}   # what changed")
    if found["state"] in ("failed", "cancelled"):
        lines.append(f"holdfast retry {task}   # try again")
    return "## More\n\n" + fence_text("\n".join(lines), "sh")


# -- other people's words ----------------------------------------------------------------------------------------------


def fence_text(text: str, language: str = "") -> str:
    """Return text in a fence that is longer than any fence within, so that nothing in the text can close it."""
    text = clean_text(text).strip("\n")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def code(text: str) -> str:
    """Return a name as Markdown code, whatever backquotes the name holds."""
    text = one_line(text) or "(nothing)"
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{marks}{space}{text}{space}{marks}"


def _quote(text: str) -> str:
    """Return an answer as a quotation, so that its own Markdown stays inside. An answer with tags is fenced."""
    text = clean_text(text).strip("\n")
    if _TAG.search(text):
        return fence_text(text)
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _inline(text: str) -> str:
    """Return one line of text in which no character has a meaning in Markdown or HTML, except that `…` is code."""
    plain, *pieces = _CODE.split(one_line(text))
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    return _escape(plain) + "".join(code(inner) + _escape(after) for inner, after in pairs)


def _escape(text: str) -> str:
    """Return one line of text in which no character has a meaning in Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")
