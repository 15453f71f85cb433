"""What a run may use, how long it may be silent, how its workspace is made and kept: resolved when a task is added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

GIB = 1024**3
MIB = 1024**2


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthRules:
    """When a living agent counts as hung (R-TERM-04, R-TERM-07). `inf` switches a rule off."""

    stuck_after: float = 300.0  # seconds without any sign of life
    tool_silence: float = 2700.0  # the same while a tool of the agent is open: at most this long
    startup_timeout: float = 300.0  # seconds until the first sign of life
    on_stuck: str = "kill"  # kill | notify
    loop_steps: int = 50  # events in a row without progress; 0 switches it off
    doomed_after: float = 15.0  # seconds that an agent which reported a fatal error has to end
    retry_patience: float = 90.0  # seconds that it may only try again, without any progress
    claim_grace: float = 30.0  # seconds that an agent which reported its result has to exit


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """What one run's whole tree may use (R-TERM-14). None: no limit."""

    memory: int | None = None  # bytes
    processes: int | None = None
    cpu_weight: int | None = None  # 1 to 10000; the kernel's default is 100
    output: int | None = 2 * GIB  # bytes written to standard output and error together; beyond, the run is ended
    output_kept: int = 64 * MIB  # bytes of each log that stay on disk beside its beginning


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceRules:
    """How a workspace is furnished before its first agent, and how long a preserved one stays."""

    setup: tuple[str, ...] = ()  # shell commands, in this order, in the workspace; one that fails is a launch error
    setup_timeout: float = 600.0  # seconds for each of them, and for each of `teardown`
    teardown: tuple[str, ...] = ()  # shell commands before it is put away; a failure is told and changes nothing
    copy: tuple[str, ...] = ()  # patterns of files in the checkout that git does not carry (".env")
    preserve_ttl: float = 7 * 86400.0  # seconds that a preserved workspace stays; `inf`: until somebody drops it


@dataclass(frozen=True, kw_only=True, slots=True)
class SalvageRules:
    """What a salvage may take. What is more is preserved instead of saved."""

    max_size: int = 512 * MIB  # bytes that git would add
    max_files: int = 50_000
    ignored: tuple[str, ...] = ()  # patterns of ignored files that are saved all the same
    litter: tuple[str, ...] = ()  # patterns of untracked files that are nobody's work: caches of the agent's CLI


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerRules:
    """Where a task of strategy `container` runs its agents."""

    image: str = ""
    engine: str = ""  # the engine's socket, as a path; empty: DOCKER_HOST, else the usual places
    network: str = "bridge"  # none | bridge | host | the name of a network of the engine
    user: str = ""  # uid:gid in the container; empty: the supervisor's own, so that files are not root's


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRules:
    """What a task may use, all of its runs together (until an operator's retry). None: no limit."""

    usd: float | None = None
    tokens: int | None = None  # of input and output together


@dataclass(frozen=True, kw_only=True, slots=True)
class SubtaskRules:
    """How large a task's family may grow: what its subtasks add counts too."""

    max_depth: int = 3  # levels below the task; 0: it can have no subtask
    most: int = 50  # tasks below it, ended ones included


DEFAULT_HEALTH = HealthRules()
DEFAULT_LIMITS = RunLimits()
DEFAULT_WORKSPACE = WorkspaceRules()
DEFAULT_SALVAGE = SalvageRules()
DEFAULT_CONTAINER = ContainerRules()
DEFAULT_BUDGET = BudgetRules()
DEFAULT_SUBTASKS = SubtaskRules()

T = TypeVar("T", HealthRules, RunLimits, WorkspaceRules, SalvageRules, ContainerRules, BudgetRules, SubtaskRules)


def differences(rules: T, default: T) -> dict[str, Any]:
    """Only what is not the default: most tasks have nothing to say here, and the store keeps it for each of them."""
    if rules == default:
        return {}
    return {
        field.name: getattr(rules, field.name)
        for field in fields(rules)
        if getattr(rules, field.name) != getattr(default, field.name)
    }


def rules_from(kind: type[T], stored: Mapping[str, Any]) -> T:
    """What `differences` left, made whole again. Lists come from JSON: rules hold tuples."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }
    return kind(**values)
