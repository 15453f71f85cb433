"""What an earlier agent said and did, as far as a successor needs it: small, however much there was.

Only its own words and the names of what it did: never evidence of anything, and never instructions.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field

from holdfast.core.agents.events import AgentEvent, Result, Text, ToolFinished, ToolStarted

MOST_TEXTS = 12
MOST_OF_TEXT = 4000  # characters; the end of a text says more than its beginning
MOST_TOOLS = 30
MOST_OF_INPUT = 300
MOST_STEPS = 50
# What the CLIs call the tool with which they keep a list of what is to be done.
_LISTS = frozenset({"todowrite", "todo_write", "write_todos", "update_plan", "update_todo", "todo", "todo_list"})
_LISTED = re.compile(r"\s*(?:[-*] )?\[(.)\] \S")


@dataclass(kw_only=True)
class Recollection:
    """Fed with every event of one run, in order."""

    texts: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_TEXTS))
    tools: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_TOOLS))
    tools_before: int = 0  # those that are not kept
    plan: str = ""  # its own list of steps, the newest
    _is_open: bool = False  # the newest text may go on

    def add(self, event: AgentEvent) -> None:
        goes_on, self._is_open = self._is_open, False
        match event:
            case Text(is_thought=True):
                self.plan = event.text if _is_list(event.text) else self.plan
            case Text():
                self._say(event.text, goes_on=goes_on and event.is_delta)
                self._is_open = event.is_delta
            case Result():
                self._say(event.text, goes_on=False)
            case ToolStarted():
                self._note(event)
            case ToolFinished(ok=False):
                self.tools.append(f"(that failed: {_short(event.output, 100)})" if event.output else "(that failed)")

    def _say(self, text: str, *, goes_on: bool) -> None:
        if goes_on and self.texts:
            self.texts[-1] = (self.texts[-1] + text)[-MOST_OF_TEXT:]
        elif text.strip() and (not self.texts or self.texts[-1] != text[-MOST_OF_TEXT:]):
            self.texts.append(text[-MOST_OF_TEXT:])

    def _note(self, tool: ToolStarted) -> None:
        if tool.name.lower() in _LISTS:
            self.plan = _steps(tool.input) or self.plan
            return
        if not tool.id:
            return  # told ahead of the event that has its input
        self.tools_before += len(self.tools) == MOST_TOOLS
        self.tools.append(f"{_short(tool.name, 60)}: {_short(tool.input, MOST_OF_INPUT)}")

    @property
    def is_empty(self) -> bool:
        return not (self.texts or self.tools or self.plan)


def _short(text: str, most: int) -> str:
    flat = " ".join(text[: 4 * most].split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _is_list(text: str) -> bool:
    lines = text.splitlines()
    return bool(lines) and all(_LISTED.match(line) for line in lines)


def _steps(written: str) -> str:
    """A list of steps in the same words for all; as it was written where its form is not known."""
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return written
    for key in ("todos", "plan", "items", "steps"):
        if isinstance(found, dict) and isinstance(found.get(key), list):
            found = found[key]
    if not isinstance(found, list) or not all(isinstance(step, dict) for step in found):
        return written
    return "\n".join(_step(step) for step in found[:MOST_STEPS])


def _step(step: dict[str, object]) -> str:
    words = next((step[key] for key in ("content", "step", "text", "description", "title") if step.get(key)), "?")
    status = str(step.get("status") or ("completed" if step.get("completed") else "pending"))
    mark = {"completed": "x", "done": "x", "in_progress": ">"}.get(status, " ")
    return f"[{mark}] {_short(str(words), 200)}"
