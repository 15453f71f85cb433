"""Whether a paused task may go on: R-RES-02 to R-RES-04. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model import PauseReason


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeDecision:
    """Whether a paused task may go on. One place for manual, automatic and API resumes."""

    allowed: bool
    attempt: int
    message: str


FREE_TO_RESUME = frozenset({PauseReason.AUTH, PauseReason.BILLING, PauseReason.APPROVAL})
"""Fixing an account or approving is a person's doing, not another try: it spends no resume."""


def decide_resume(attempts: int, maximum: int, task_id: str, pause: PauseReason | None = None) -> ResumeDecision:
    """R-RES-03/04: the resume after `attempts` earlier ones, when `maximum` are allowed."""
    if pause in FREE_TO_RESUME:
        return ResumeDecision(allowed=True, attempt=attempts, message=f"resumed after {pause}, which spends nothing")
    attempt = attempts + 1
    if attempt <= maximum:
        return ResumeDecision(allowed=True, attempt=attempt, message=f"resume {attempt} of {maximum}")
    return ResumeDecision(
        allowed=False,
        attempt=attempt,
        message=(
            f"Maximum resume attempts exceeded ({attempt}/{maximum}): the task kept pausing. "
            "Break it into smaller tasks; or raise `resume.max_attempts`; "
            f"or look into why it keeps pausing with `holdfast why {task_id}`."
        ),
    )
