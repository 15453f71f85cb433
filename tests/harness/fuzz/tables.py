"""Tables of a settings file with a meaning of their own: schedules, workflows, and the templates in them.

What is taken can be computed with, shown and read back; what is not is told with its place, in one line.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from tests.harness.fuzz import malformed_json
from tests.harness.fuzz.words import DURATIONS, Draw, either, noise

from holdfast import config
from holdfast.api.format import describe_moment
from holdfast.base.errors import HoldfastError
from holdfast.config.read_file import read_settings_file
from holdfast.config.tables.schedule_keys import KEYS
from holdfast.config.tables.schedules import read_schedules, schedules_to_show, to_table, trust_lines
from holdfast.config.tables.workflows import workflow_values_needing_trust
from holdfast.core.schedules.due import due_at, upcoming_occurrences
from holdfast.core.workflows import template as templates
from holdfast.core.workflows.draft import find_flaws
from holdfast.intake.new_task import NewTask
from holdfast.intake.workflow import resolve_agents

HOSTILE = "$(touch PWNED) `x`; é 日本 %s {0} \x1b[2J"
FIELDS = ("*", "0", "59", "*/5", "1-5", "1,2", "L", "LW", "5L", "1#2", "7", "JAN", "MON-FRI", "0/0", "5-1", "²", "99")
SAFE = ("*", "*/2", "1-5", "1,2", "5/2")  # good in every field
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Europe", "../../etc/passwd", "new york", "", "Asia/Kolkata")
WORDS: dict[str, tuple[Any, ...]] = {
    "name": ("nightly", "a", "a b", "", "x" * 65, HOSTILE),
    "repo": ("/r", "~/r", "r", "", "/" + "x" * 5000, "/r\0"),
    "timezone": ZONES,
    "prompt": ("do it", "", " ", HOSTILE, "x" * 70_000),
    "overlap": ("skip", "queue", "replace", "never"),
    "misfire": ("last", "skip", "all", "none"),
    "jitter": DURATIONS,
    "timeout": DURATIONS,
    "labels": ({}, {"a": "b"}, {"schedule": "x"}, {"": "x"}, {"a=b": "c"}),
}


class Schedules:
    def __init__(self, place: Path) -> None:
        pass

    def play(self, draw: random.Random) -> str:
        tables = [self._table(draw) for _ in range(draw.choice((1, 1, 2)))]
        told: list[tuple[str, str]] = []
        found = read_schedules(tables, "f", {}, lambda key, text: told.append((key, text)))
        wrong = "" if found or told else "neither taken nor told"
        for key, text in told:
            if not key.startswith("schedule") or len(text) > 600 or "\n" in text:
                wrong = f"told as {key!r}: {text[:700]!r}"
        for schedule in found:
            moments = upcoming_occurrences(schedule, draw.choice((0.0, 1.79e9, 4e9, 2.5e11)), 3)
            if moments != sorted(set(moments)) or any(due_at(schedule, moment) < moment for moment in moments):
                wrong = f"it is due at {moments}"
            if not all(describe_moment(moment, schedule.zone) for moment in moments):
                wrong = f"no words for {moments}"
            schedules_to_show((schedule,))
            trust_lines((schedule,))
            mistakes: list[str] = []
            again = read_schedules([to_table(schedule)], "f", {}, lambda _key, text, to=mistakes: to.append(text))  # type: ignore[misc]  # bound now
            if mistakes or list(again) != [schedule]:
                wrong = f"read back it is {again} ({mistakes})"
        return f"silent: {wrong}\n  the tables: {tables!r:.1500}" if wrong else ""

    def _table(self, draw: Draw) -> dict[str, Any]:
        parts = SAFE if draw.random() < 0.7 else FIELDS
        cron = " ".join(draw.choice(parts) for _ in range(draw.choice((5, 5, 5, 6, 6, 4, 7))))
        table: dict[str, Any] = {"name": "n", "repo": "/r", "prompt": "p", "cron": cron}
        for _ in range(draw.randrange(4)):
            key = draw.choice((*KEYS, "nmae", "é"))
            table[key] = draw.choice(WORDS.get(key, malformed_json.STRANGE))
        bad = malformed_json.bend(draw, table) if draw.random() < 0.3 else table
        return bad if isinstance(bad, dict) else table

    def end(self) -> list[str]:
        return []


PIECES = (
    *("{{", "}}", "{{{{", "}}}}", "{", "}", " ", "\n", "\t", "\r\n", "\0", "é", "日本", "x", ".", "\ud800"),
    *("{{ task.prompt }}", "{{feedback}}", "{{ member }}", "{{ stages.plan.text }}", "{{ stages.build.members }}"),
    *("{{ stages.re-view.ruling }}", "{{ task.labels.a.b }}", "{{ task.range }}", "{{ task.promt }}", "{{ a b }}"),
    *("{{ $(id) }}", "{% if %}", "${x}", "VERDICT: approve", "{{ stages..text }}", "{{\n\n}}", "{{ {{ turn }} }}"),
)


class Templates:
    """Every text is a template, or has mistakes inside it; what is put in is put in once."""

    VALUES = dict.fromkeys(
        (*templates.VARIABLES, "stages.plan.text", "task.labels.a.b"), f"{HOSTILE} {{{{ task.id }}}}"
    )

    def __init__(self, place: Path) -> None:
        pass

    def play(self, draw: random.Random) -> str:
        text = "".join(draw.choice(PIECES) for _ in range(draw.randrange(12)))
        wrong = ""
        try:
            template = templates.parse(text)
        except templates.TemplateError as error:
            rows = text.split("\n")
            for mistake in error.mistakes:
                inside = 1 <= mistake.line <= len(rows) and 1 <= mistake.column <= len(rows[mistake.line - 1]) + 1
                wrong = wrong if inside and "\n" not in str(mistake) else f"told as {mistake}"
        else:
            put_in = templates.render(template, self.VALUES)
            short = templates.render(template, self.VALUES, most=200)
            length = max(200, len(text.encode(errors="surrogatepass")))
            if put_in.count(HOSTILE) > text.count("{{") or len(short.encode(errors="surrogatepass")) > length:
                wrong = f"it came to {put_in[:300]!r}"
        return f"silent: {wrong}\n  the template: {text!r}" if wrong else ""

    def end(self) -> list[str]:
        return []


STAGE: dict[str, tuple[Any, ...]] = {
    "agent": ("claude", "codex", "command", "cluade"),
    "prompt": ("Do {{ task.prompt }}", "{{ feedback }}{{{{", HOSTILE),
    "permission": ("read", "edit", "full"),
    "command": (["true"], ["sh", "-c", HOSTILE], [], "make"),
    "least": (1, 0, 3),
    "prompt_file": ("prompt.md", "../outside.md", "link.md", "."),
    "timeout": DURATIONS,
    "gate": ("make test", True, False),
    "on_failure": ("fail", "continue", "pause", "back"),
    "back_to": ("plan", "build", ""),
    "retry": (0, 2, -1),
    "members": (["a", "b"], ["a", "A"], [{"name": "a", "prompt": "{{ member }}"}, "b"]),
    "approval": (True,),
    "x": (1,),
    "reviews": (True, False),
    "apart": (True, False),
    "max_turns": (1, 9),
    "at_once": (0, 2),
    "model": ("opus", ""),
}


class Workflows:
    """Whole files: good workflows, or problems with their places; a good one becomes a crew, or a refusal in words."""

    def __init__(self, place: Path) -> None:
        self._file = place / "holdfast.toml"
        (place / "prompt.md").write_text("Do {{ task.prompt }}.")
        (place / "link.md").symlink_to("/etc/hostname")
        os.environ["HOLDFAST_CONFIG"] = str(place / "none.toml")
        self._settings = config.load(flags={"agent": "claude"})

    def play(self, draw: random.Random) -> str:
        text = self._text(draw)
        self._file.write_text(text, errors="surrogatepass")
        layer = read_settings_file(str(self._file), of_repository=draw.random() < 0.5)
        wrong = "" if layer.workflows or layer.problems or "stage" not in text else "neither taken nor told"
        for problem in layer.problems:
            if "\n" in str(problem) or not problem.place:
                wrong = f"told as {problem}"
        for draft in layer.workflows.values():
            wrong = wrong or "; ".join(map(str, find_flaws(draft)))
            workflow_values_needing_trust({draft.name: draft})
            try:
                resolve_agents(NewTask(prompt=HOSTILE, directory="/", agent="claude", workflow=draft), self._settings)
            except HoldfastError as error:
                wrong = wrong or ("" if str(error).strip() and "\n" not in str(error) else f"refused with {error}")
        return f"silent: {wrong}\n  the file: {text[:1500]!r}" if wrong else ""

    def _text(self, draw: Draw) -> str:
        lines = [f"[workflow.{json.dumps(either(draw, ('one', 'work', 'a b')))}]"]
        name = lines[0][1:-1]
        for number in range(draw.randrange(4)):
            lines.append(f"[[{name}.stage]]")
            lines.append(f"name = {_toml(('plan', 'build', 'review')[number % 3])}")
            for key in draw.sample(sorted(STAGE), draw.choice((0, 1, 1, 2, 3))):
                value = draw.choice(STAGE[key] if draw.random() < 0.9 else malformed_json.STRANGE)
                lines.append(f"{key} = {_toml(value)}")
        text = "\n".join(lines)
        if draw.random() < 0.1:
            place = draw.randrange(len(text) + 1)
            text = text[:place] + noise(draw, 8) + text[place + draw.randrange(5) :]
        return text

    def end(self) -> list[str]:
        return []


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True).replace("\\u001b", "\\u001B")
    return "null" if value is None else str(value).lower()
