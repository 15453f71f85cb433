"""The trackers of repositories, chosen by their settings, and the task that is made from an issue."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast import config
from holdfast.agents.common.environment import filter_environment
from holdfast.base.errors import HoldfastError
from holdfast.config import layers as config_layers
from holdfast.config.values import expand_program
from holdfast.core.model import Repo, Task
from holdfast.core.tasks.trackers import Issue, issue_prompt, task_priority
from holdfast.intake import repository
from holdfast.intake.new_task import NewTask
from holdfast.intake.resolve import resolve_task
from holdfast.supervisor.ports import TrackerSetup
from holdfast.trackers.beads import BeadsTracker
from holdfast.trackers.builtin import NoTracker
from holdfast.trackers.port import TrackerRunner

TOOLS = ("br", "bd")  # in the order in which they are looked for
FOLDER = ".beads"
_THEIRS = ("BEADS_*", "BD_*", "BR_*", "BEADS_DIR", "GIT_*", "RUST_LOG")
_BUILTIN = TrackerSetup(kind="builtin", tracker=NoTracker())


class RepoTrackers:
    """The trackers according to the current files. A repository's settings are read again only when a file changed."""

    def __init__(self, home: str, run: TrackerRunner) -> None:
        self._home = home
        self._run = run
        self._known: dict[str, tuple[object, TrackerSetup]] = {}

    def of(self, repo: Repo) -> TrackerSetup:
        stamp = tuple(
            _stamp(path)
            for path in (config.user_file_path(), config.repo_file_path(repo.path), *self._watched_files(repo))
        )
        known = self._known.get(repo.id)
        if known is None or known[0] != stamp or known[1].problem is not None:  # a tool may be installed meanwhile
            known = self._known[repo.id] = stamp, self._read(repo, None if known is None else known[1])
        return known[1]

    def resolve_task(self, repo: Repo, issue: Issue) -> Callable[[Any], Task]:
        """Return the operation that adds the task of `issue`. Raise HoldfastError with the reason if the issue cannot
        become a task."""
        new = NewTask(
            prompt=issue_prompt(issue), directory=repo.path, labels={"issue": issue.id}, priority=task_priority(issue)
        )
        resolved = resolve_task(self._home, new, (repo.path, repo.common_dir), repository.head_of(repo))
        return partial(resolved.add, by=f"the tracker, for issue {issue.id}")

    def _watched_files(self, repo: Repo) -> tuple[str, ...]:
        return os.path.join(self._home, "trust.json"), os.path.join(repo.path, FOLDER)

    def _read(self, repo: Repo, before: TrackerSetup | None) -> TrackerSetup:
        """Read the tracker's settings of a repository. If a file has a mistake, the settings `before` stay in force."""
        found = config_layers.read_layers(repo.path)
        mistakes = config_layers.list_problems(found)
        if mistakes:
            return (
                before
                if before is not None and before.problem is None
                else _tracker_without_settings(repo, str(mistakes[0]))
            )
        try:
            withheld = config_layers.withhold_untrusted(found[1], repo.path, self._home)
            config_layers.withhold_looser(found, repo.path, self._home)
        except HoldfastError as error:
            return _tracker_without_settings(repo, str(error))
        settings = config_layers.merge_layers(found)
        if "tracker.kind" in withheld or "tracker.command" in withheld:
            problem = (
                f"its holdfast.toml names a tracker and is not trusted; look and decide: `holdfast trust {repo.path}`"
            )
            return TrackerSetup(kind="beads", tracker=NoTracker(), problem=problem)
        if settings["tracker.kind"] == "builtin" or not os.path.isdir(os.path.join(repo.path, FOLDER)):
            return _BUILTIN
        command = expand_program(settings["tracker.command"]) or _find_tool()
        if not command:
            return TrackerSetup(kind="beads", tracker=NoTracker(), problem="neither `br` nor `bd` is in PATH")
        tracker = BeadsTracker(
            command,
            cwd=repo.path,
            run=self._run,
            env=filter_environment(os.environ, _THEIRS),
            timeout=settings["tracker.timeout"],
            label=settings["tracker.label"],
        )
        return TrackerSetup(
            kind="beads",
            tracker=tracker,
            poll=settings["tracker.poll"],
            closes=settings["tracker.close_on_complete"],
        )


def _tracker_without_settings(repo: Repo, why: str) -> TrackerSetup:
    """Return the tracker of a repository whose settings cannot be read and were never read before."""
    if not os.path.isdir(os.path.join(repo.path, FOLDER)):
        return _BUILTIN
    return TrackerSetup(kind="beads", tracker=NoTracker(), problem=why)


def _find_tool() -> list[str]:
    paths = (shutil.which(tool) for tool in TOOLS)
    return [path for path in paths if path is not None][:1]


def _stamp(path: str) -> object:
    """Return a value that differs after every change of a file. For a directory the value only shows whether it
    exists."""
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return True if os.path.isdir(path) else (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
