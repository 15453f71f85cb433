"""The settings of recovery: resumes, crashes, retries and their budgets. Part of the table in settings.py."""

from __future__ import annotations

from holdfast.base.units import parse_duration
from holdfast.config.setting_type import OF_THE_SUPERVISOR, OF_YOUR_MONEY, Setting
from holdfast.config.values import age, boolean, count, money

RECOVERY: dict[str, Setting] = {
    "resume.max_attempts": Setting(3, count(0), "How often a paused task is resumed; 0 forbids it."),
    "resume.enabled": Setting(
        True,
        boolean,
        "Whether a limit pauses its task; false: it fails it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.auto": Setting(
        True,
        boolean,
        "Whether tasks that a limit paused go on by themselves when it is over; false: when an operator resumes them.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.jitter": Setting(
        10.0,
        parse_duration,
        "Over how long the ends of limits are spread, so that not all tasks go on at one moment; at most a tenth of "
        "the wait.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.max_wait": Setting(
        7 * 86400.0,
        parse_duration,
        "How long a task waits for limits in all; one that would wait longer is left to an operator, with an alert.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.reset_on_progress": Setting(
        False,
        boolean,
        "Whether a stage of a workflow that is done gives back the resumes that were spent before it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
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
    "outage.max": Setting(
        6 * 3600.0,
        parse_duration,
        "How long tasks wait for a provider that does not answer; then they are paused for an operator.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "breaker.failures": Setting(
        2,
        count(0),
        "Failures of a provider in a row after which its tasks wait, and one goes first; 0: they never do.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "breaker.hold": Setting(
        16.0,
        parse_duration,
        "How long a provider's tasks wait the first time; each later time is twice as long.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "breaker.max_hold": Setting(
        300.0,
        parse_duration,
        "The longest that a provider's tasks wait before one goes first again.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "probe.alone": Setting(
        60.0,
        parse_duration,
        "How long a task that goes first keeps the others waiting while it shows neither an answer nor trouble.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "near_limit.starts": Setting(
        1,
        count(0),
        "Agents that may be at work on an account that is near its limit, of those that began after the warning; "
        "0: no slowing down.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "mass_death.agents": Setting(
        5,
        count(0),
        "So many deaths at once, of at least half of all agents, hold everything back; 0: they are not looked for.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "mass_death.window": Setting(
        30.0, parse_duration, "What `at once` means for deaths of agents.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
    "mass_death.hold": Setting(
        300.0,
        parse_duration,
        "How long everything is held back after a mass death before one task goes first.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "lost.max": Setting(
        5, count(0), "How often in a row a task may lose its host or keeper.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
    "runs.max": Setting(
        12, count(1), "Runs per task, so that budgets cannot multiply.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
    "budget.task_usd": Setting(
        0.0, money, "Dollars that a task may cost, all of its runs together; 0: no limit.", user_only=OF_YOUR_MONEY
    ),
    "budget.task_tokens": Setting(
        0,
        count(0),
        "Tokens (input and output) that a task may use, all of its runs together; 0: no limit.",
        user_only=OF_YOUR_MONEY,
    ),
    "budget.day_usd": Setting(
        0.0,
        money,
        "Dollars that all tasks together may cost in any 24 hours; 0: no limit.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "budget.day_tokens": Setting(
        0,
        count(0),
        "Tokens that all tasks together may use in any 24 hours; 0: no limit.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "subtasks.max_depth": Setting(
        3,
        count(0),
        "How many levels of subtasks a task may have below it; 0 forbids subtasks. The first task's counts.",
    ),
    "subtasks.max": Setting(
        50, count(0), "How many subtasks a task may have on all levels together, ended ones included."
    ),
    "retention.crashes": Setting(
        180 * 86400.0,
        age,
        "The history of crashes is kept for this long, also of tasks that are forgotten; `forever` keeps it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "checkpoint.every": Setting(
        30.0,
        parse_duration,
        "How often the tree of a running task is kept while something changes in it. `0s` switches that off; it is "
        "still kept at each pause and requeue, and when its agent asks.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "checkpoint.keep": Setting(
        5, count(1), "How many checkpoints of a task are kept.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
}
