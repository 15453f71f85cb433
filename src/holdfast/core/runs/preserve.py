"""The decision to preserve or clean a workspace when its task ends: one function for every code path (R-CLEAN-01…03,
R-CLEAN-11)."""

from __future__ import annotations

import re

from holdfast.base.dataclass import dataclass
from holdfast.core.model import TaskSpec
from holdfast.core.states import TASK_TERMINAL, TaskState

RETRY_TIER = "retry"


@dataclass(frozen=True, kw_only=True, slots=True)
class Disposition:
    """The fate of a workspace, and the setting that decided it."""

    preserve: bool
    tier: (
        str  # task | workspace.STRATEGY | workspace | default | safety (its work could not be saved) | retry (not yet)
    )
    reason: str

    def __str__(self) -> str:
        """Return the text that the ledger stores and people read."""
        return f"{self.reason} ({self.tier})"


_KEPT = re.compile(r"(.*) \(([a-z.]+)\)", re.DOTALL)


def parse_disposition(spec: TaskSpec, ending: TaskState, kept: str | None, *, preserve: bool) -> Disposition:
    """Read the disposition back from the text in the ledger. If another text has replaced the disposition, resolve it
    again."""
    found = _KEPT.fullmatch(kept or "")
    if found is not None:
        return Disposition(preserve=preserve, tier=found[2], reason=found[1])
    return resolve_disposition(spec, ending)


def resolve_disposition(spec: TaskSpec, ending: TaskState) -> Disposition:
    """Return the disposition of a workspace. `keep_workspace` preserves it in any case. Otherwise
    `cleanup_on_complete` decides about a completed task, and the precedence of R-CLEAN-03 about a failed task. A
    cancelled task keeps none."""
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
