"""The tasks to which a command applies: named by ids, or selected by a filter.

The rows and the filter words are those of the fleet screen, so a word means the same here, in `ps` and in `top`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.api.fleet.filter import FILTERS, build_option_test, build_word_test
from holdfast.api.fleet.rows import LIVING, active_rows, all_rows
from holdfast.api.fleet.selection import STATES, find_repo, is_repo_path
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import NotFound, UsageError
from holdfast.base.text import one_line
from holdfast.core.states import TASK_TERMINAL

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow
    from holdfast.api.queries import Queries

_ENDED = {str(state) for state in TASK_TERMINAL}
# command → the test of a task that it can be about. A filter leaves the others out; an id is never left out.
APPLIES: Mapping[str, Callable[[FleetRow], bool]] = {
    "cancel": lambda row: row["state"] in LIVING,
    "pause": lambda row: row["state"] in ("queued", "running"),
    "resume": lambda row: row["state"] == "paused" and row["pause_reason"] != "approval",
    "retry": lambda row: row["state"] in ("failed", "cancelled"),
    "send": lambda row: row["pause_reason"] != "approval" or row["state"] != "paused",
    "approve": lambda row: row["state"] == "paused" and row["pause_reason"] == "approval",
    "set": lambda row: row["state"] != "running",
    "merge": lambda row: row["state"] in _ENDED and bool(row["branch"]),
    "wait": lambda row: True,
}
# command → why it is not about a task that matches. {words}: the filter as it is typed.
_INSTEAD: Mapping[str, str] = {
    "cancel": "`cancel` is for tasks that have not ended",
    "pause": "`pause` is for queued and running tasks",
    "resume": "`resume` is for paused tasks that do not wait for your approval (`holdfast approve`)",
    "retry": "`retry` is for failed and cancelled tasks. A completed task continues with `holdfast send ID TEXT`",
    "send": "`send` is not for tasks that wait for your approval: `holdfast approve {words} --changes TEXT`",
    "approve": "none of them waits for your approval",
    "set": "`set` changes only tasks that do not run. Pause them first: `holdfast pause {words}`. Or tell their "
    "agents: `holdfast send {words} TEXT`",
    "merge": "`merge` is for tasks that have ended and have a branch",
}
_OF_LIVING = ("cancel", "pause", "resume", "approve")


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """A request for tasks, as a person types it: ids, or a filter."""

    words: Sequence[str] = ()  # ids, or filter words such as state:paused
    states: Sequence[str] = ()
    labels: Sequence[str] = ()
    agents: Sequence[str] = ()
    repos: Sequence[str] = ()
    everything: bool = False

    @property
    def is_filter(self) -> bool:
        return bool(self.states or self.labels or self.agents or self.repos or self.everything or self.filter_words)

    @property
    def filter_words(self) -> list[str]:
        return [word for word in self.words if ":" in word]

    @property
    def ids(self) -> list[str]:
        return [word for word in self.words if ":" not in word]

    def as_typed(self) -> str:
        """Return the request as words of a command line."""
        import shlex

        options = {"--label": self.labels, "--state": self.states, "--agent": self.agents, "--repo": self.repos}
        typed = [word for option, values in options.items() for value in values for word in (option, value)]
        return one_line(shlex.join([*self.words, *typed, *(["--all"] if self.everything else [])]), 400)


def find_targets(queries: Queries, targets: Targets, command: str) -> list[FleetRow]:
    """Return the tasks that a filter chooses for a command, the oldest first. Raise NotFound if there is none."""
    _refuse_unknown(targets, command)
    paths = [word for word in targets.filter_words if is_repo_path(word)]
    repos = [find_repo(queries, path) for path in (*targets.repos, *(word[5:] for word in paths))]
    words = [word for word in targets.filter_words if word not in paths]
    fits = build_option_test(states=targets.states, agents=targets.agents, labels=targets.labels, repos=repos)
    matches, applies = build_word_test(" ".join(words)), APPLIES[command]
    is_living = command in _OF_LIVING
    rows = active_rows(queries, math.inf, math.inf) if is_living else all_rows(queries, -1)
    chosen = [row for row in rows if fits(row) and matches(row, "")]
    found = sorted((row for row in chosen if applies(row)), key=lambda row: row["seq"])
    if not found:
        if chosen and command in _INSTEAD:
            instead = _INSTEAD[command].format(words=targets.as_typed())
            matches_them = "match" if len(chosen) > 1 else "matches"
            raise NotFound(f"{count_states(chosen)} {matches_them}, but {instead}. Nothing was changed.")
        raise NotFound(f"No task to {command} matches. Nothing was changed. `holdfast ps --all` lists tasks.")
    return found


def count_states(rows: Sequence[FleetRow]) -> str:
    """Return the number of tasks, in all and by state: "12 tasks (5 queued, 7 running)"."""
    counts = {state: sum(row["state"] == state for row in rows) for state in STATES}
    listed = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{len(rows)} task{'s' if len(rows) > 1 else ''} ({listed})"


def _refuse_unknown(targets: Targets, command: str) -> None:
    """Raise UsageError for ids together with a filter, and for an unknown state or filter."""
    if targets.ids:
        raise UsageError(
            f"Give ids or a filter to `holdfast {command}`, not both: '{one_line(targets.ids[0], 40)}' was given in "
            "addition to a filter. Nothing was changed."
        )
    for word in targets.filter_words:
        name = word.removeprefix("!").partition(":")[0]
        if name not in FILTERS:
            listed = ", ".join(f"{known}:" for known in FILTERS)
            raise UsageError(f"There is no filter '{one_line(name, 40)}:'. The filters are {listed}.")
    for state in targets.states:
        if state not in STATES:
            raise UsageError(f"There is no state '{one_line(state, 40)}'. The states are {', '.join(STATES)}.")
