"""Settings for recovery: resumes, crashes, retries, holds, budgets, checkpoints. Part of the table in settings.py."""

from __future__ import annotations

from holdfast.base.units import parse_duration
from holdfast.config.values import (
    ABOUT_MONEY,
    DOWN,
    OF_THE_SUPERVISOR,
    Setting,
    WholeNumber,
    parse_age,
    parse_boolean,
    parse_money,
)

RECOVERY: dict[str, Setting] = {
    "resume.max_attempts": Setting(
        3,
        WholeNumber(0),
        "How often a paused task is resumed. 0: never.",
        untrusted=DOWN,
    ),
    "resume.enabled": Setting(
        True,
        parse_boolean,
        "true: a rate or usage limit pauses the task. false: it fails the task.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.auto": Setting(
        True,
        parse_boolean,
        "true: a task that a limit paused resumes when the limit is over. false: an operator resumes it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.jitter": Setting(
        10.0,
        parse_duration,
        "Resumes after a limit are spread over this long, so that not all tasks resume at once. At most a tenth of the "
        "wait.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.max_wait": Setting(
        7 * 86400.0,
        parse_duration,
        "How long a task waits for limits in total. A task that would wait longer is left to an operator, with an "
        "alert.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.reset_on_progress": Setting(
        False,
        parse_boolean,
        "true: a completed workflow stage restores the resumes that were used before it. false: they stay used.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "resume.default_hold": Setting(
        300.0,
        parse_duration,
        "How long a limit without a known reset time pauses a task. Each later hold for the same limit is twice as "
        "long, up to `resume.max_hold`.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.01,
    ),
    "resume.max_hold": Setting(
        3600.0,
        parse_duration,
        "The longest hold before the next probe, for a limit that probes keep meeting.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.01,
    ),
    "resume.change_account": Setting(
        False,
        parse_boolean,
        "true: a task whose account met a limit continues at once under another open account, in a new session with a "
        "hand-over. false: it waits for its account. A task that has had no answer yet changes its account in any "
        "case.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "crash.max_in_window": Setting(
        3,
        WholeNumber(1),
        "How many crashes within `crash.window` stop a task.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "crash.window": Setting(
        600.0,
        parse_duration,
        "The sliding window in which crashes are counted.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=1,
    ),
    "crash.auto_restart": Setting(
        False,
        parse_boolean,
        "true: a named worker whose agent crashed restarts, up to `crash.max_in_window`. false: an operator restarts "
        "it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "crash.release_claims": Setting(
        True,
        parse_boolean,
        "true: any worker may take a task whose worker crashed. false: the task waits for that worker.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "retry.max": Setting(
        3, WholeNumber(0), "How often a timed-out or stuck task is retried.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
    "retry.base": Setting(
        1.0,
        parse_duration,
        "How long the first retry waits. Each later retry waits twice as long, up to `retry.max_delay`.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.01,
    ),
    "retry.max_delay": Setting(
        300.0,
        parse_duration,
        "The longest wait before a retry, after a crash or while a provider does not answer.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.01,
    ),
    "outage.max": Setting(
        6 * 3600.0,
        parse_duration,
        "How long tasks wait for a provider that does not answer. Then they are paused for an operator.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "breaker.failures": Setting(
        2,
        WholeNumber(0),
        "After this many failures of a provider in a row, its tasks are held and one starts first as a probe. 0: "
        "never.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "breaker.hold": Setting(
        16.0,
        parse_duration,
        "How long the first hold of a provider's tasks lasts. Each later hold lasts twice as long.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.01,
    ),
    "breaker.max_hold": Setting(
        300.0,
        parse_duration,
        "The longest hold of a provider's tasks before the next probe.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.01,
    ),
    "probe.alone": Setting(
        60.0,
        parse_duration,
        "How long other tasks wait for a probe that has neither answered nor failed.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.1,
    ),
    "near_limit.starts": Setting(
        1,
        WholeNumber(0),
        "On an account that is near its limit, how many agents started after the warning may run at once. 0: the "
        "account is not slowed down.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "mass_death.agents": Setting(
        5,
        WholeNumber(0),
        "This many deaths within `mass_death.window`, of at least `mass_death.percent` of all agents, hold all tasks. "
        "0: never.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "mass_death.percent": Setting(
        50,
        WholeNumber(1),
        "The deaths are a mass death only if at least this percentage of agents died.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        most=100,
    ),
    "mass_death.window": Setting(
        30.0,
        parse_duration,
        "The time within which deaths of agents count as one mass death.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.1,
    ),
    "mass_death.hold": Setting(
        300.0,
        parse_duration,
        "How long all tasks are held after a mass death, before one task starts as a probe.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.01,
    ),
    "sweep.warn_above": Setting(
        10,
        WholeNumber(0),
        "More leftovers than this at a start raise a warning that a crash storm is likely.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "sweep.slow_above": Setting(
        100,
        WholeNumber(0),
        "More leftovers than this at a start raise a warning that the start is slow.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "stage.collect_for": Setting(
        10.0,
        parse_duration,
        "A parallel stage ends this long after its timeout: members that are still running are killed.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "lost.max": Setting(
        5,
        WholeNumber(0),
        "How often in a row a task may lose its keeper or its host.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "runs.max": Setting(
        12,
        WholeNumber(1),
        "Runs per task, whatever the retry budgets together would allow.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "budget.task_usd": Setting(
        0.0, parse_money, "Dollars that a task may cost, all of its runs together. 0: no limit.", user_only=ABOUT_MONEY
    ),
    "budget.task_tokens": Setting(
        0,
        WholeNumber(0),
        "Tokens (input and output) that a task may use, all of its runs together. 0: no limit.",
        user_only=ABOUT_MONEY,
    ),
    "budget.day_usd": Setting(
        0.0,
        parse_money,
        "Dollars that all tasks together may cost in any 24 hours. 0: no limit.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "budget.day_tokens": Setting(
        0,
        WholeNumber(0),
        "Tokens that all tasks together may use in any 24 hours. 0: no limit.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "subtasks.max_depth": Setting(
        3,
        WholeNumber(0),
        "How many levels of subtasks a task may have below it. 0 forbids subtasks. The value of the topmost task "
        "applies.",
        untrusted=DOWN,
    ),
    "subtasks.max": Setting(
        50,
        WholeNumber(0),
        "How many subtasks a task may have on all levels together, ended ones included.",
        untrusted=DOWN,
    ),
    "retention.crashes": Setting(
        180 * 86400.0,
        parse_age,
        "The history of crashes is kept for this long, even for deleted tasks. `forever` keeps it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.001,
    ),
    "checkpoint.every": Setting(
        30.0,
        parse_duration,
        "How often a checkpoint of a running task is made while its files change. `0s` switches that off. A checkpoint "
        "is still made at each pause and requeue, and when the agent asks for one.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.1,
        takes_zero=True,
    ),
    "checkpoint.keep": Setting(
        5, WholeNumber(1), "How many checkpoints of a task are kept.", user_only=OF_THE_SUPERVISOR, reload=True
    ),
}
