"""The decision whether a paused task may continue (R-RES-02 to R-RES-04). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.base.instant import Instant
from holdfast.core.model import PauseReason, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeDecision:
    """The answer to a resume. It is the same for manual, automatic and API resumes."""

    allowed: bool
    attempt: int
    message: str


def end_of_pause(request: Request, now: Instant) -> float | None:
    """Return when a task that an operator paused for a time continues. The result is never later than that time from
    now: a clock that was set back since must not turn hours into years."""
    until, seconds = request.data.get("until"), request.data.get("seconds")
    if not isinstance(until, int | float) or not isinstance(seconds, int | float):
        return None
    return min(until, now.wall + seconds)


FREE_RESUME_PAUSES = frozenset({PauseReason.AUTH, PauseReason.BILLING, PauseReason.APPROVAL})
"""Pauses whose resume is free. Fixing an account or approving is the act of a person and not another try."""


def decide_resume(
    attempts: int, maximum: int, task_id: str, pause: PauseReason | None = None, *, force: bool = False
) -> ResumeDecision:
    """Decide on the resume after `attempts` earlier ones, when `maximum` are allowed (R-RES-03/04). `force`: an
    operator allows more than that. The resume is counted all the same."""
    if pause in FREE_RESUME_PAUSES:
        return ResumeDecision(allowed=True, attempt=attempts, message=f"resumed after {pause}, which spends nothing")
    attempt = attempts + 1
    if attempt <= maximum:
        return ResumeDecision(allowed=True, attempt=attempt, message=f"resume {attempt} of {maximum}")
    if force:
        return ResumeDecision(allowed=True, attempt=attempt, message=f"resume {attempt} of {maximum}, by force")
    return ResumeDecision(
        allowed=False,
        attempt=attempt,
        message=(
            f"Maximum resume attempts exceeded ({attempt}/{maximum}): the task kept pausing. "
            "Break it into smaller tasks; or raise `resume.max_attempts`; "
            f"or look into why it keeps pausing with `holdfast why {task_id}`."
        ),
    )
