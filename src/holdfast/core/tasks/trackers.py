"""Issues of an outside tracker and their tasks: the next step for each, and the prompt of a task. Pure."""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.runs.outcome import Outcome
from holdfast.core.states import TASK_TERMINAL, TaskState

OPEN, IN_PROGRESS = "open", "in_progress"
OVER = frozenset({"closed", "tombstone"})  # a deleted issue is a tombstone in some tools
CRASHES = frozenset({Outcome.CRASHED, Outcome.EXTERNAL_KILL, Outcome.OUT_OF_MEMORY, Outcome.LOST})
LONGEST_TITLE = 1000
LONGEST_BODY = 100_000  # characters of one text of an issue in a prompt: two of them stay below a prompt's limit
_USUAL_PRIORITY = 2


class LinkState(StrEnum):
    """The state of the claim of an issue. After a crash the supervisor reads the issue of every unsettled claim and
    continues the claim."""

    INTENDED = "intended"  # recorded before the tracker is asked to assign the issue to us
    CLAIMED = "claimed"  # read back: the issue is ours
    RELEASING = "releasing"  # the issue is to be given back
    RELEASED = "released"
    CLOSING = "closing"  # its task completed
    CLOSED = "closed"
    LEFT = "left"  # its task completed, and a person closes the issue (tracker.close_on_complete)
    LOST = "lost"  # claimed by others, closed, or gone: not touched any more


class LinkStep(StrEnum):
    """The next step for one link of an issue and its task."""

    CLAIM = "claim"
    CLAIM_AGAIN = "claim again"
    RELEASE = "release"
    CLOSE = "close"
    LEAVE = "leave"
    CHECK = "check"  # ours, as far as we know


@dataclass(frozen=True, kw_only=True, slots=True)
class Issue:
    """One issue as the tracker reports it."""

    id: str
    title: str
    status: str
    assignee: str | None
    description: str = ""
    acceptance: str = ""
    kind: str = ""
    priority: int | None = None  # 0 is the most urgent
    labels: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        return self.status == OPEN and self.assignee is None

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    def is_held_by(self, name: str) -> bool:
        return self.assignee == name and self.status == IN_PROGRESS

    @property
    def holder(self) -> str:
        """Describe for people what prevents a claim."""
        if self.is_over:
            return f"it is {self.status}"
        if self.assignee is not None:
            return f"{self.assignee} has it ({self.status})"
        return f"it is {self.status}"


@dataclass(frozen=True, kw_only=True, slots=True)
class IssueLink:
    """One issue that this home claimed or is claiming, with the state of its task (None: there is no task yet)."""

    id: int
    repo_id: str
    issue: str
    state: LinkState
    assignee: str  # the name under which we claim
    task_id: str | None = None
    task_state: TaskState | None = None
    not_before: float | None = None
    branch: str | None = None
    reason: str = ""  # of the task's state
    updated_at: float = 0.0


def next_link_step(link: IssueLink, now: Instant, *, closes: bool, room: bool) -> LinkStep | None:
    """Return the next step for a link. `closes`: true if completed work closes its issue. `room`: true if one more task
    could start soon."""
    task = link.task_state
    is_over = task in TASK_TERMINAL
    if link.state is LinkState.RELEASING:
        return LinkStep.RELEASE
    if link.state is LinkState.CLOSING:
        return LinkStep.CLOSE
    if link.state is LinkState.INTENDED:
        if task is None:
            return LinkStep.CLAIM
        return LinkStep.RELEASE if is_over else LinkStep.CLAIM_AGAIN if task is TaskState.QUEUED else None
    if link.state is LinkState.CLAIMED:
        if task is TaskState.COMPLETED:
            return LinkStep.CLOSE if closes else LinkStep.LEAVE
        return LinkStep.RELEASE if is_over else LinkStep.CHECK
    if link.state in (LinkState.RELEASED, LinkState.LOST) and task is TaskState.QUEUED:
        return LinkStep.CLAIM_AGAIN if room and _is_due(link, now) else None
    return None


def _is_due(link: IssueLink, now: Instant) -> bool:
    """True if the task of the link may start. Until then others may take the issue. If the clock was set back since the
    wait began, the wait is over."""
    return link.not_before is None or link.not_before <= now.wall or link.updated_at > now.wall + 60


def task_priority(issue: Issue) -> int:
    """Convert a tracker's priority (0 to 4, 0 is the most urgent) to a task's priority. In Holdfast the highest number
    comes first, and 0 is usual."""
    return 0 if issue.priority is None else max(-2, min(2, _USUAL_PRIORITY - issue.priority))


def issue_prompt(issue: Issue) -> str:
    """Return the prompt: title, description, acceptance criteria, and a note that Holdfast manages the issue itself."""
    parts = [issue.title if len(issue.title) <= LONGEST_TITLE else f"{issue.title[:LONGEST_TITLE]} […]"]
    if issue.description:
        parts.append(_cut(issue.description))
    if issue.acceptance:
        parts.append(f"Acceptance criteria:\n{_cut(issue.acceptance)}")
    parts.append(f"(This is issue {issue.id} of this repository's tracker. Leave its state alone: Holdfast keeps it.)")
    return "\n\n".join(parts)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_BODY else f"{text[:LONGEST_BODY]}\n[cut: the issue has the rest]"


def tracker_backoff(failures: int, longest: float) -> float:
    """Return the seconds until a tracker is asked again, after failures in a row: 1, 2, 4, … up to `longest`."""
    return float(min(longest, 2 ** min(failures - 1, 10)))
