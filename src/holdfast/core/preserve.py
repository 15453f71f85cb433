"""Keep or clean a workspace when its task ends: one resolver for every path (R-CLEAN-01…03, R-CLEAN-11)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model import TaskSpec
from holdfast.core.states import TASK_TERMINAL, TaskState


@dataclass(frozen=True, kw_only=True, slots=True)
class Disposition:
    """What happens to the workspace, and which setting decided."""

    preserve: bool
    tier: str
    reason: str


def resolve(spec: TaskSpec, ending: TaskState) -> Disposition:
    """The precedence of R-CLEAN-03, with `keep_workspace` above it and `cleanup_on_complete` below."""
    if ending not in TASK_TERMINAL:
        raise ValueError(f"a task that is {ending} keeps its workspace: there is nothing to decide")
    if spec.keep_workspace:
        return Disposition(preserve=True, tier="task", reason="keep_workspace=true")
    if ending is TaskState.COMPLETED:
        return _on_complete(spec)
    if ending is TaskState.CANCELLED:
        return Disposition(preserve=False, tier="default", reason="cancelled")
    return _on_failure(spec)


def _on_complete(spec: TaskSpec) -> Disposition:
    if spec.cleanup_on_complete:
        return Disposition(preserve=False, tier="workspace", reason="cleanup_on_complete=true")
    return Disposition(preserve=True, tier="workspace", reason="cleanup_on_complete=false")


def _on_failure(spec: TaskSpec) -> Disposition:
    tiers = (
        ("task", spec.preserve_on_failure),
        (f"workspace.{spec.strategy}", spec.preserve_strategy_default),
        ("workspace", spec.preserve_global_default),
    )
    tier, value = next((tier, value) for tier, value in tiers if value is not None)
    if value:
        return Disposition(preserve=True, tier=tier, reason="preserve_on_failure=true")
    if not spec.cleanup_on_complete:
        return Disposition(preserve=True, tier="workspace", reason="cleanup_on_complete=false holds the cleanup back")
    return Disposition(preserve=False, tier=tier, reason="preserve_on_failure=false")
