"""The settings of recovery: resumes, crashes, retries and their budgets. Part of the table in settings.py."""

from __future__ import annotations

from holdfast.config.parsers import age, boolean, count
from holdfast.config.setting import OF_THE_SUPERVISOR, Setting
from holdfast.units import parse_duration

RECOVERY: dict[str, Setting] = {
    "resume.max_attempts": Setting(3, count(0), "How often a paused task is resumed; 0 forbids it."),
    "resume.default_hold": Setting(
        300.0,
        parse_duration,
        "How long a limit without a known reset time pauses a task.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "crash.max_in_window": Setting(
        3, count(1), "The crash that stops a task.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
    "crash.window": Setting(
        600.0,
        parse_duration,
        "The sliding window in which crashes are counted.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "crash.auto_restart": Setting(
        False,
        boolean,
        "A named worker whose agent crashed goes on by itself, up to `crash.max_in_window`; false: when asked to.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "crash.release_claims": Setting(
        True,
        boolean,
        "Any worker may take a task whose worker crashed; false: it waits for that worker.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "retry.max": Setting(
        3, count(0), "How often a timed-out or stuck task is tried again.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
    "retry.base": Setting(
        1.0,
        parse_duration,
        "How long the first retry waits; each later one waits twice as long, up to 5 m.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "lost.max": Setting(
        5, count(0), "How often in a row a task may lose its host or keeper.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
    "runs.max": Setting(
        12, count(1), "Runs per task, so that budgets cannot multiply.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
    "retention.crashes": Setting(
        180 * 86400.0,
        age,
        "The history of crashes is kept for this long, also of tasks that are forgotten; `forever` keeps it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
}
