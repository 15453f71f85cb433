"""Messages of people to a task, and the prompts that are made of these messages. Pure.

A message is given to the agent of one run. In a session that continues, the message alone is the prompt of that run.
Every other prompt of the task has all messages so far behind the task's own prompt: a new agent has seen none of the
messages.
"""

from __future__ import annotations

from holdfast.base.dataclass import dataclass
from holdfast.base.text import subject_line
from holdfast.core.runs.outcome import Outcome
from holdfast.core.workflows.workflow import Stage, Stages

_REBASE = "Rebase the branch of this task onto "
REBASE = _REBASE + (
    "{target} (commit {commit}), and resolve every conflict so that both sides keep their meaning. "
    "Check that the work is still complete, then stop. Do not push."
)
TRAILER = "Holdfast-Task"  # of every commit that we make for a task
_LATER = "Later you were also asked:"
_ENDED_TURNS = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.CANCELLED, Outcome.PAUSED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message of a person to a task."""

    number: int  # 1 for the task's first
    text: str
    by: str
    at: float  # wall time
    run_id: str | None = None  # the run whose agent it is given to; None: it waits


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """The messages that matter for the prompt of one run."""

    earlier: tuple[Message, ...] = ()  # given to earlier runs
    new: tuple[Message, ...] = ()  # given to this run
    is_interrupted: bool = False  # the turn before was cut short: its work is not done

    def full_prompt(self, prompt: str) -> str:
        """Return the task's prompt with all messages behind it, except a message that became the task's prompt
        itself."""
        later = [one.text for one in (*self.earlier, *self.new) if one.text != prompt]
        return "\n\n".join([prompt, *(f"{_LATER}\n\n{text}" for text in later)])

    @property
    def reply(self) -> str:
        """Return the prompt in a session that continues. Empty: no message begins this turn."""
        return "" if self.is_interrupted else "\n\n".join(one.text for one in self.new)


NO_MESSAGES = Turn()


def task_commit_message(task_id: str, text: str, *body: str) -> str:
    """Return the message of a commit for a task. Its subject is the first line of `text`, mostly the prompt."""
    return "\n\n".join([subject_line(text) or f"Task {task_id}", *body, f"{TRAILER}: {task_id}\n"])


def is_turn_over(outcome: str | None) -> bool:
    """True if the outcome shows that the agent, or a person, ended the turn. After any other outcome the work
    continues."""
    return outcome is None or outcome in _ENDED_TURNS


def is_rebase_request(text: str) -> bool:
    """True if a message is from `holdfast send --rebase`."""
    return text.startswith(_REBASE)


def find_builder(stages: Stages) -> int | None:
    """Return the stage whose agent gets messages: the last one that may change files. None: there is no such stage."""
    may_read_only = len(stages) == 1
    for index, stage in reversed(list(enumerate(stages))):
        if not stage.reviews and not stage.is_parallel and (may_read_only or _changes_files(stage)):
            return index
    return None


def _changes_files(stage: Stage) -> bool:
    return stage.agent_options.get("permission") != "read"
