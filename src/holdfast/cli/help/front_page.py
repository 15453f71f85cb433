"""The page that `holdfast` and `holdfast help` print, the list of all commands, and the how-to pages by topic.

Every command is in one group. The front page shows everyday commands on at most 32 lines.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

# group → its commands, in the order in which a user meets them
GROUPS: Mapping[str, tuple[str, ...]] = {
    "start": ("init", "run", "add", "up", "down", "agents"),
    "look": ("ps", "top", "why", "show", "logs", "diff", "report", "events", "stats", "crashes"),
    "act": ("send", "wait", "pause", "resume", "cancel", "retry", "approve", "set"),
    "bring home": ("merge", "pr", "branches", "workspaces", "salvage", "shell", "keep"),
    "automate": ("schedule", "workflows", "tracker", "worker", "accounts"),
    "look after": ("alerts", "doctor", "config", "trust", "service", "backup", "restore", "purge"),
    "rarely needed": ("sweep", "dispatch", "rehearse", "agent", "completion", "help"),
}
_FRONT: tuple[tuple[str, str, str], ...] = (
    ("start", "init", "choose agent, permissions and test command"),
    ("", "run, add", "give a task to an agent and watch it, or queue it"),
    ("", "up, down", "start the supervisor, stop it"),
    ("", "agents", "list the agents that you can use"),
    ("look", "ps, top", "list tasks, or watch and control them on one screen"),
    ("", "why, show", "explain the state of a task, or show its details"),
    ("", "logs, report", "show what the agent does, or what it delivered"),
    ("", "diff", "show what a task changed"),
    ("act", "send", "tell a task what to do next, even after it has ended"),
    ("", "pause, resume", "stop a task for a while, let it continue"),
    ("", "cancel, retry", "end a task and save its work, or try it again"),
    ("", "approve, set", "approve a stage, or change a task's settings"),
    ("", "wait", "wait until tasks have ended"),
    ("bring home", "merge, pr", "merge a task's work, or open a pull request"),
    ("", "branches", "list the branches of tasks"),
    ("", "salvage", "list and restore saved work"),
    ("automate", "schedule", "run tasks at fixed times"),
    ("", "workflows", "run tasks in several stages, with reviews"),
    ("", "tracker", "take tasks from an issue tracker"),
    ("look after", "alerts", "list what needs a person"),
    ("", "doctor", "check this machine and this home"),
    ("", "config", "show and check the settings"),
)
# Pages beside the how-to pages. The wheel has the same (pyproject.toml).
_PAGES = (
    *("agents", "comparison", "faq", "faults", "glossary", "runbook", "scripted-agent", "security", "stub-llm"),
    *("subtasks", "tutorial"),
)
_REFERENCES = ("json",)
_EXAMPLES = (
    'holdfast run "fix the flaky test" --agent claude --gate "make test"',
    "holdfast COMMAND --help    one command, with examples",
    "holdfast help --all        every command, and topics (`help budgets`)",
)


def front_page(commands: Mapping[str, tuple[str, str]]) -> str:
    """Return the first help that a user sees. Commands that this version lacks are left out."""
    lines = [
        "usage: holdfast COMMAND [options]",
        "",
        "Holdfast runs AI coding agents unattended. Nothing is lost, leaked or run twice.",
        "",
    ]
    for group, names, what in _FRONT:
        if all(name in commands for name in names.split(", ")):
            lines.append(f"{group:<12}{names:<16}{what}")
    return "\n".join([*lines, "", *(f"  {line}" for line in _EXAMPLES)])


def all_commands(commands: Mapping[str, tuple[str, str]]) -> str:
    """Return every command by group, the topics and the exit codes."""
    parts = ["usage: holdfast COMMAND [options]"]
    for group, names in GROUPS.items():
        rows = [f"  {name:<12}{commands[name][1]}" for name in names if name in commands]
        parts.append("\n".join([f"{group}:", *rows]))
    parts.append("topics (`holdfast help TOPIC`):\n  " + _wrapped(sorted([*topics(), "exit-codes"])))
    return "\n\n".join(parts)


def _wrapped(words: list[str]) -> str:
    import textwrap

    return "\n  ".join(textwrap.wrap(", ".join(words), 76, break_on_hyphens=False))


def topics() -> dict[str, str]:
    """Return the pages that this installation has: topic → path. An installed package has a copy of docs/."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sources = os.path.dirname(os.path.dirname(package))
    for docs in (os.path.join(package, "docs"), os.path.join(sources, "docs")):
        howto = os.path.join(docs, "howto")
        if os.path.isdir(howto):
            names = [name.removesuffix(".md") for name in os.listdir(howto) if name.endswith(".md")]
            pages = {name: os.path.join(howto, f"{name}.md") for name in names}
            pages |= {name: os.path.join(docs, "reference", f"{name}.md") for name in _REFERENCES}
            return pages | {name: os.path.join(docs, f"{name}.md") for name in _PAGES}
    return {}


def read_topic(topic: str) -> str | None:
    """Return a how-to page as plain text. None: there is no such topic."""
    path = topics().get(topic)
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        return _plain(file.read())


def _plain(page: str) -> str:
    """Return a Markdown page without what only a browser understands: links, fences, comments."""
    import re

    page = re.sub(r"<!--.*?-->\n?", "", page, flags=re.DOTALL)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    return re.sub(r"^```.*\n", "", page, flags=re.MULTILINE).strip() + "\n"
