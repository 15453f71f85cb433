"""Keep or clean: the whole truth table of R-CLEAN-01, 02, 03 and 11 against an oracle written from the requirements."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.core.model import Strategy, TaskSpec
from holdfast.core.runs.preserve import Disposition, resolve_disposition
from holdfast.core.states import TaskState

COMPLETED, FAILED, CANCELLED = TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED
THREE_VALUED = (None, True, False)
BOTH = (True, False)


def spec(
    *,
    keep: bool = False,
    task: bool | None = None,
    strategy_value: bool | None = None,
    everywhere: bool = False,
    cleanup: bool = True,
    strategy: Strategy = Strategy.WORKTREE,
) -> TaskSpec:
    return TaskSpec(
        id="t1",
        repo_id="r1",
        prompt="do it",
        agent="scripted",
        strategy=strategy,
        keep_workspace=keep,
        preserve_on_failure=task,
        preserve_strategy_default=strategy_value,
        preserve_global_default=everywhere,
        cleanup_on_complete=cleanup,
    )


def oracle(
    ending: TaskState,
    keep: bool,
    task: bool | None,
    strategy_value: bool | None,
    everywhere: bool,
    cleanup: bool,
    strategy: Strategy,
) -> tuple[bool, str]:
    """Preserve?, and the tier that decided: the requirements' sentences as flat facts, in their order."""
    if keep:  # R-CLEAN-11
        return True, "task"
    if ending is CANCELLED:  # R-CLEAN-10
        return False, "default"
    if ending is COMPLETED:  # R-CLEAN-01
        return not cleanup, "workspace"
    if task is not None:  # R-CLEAN-03
        asked, tier = task, "task"
    elif strategy_value is not None:
        asked, tier = strategy_value, "workspace." + strategy.value
    else:
        asked, tier = everywhere, "workspace"
    if not asked and not cleanup:  # R-CLEAN-02
        return True, "workspace"
    return asked, tier


EVERYTHING = list(product((COMPLETED, FAILED, CANCELLED), BOTH, THREE_VALUED, THREE_VALUED, BOTH, BOTH, Strategy))


def test_the_whole_truth_table() -> None:
    """R-CLEAN-01, R-CLEAN-02, R-CLEAN-03, R-CLEAN-11: all 648 combinations, verdict and deciding tier."""
    assert len(EVERYTHING) == 3 * 2 * 3 * 3 * 2 * 2 * len(Strategy)
    for ending, keep, task, strategy_value, everywhere, cleanup, strategy in EVERYTHING:
        given = spec(
            keep=keep,
            task=task,
            strategy_value=strategy_value,
            everywhere=everywhere,
            cleanup=cleanup,
            strategy=strategy,
        )
        found = resolve_disposition(given, ending)
        wanted = oracle(ending, keep, task, strategy_value, everywhere, cleanup, strategy)
        assert (found.preserve, found.tier) == wanted, (ending, given)


def kept(tier: str, reason: str) -> Disposition:
    return Disposition(preserve=True, tier=tier, reason=reason)


def cleaned(tier: str, reason: str) -> Disposition:
    return Disposition(preserve=False, tier=tier, reason=reason)


# The sentences of the requirements, one by one, each with the words that reach the event.
SENTENCES = [
    ("R-CLEAN-01 unset means clean", spec(), COMPLETED, cleaned("workspace", "cleanup_on_complete=true")),
    (
        "R-CLEAN-01 switched off",
        spec(cleanup=False),
        COMPLETED,
        kept("workspace", "cleanup_on_complete=false"),
    ),
    (
        "R-CLEAN-01 a wish about failure says nothing of success",
        spec(task=True, everywhere=True),
        COMPLETED,
        cleaned("workspace", "cleanup_on_complete=true"),
    ),
    (
        "R-CLEAN-02 failed is cleaned by default",
        spec(),
        FAILED,
        cleaned("workspace", "preserve_on_failure=false"),
    ),
    (
        "R-CLEAN-02 held back, and says so",
        spec(cleanup=False),
        FAILED,
        kept("workspace", "cleanup_on_complete=false holds the cleanup back"),
    ),
    (
        "R-CLEAN-03 an explicit false wins over a global true",
        spec(task=False, everywhere=True),
        FAILED,
        cleaned("task", "preserve_on_failure=false"),
    ),
    (
        "R-CLEAN-03 the task's true wins over everyone's false",
        spec(task=True, strategy_value=False),
        FAILED,
        kept("task", "preserve_on_failure=true"),
    ),
    (
        "R-CLEAN-03 the strategy before the global",
        spec(strategy_value=False, everywhere=True),
        FAILED,
        cleaned("workspace.worktree", "preserve_on_failure=false"),
    ),
    (
        "R-CLEAN-03 the strategy by its name",
        spec(strategy_value=True, strategy=Strategy.DIRECTORY),
        FAILED,
        kept("workspace.directory", "preserve_on_failure=true"),
    ),
    (
        "R-CLEAN-03 the global last",
        spec(everywhere=True),
        FAILED,
        kept("workspace", "preserve_on_failure=true"),
    ),
    (
        "R-CLEAN-10 cancelled is cleaned",
        spec(task=True, everywhere=True, cleanup=False),
        CANCELLED,
        cleaned("default", "cancelled"),
    ),
    ("R-CLEAN-11 kept although completed", spec(keep=True), COMPLETED, kept("task", "keep_workspace=true")),
    (
        "R-CLEAN-11 ranks above an explicit false",
        spec(keep=True, task=False),
        FAILED,
        kept("task", "keep_workspace=true"),
    ),
    ("R-CLEAN-11 kept although cancelled", spec(keep=True), CANCELLED, kept("task", "keep_workspace=true")),
]


@pytest.mark.parametrize(
    ("given", "ending", "expected"), [row[1:] for row in SENTENCES], ids=[row[0] for row in SENTENCES]
)
def test_the_sentences_of_the_requirements(given: TaskSpec, ending: TaskState, expected: Disposition) -> None:
    """R-CLEAN-01, R-CLEAN-02, R-CLEAN-03, R-CLEAN-10, R-CLEAN-11: verdict, tier and reason word for word."""
    assert resolve_disposition(given, ending) == expected


def test_no_default_fills_the_tasks_own_wish() -> None:
    """R-CLEAN-03: the task-level value is three-valued, and so is the strategy's."""
    untouched = TaskSpec(id="t1", repo_id="r1", prompt="do it", agent="scripted")
    assert untouched.preserve_on_failure is None
    assert untouched.preserve_strategy_default is None
    assert untouched.preserve_global_default is False
    assert untouched.cleanup_on_complete is True
    assert untouched.keep_workspace is False
