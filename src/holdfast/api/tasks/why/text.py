"""Text for the reasons why a task waits: `clause` for a list, `sentences` for a page, `as_json` for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.api.format import duration, moment
from holdfast.api.outcome import NoSupervisor, no_supervisor
from holdfast.api.tasks.why.reason import WaitCause, WaitKind, WaitReason

if TYPE_CHECKING:
    from holdfast.api.tasks.models import JsonObject

_HELD = (WaitKind.PRESSURE, WaitKind.ACCOUNT, WaitKind.BUDGET, WaitKind.HOLD)  # the clause starts with "held: "


def clause(reason: WaitReason, now: float) -> str:
    """Return one short clause for a list."""
    words = _CLAUSES[reason.kind](reason, now)
    return f"held: {words}" if reason.kind in _HELD else words


def held_text(reason: WaitReason, now: float) -> str:
    """Return the clause of a reason without "held: ", as the field `held` of `ps` has it."""
    return _CLAUSES[reason.kind](reason, now)


def at_time(at: float, now: float) -> str:
    """Return a moment as short as possible, and how far away it is: "14:05 (in 12m)"."""
    form = "%H:%M" if abs(at - now) < 20 * 3600 else "%b %d %H:%M"
    ahead = f" (in {duration(int(at - now)).partition(' ')[0]})" if at > now else ""
    return time.strftime(form, time.localtime(at)) + ahead


def _some(names: Sequence[str], most: int = 2) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _account_state(cause: WaitCause, now: float | None = None) -> str:
    """Return the state of an account. `now`: only in a list, where the moment is short."""
    if cause.until is None:
        return "stopped"
    return f"parked until {moment(cause.until) if now is None else at_time(cause.until, now)}"


def _budget_words(reason: WaitReason, now: float | None = None) -> str:
    """Return the spent budgets. `now`: only in a list, where the moments are short."""
    untils = [cause.until for cause in reason.causes]
    ends = ["" if at is None else f", until {moment(at) if now is None else at_time(at, now)}" for at in untils]
    return "; ".join(f"{cause.reason}{end}" for cause, end in zip(reason.causes, ends, strict=True))


def _hold_words(reason: WaitReason) -> str:
    from holdfast.api.fleet.dispatch import describe_hold

    [cause] = reason.causes
    first = reason.tasks[0] if reason.tasks else None
    return describe_hold(cause.name, cause.since, cause.until, first, cause.reason)


def _worker_clause(reason: WaitReason) -> str:
    return f"for worker {reason.name}, {reason.causes[0].state or 'which is not there'}"


def _idle_words(reason: WaitReason) -> str:
    return ", ".join(f"{cause.name} is {cause.state}" for cause in reason.causes)


def _slots_clause(reason: WaitReason) -> str:
    return f"next: {reason.count} working, room for {reason.limit}"


def _pause_clause(reason: WaitReason, now: float) -> str:
    if reason.kind is WaitKind.APPROVAL:
        return f"approval, until you approve it: {reason.text}"
    left, at = reason.resumes_left, None if reason.needs_person or reason.until is None else at_time(reason.until, now)
    until = "until you resume it" if at is None else f"until {at}"
    if left == 0:
        until = "until you resume it with --force" if at is None else f"no resume is left: it fails at {at}"
    last = ", its last resume" if left == 1 else ""
    return f"{reason.name}, {until}{last}: {reason.text}"


_CLAUSES: Mapping[WaitKind, Callable[[WaitReason, float], str]] = {
    WaitKind.NO_SUPERVISOR: lambda reason, _now: f"{no_supervisor(NoSupervisor.IN_STATUS)}: {reason.command}",
    WaitKind.DEPENDENCIES: lambda reason, _now: (
        f"after {_some([f'{cause.name} ({cause.state})' for cause in reason.causes])}"
    ),
    WaitKind.NOT_BEFORE: lambda reason, now: f"not before {at_time(reason.until or now, now)}",
    WaitKind.BACK_OFF: lambda reason, now: f"not before {at_time(reason.until or now, now)}",
    WaitKind.PRESSURE: lambda reason, _now: reason.text,
    WaitKind.ACCOUNT: lambda reason, now: "; ".join(
        f"account {cause.name} is {_account_state(cause, now)}" for cause in reason.causes
    ),
    WaitKind.BUDGET: lambda reason, now: _budget_words(reason, now),
    WaitKind.HOLD: lambda reason, _now: _hold_words(reason),
    WaitKind.ISSUE: lambda reason, _now: f"its issue {reason.name} is not claimed by Holdfast now",
    WaitKind.WORKER: lambda reason, _now: _worker_clause(reason),
    WaitKind.NO_WORKER: lambda reason, _now: (
        f"for a worker: {_idle_words(reason)}" if reason.causes else "no worker takes this task"
    ),
    WaitKind.ANY_WORKER: lambda reason, _now: f"for a worker: {_some([cause.name for cause in reason.causes])}",
    WaitKind.CHECKOUT: lambda reason, _now: f"its checkout is in use by {reason.tasks[0]}",
    WaitKind.QUEUED_BEHIND: lambda reason, _now: f"{reason.count} ahead of it",
    WaitKind.SLOTS: lambda reason, _now: _slots_clause(reason),
    WaitKind.NEXT: lambda _reason, _now: "next",
    **dict.fromkeys(
        (
            WaitKind.APPROVAL,
            WaitKind.OPERATOR_PAUSE,
            WaitKind.LIMIT_PAUSE,
            WaitKind.LOGIN_PAUSE,
            WaitKind.BUDGET_PAUSE,
            WaitKind.GATE_PAUSE,
            WaitKind.OUTAGE_PAUSE,
        ),
        _pause_clause,
    ),
}


# -- sentences ---------------------------------------------------------------------------------------------------------


def sentences(reason: WaitReason, task_id: str) -> list[str]:
    """Return sentences for a page about one task: why it waits, what follows, and what to type."""
    render = _SENTENCES.get(reason.kind)
    return _pause_sentences(reason, task_id) if render is None else render(reason)


def _dependency_sentences(reason: WaitReason) -> list[str]:
    paused = [f"It waits for task {task}, which is paused: `holdfast why {task}`." for task in reason.tasks[:1]]
    return [f"It starts after {', '.join(cause.name for cause in reason.causes)} completed.", *paused]


def _account_sentences(reason: WaitReason) -> list[str]:
    words = "; ".join(f"{cause.name} is {_account_state(cause)} ({cause.reason})" for cause in reason.causes)
    which = f"account {reason.causes[0].name}" if len(reason.causes) == 1 else f"an account of {reason.name}"
    if reason.needs_person:
        return [f"It waits for {which}: {words}. When its login works again: `{reason.command}`."]
    return [f"It waits for {which}: {words}. It starts by itself after that; `{reason.command}` opens the account now."]


def _budget_sentences(reason: WaitReason) -> list[str]:
    raised = "Or raise the budget: `budget.*` of the settings."
    return [f"It waits, and spends nothing: {_budget_words(reason)}. It starts by itself after that. {raised}"]


def _hold_sentences(reason: WaitReason) -> list[str]:
    return [
        f"It is held back: {_hold_words(reason)}. None of its budgets is spent meanwhile. `{reason.command}` lets it "
        "start now."
    ]


def _worker_sentences(reason: WaitReason) -> list[str]:
    [cause] = reason.causes
    how = f"is {cause.state} ({cause.reason})" if cause.state else "is not there"
    return [
        f"It waits for worker {cause.name}, which {how}, because `crash.release_claims` is false. "
        f"`{reason.command}` lets that worker continue; `holdfast worker stop {cause.name}` leaves the task to other "
        f"workers."
    ]


def _no_worker_sentences(reason: WaitReason) -> list[str]:
    if reason.causes:
        return [f"It waits for a worker, and {_idle_words(reason)}: `{reason.command}`."]
    return [
        "No worker takes this task (agent, account and labels have to match), and `agents` is 0, so nothing else can "
        "run it: `{reason.command}` shows what each worker takes."
    ]


_SENTENCES: Mapping[WaitKind, Callable[[WaitReason], list[str]]] = {
    WaitKind.NO_SUPERVISOR: lambda _reason: [no_supervisor()],
    WaitKind.DEPENDENCIES: _dependency_sentences,
    WaitKind.NOT_BEFORE: lambda reason: [f"It does not start before {moment(reason.until)}."],
    WaitKind.BACK_OFF: lambda reason: [f"It does not start before {moment(reason.until)}."],
    WaitKind.PRESSURE: lambda reason: [f"Nothing new starts for now: {reason.text} (`pressure.*` of the settings)."],
    WaitKind.ACCOUNT: _account_sentences,
    WaitKind.BUDGET: _budget_sentences,
    WaitKind.HOLD: _hold_sentences,
    WaitKind.ISSUE: lambda reason: [
        f"Its issue {reason.name} is not claimed by Holdfast now: `{reason.command}` says why."
    ],
    WaitKind.WORKER: _worker_sentences,
    WaitKind.NO_WORKER: _no_worker_sentences,
    WaitKind.ANY_WORKER: lambda reason: [f"It waits for a worker: {', '.join(one.name for one in reason.causes)}."],
    WaitKind.CHECKOUT: lambda reason: [
        f"It works in the checkout {reason.name} itself, where {', '.join(reason.tasks)} is working. Only one task "
        f"can work there at a time."
    ],
    WaitKind.QUEUED_BEHIND: lambda reason: [
        f"{reason.count} queued task(s) are ahead of it (higher priority, or older)."
    ],
    WaitKind.SLOTS: lambda reason: [f"It is next: {reason.count} agent(s) are working, with room for {reason.limit}."],
    WaitKind.NEXT: lambda _reason: [],
}


def _pause_sentences(reason: WaitReason, task_id: str) -> list[str]:
    if reason.kind is WaitKind.APPROVAL:
        from holdfast.api.tasks.stages import how_to_approve

        return [how_to_approve(task_id)]
    if reason.kind is WaitKind.GATE_PAUSE:
        return [
            f"Fix what its command needs, then `{reason.command}`: the gate runs again, without the agent.",
            f"Or cancel it with `holdfast cancel {task_id}`.",
        ]
    lines = [_resume_sentence(reason)]
    if reason.kind is WaitKind.BUDGET_PAUSE and reason.causes:
        lines.append(
            f"It waits, and spends nothing: {_budget_words(reason)}. After that it can be resumed. "
            "Or raise the budget: `budget.*` of the settings."
        )
    cancel = f"ancel it with `holdfast cancel {task_id}`."
    if reason.resumes_left == 1:
        then = after_last_resume(task_id, fails=reason.fails_at_limit)
        lines.append(f"It is the last resume ({reason.limit} of {reason.limit}): {then}")
    if reason.resumes_left == 0:
        lines.append(
            f"No resume is left ({reason.count} of {reason.limit}): `holdfast resume {task_id} --force` resumes it "
            "once more."
        )
    if reason.kind is WaitKind.BUDGET_PAUSE and reason.command != f"holdfast resume {task_id}":
        return [*lines, f"Raise the total: `{reason.command}`.", f"C{cancel}"]
    if reason.kind in (WaitKind.LIMIT_PAUSE, WaitKind.LOGIN_PAUSE) and reason.causes:
        [account] = reason.causes
        opens = f"`{reason.command}` opens it, and its tasks continue."
        return [*lines, f"Its account {account.name} is {_account_state(account)}; {opens}", f"C{cancel}"]
    if reason.resumes_left == 0:
        return [*lines, f"C{cancel}"]
    return [*lines, f"Resume it now with `{reason.command}`, or c{cancel}"]


def after_last_resume(task_id: str, *, fails: bool) -> str:
    """Return a clause about what the next limit does to a task that has no resume left. `fails`: the task fails, unless
    it meets the limit before any answer of its agent: that restores one resume."""
    if fails:
        return "the task fails at its next limit, unless it meets that limit before any answer."
    return f"after the next limit, only `holdfast resume {task_id} --force` resumes it."


def _resume_sentence(reason: WaitReason) -> str:
    if reason.until is None:
        return "It does not resume by itself."
    at = f"at {moment(reason.until)} (in {duration(int(reason.until - time.time()))})"
    if reason.resumes_left == 0 and not reason.needs_person:
        return f"It fails at {moment(reason.until)}, unless you resume it before then."
    if not reason.needs_person:
        return f"It resumes by itself {at}."
    return f"Its limit ends {at}; it does not resume by itself, because `resume.auto` is false."


# -- JSON --------------------------------------------------------------------------------------------------------------


def as_json(reason: WaitReason) -> JsonObject:
    """Return every fact of a reason, with the field names of docs/reference/json.md."""
    return asdict(reason)
