"""The rules that are resolved when a task is added: resource limits, health, workspace set-up, salvage, container,
spending, subtasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from holdfast.base.dataclass import dataclass

GIB = 1024**3
MIB = 1024**2


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthRules:
    """The limits after which a living agent counts as hung (R-TERM-04, R-TERM-07). `inf` switches a rule off."""

    stuck_after: float = 300.0  # seconds without any sign of life
    tool_silence: float = 2700.0  # the same while a tool of the agent is open: at most this long
    startup_timeout: float = 300.0  # seconds until the first sign of life
    on_stuck: str = "kill"  # kill | notify
    loop_steps: int = 50  # events in a row without progress; 0 switches it off
    doomed_after: float = 15.0  # seconds within which an agent that reported a fatal error has to end
    retry_patience: float = 90.0  # seconds for which an agent may only retry, without any progress
    claim_grace: float = 30.0  # seconds within which an agent that claimed its result has to exit


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """The resources that the whole process tree of one run may use (R-TERM-14). None: no limit."""

    memory: int | None = None  # bytes
    processes: int | None = None
    # the same for a run without that limit, where a container engine or cgroup v2 holds it without being watched
    processes_ceiling: int | None = 8192
    cpu_weight: int | None = None  # 1 to 10000; the kernel's default is 100
    output: int | None = 2 * GIB  # bytes written to standard output and error together; a run that writes more is ended
    output_kept: int = 64 * MIB  # bytes of each log that stay on disk in addition to its beginning


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceRules:
    """The set-up of a workspace before its first agent, and the time for which a preserved workspace stays."""

    setup: tuple[str, ...] = ()  # shell commands, in this order, in the workspace; a failing one is a launch error
    setup_timeout: float = 600.0  # seconds for each of them, and for each of `teardown`
    teardown: tuple[str, ...] = ()  # shell commands before the removal; a failure is reported and changes nothing
    copy: tuple[str, ...] = ()  # patterns of files in the checkout that git does not track (".env")
    # seconds for which a preserved workspace stays; `inf`: until an operator drops it
    preserve_ttl: float = 7 * 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SalvageRules:
    """The limits of one salvage. A workspace beyond them is preserved instead of salvaged."""

    max_size: int = 512 * MIB  # bytes that git would add
    max_files: int = 50_000
    ignored: tuple[str, ...] = ()  # patterns of ignored files that are salvaged all the same
    litter: tuple[str, ...] = ()  # patterns of untracked files that are not work: caches of the agent's CLI


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerRules:
    """The container in which a task of strategy `container` runs its agents."""

    image: str = ""
    engine: str = ""  # the path of the engine's socket; empty: DOCKER_HOST, else the usual locations
    network: str = "bridge"  # none | bridge | host | the name of a network of the engine
    user: str = ""  # uid:gid in the container; empty: the supervisor's own, so that files do not belong to root
    memory_share: int = 80  # percent of the machine's memory, for a run without a memory limit; 100: no limit
    read_only: bool = False  # True: only the workspace, the channel and /tmp can be written


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRules:
    """The spending cap of a task, over all of its runs until an operator's retry. None: no limit."""

    usd: float | None = None
    tokens: int | None = None  # input and output together


@dataclass(frozen=True, kw_only=True, slots=True)
class SubtaskRules:
    """The size up to which a task's family may grow. Subtasks of subtasks count too."""

    max_depth: int = 3  # levels below the task; 0: the task can have no subtask
    most: int = 50  # tasks below the task, ended ones included


DEFAULT_HEALTH = HealthRules()
DEFAULT_LIMITS = RunLimits()
DEFAULT_WORKSPACE = WorkspaceRules()
DEFAULT_SALVAGE = SalvageRules()
DEFAULT_CONTAINER = ContainerRules()
DEFAULT_BUDGET = BudgetRules()
DEFAULT_SUBTASKS = SubtaskRules()

T = TypeVar("T", HealthRules, RunLimits, WorkspaceRules, SalvageRules, ContainerRules, BudgetRules, SubtaskRules)


def non_default_fields(rules: T, default: T) -> dict[str, Any]:
    """Return only the fields that differ from the default. Most tasks have no such field, so the result that the store
    keeps for each task is short."""
    if rules == default:
        return {}
    return {
        field.name: getattr(rules, field.name)
        for field in fields(rules)
        if getattr(rules, field.name) != getattr(default, field.name)
    }


def rules_from(kind: type[T], stored: Mapping[str, Any]) -> T:
    """Rebuild the rules from what `non_default_fields` returned. Lists of the stored JSON become tuples."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }
    return kind(**values)
