"""Changes of a task that does not run: the fields that a person changes, and the specification after that. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, UsageError
from holdfast.base.text import one_line
from holdfast.core.model import TaskSpec
from holdfast.core.tasks.messages import find_builder
from holdfast.core.workflows.workflow import WORK, Stage

MOST_SHOWN = 80  # characters of a value in an event


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentOfTask:
    """The agent of a task with its options, resolved."""

    agent: str
    options: Mapping[str, object]
    provider: str
    quiet: float = 0.0  # seconds for which an answer of this agent may be silent
    was: str = ""  # the agent that the task had when this was resolved

    @property
    def account(self) -> object:
        return self.options.get("account")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskChange:
    """The parts of a task that a person changes. None, or a missing key: no change."""

    prompt: str | None = None
    priority: int | None = None
    agent: AgentOfTask | None = None
    timeout: float | None = None
    max_resumes: int | None = None
    keep_workspace: bool | None = None
    preserve_on_failure: bool | None = None
    gate: str | None = None  # empty: the task has no gate any more
    tries: int | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)  # None: the label goes
    budget: Mapping[str, Any] = field(default_factory=dict)  # fields of BudgetRules
    limits: Mapping[str, Any] = field(default_factory=dict)  # fields of RunLimits
    health: Mapping[str, Any] = field(default_factory=dict)  # fields of HealthRules

    def __bool__(self) -> bool:
        return self != NO_CHANGE

    @property
    def is_of_stage(self) -> bool:
        """True if this changes a field that each stage of a workflow has for itself."""
        return any(part is not None for part in (self.agent, self.timeout, self.gate, self.tries))


NO_CHANGE = TaskChange()


def apply_change(spec: TaskSpec, change: TaskChange) -> TaskSpec:
    """Return the specification after the change. Raise UsageError or Conflict if the change is not possible."""
    if spec.workflow and change.is_of_stage:
        raise Conflict(
            f"Each stage of the workflow '{spec.workflow}' has its own agent, timeout and gate, so these cannot be "
            f"changed for task {spec.id}. Nothing was changed. Queue another task: "
            "`holdfast add PROMPT --workflow NAME`."
        )
    new = replace(
        spec,
        labels={key: value for key, value in {**spec.labels, **change.labels}.items() if value is not None},
        budget=replace(spec.budget, **change.budget),
        limits=replace(spec.limits, **change.limits),
        health=replace(spec.health, **change.health),
    )
    for name in ("prompt", "priority", "timeout", "max_resumes", "keep_workspace", "preserve_on_failure"):
        if (value := getattr(change, name)) is not None:
            new = replace(new, **{name: value})
    if change.agent is not None:
        new = _with_agent(new, change.agent)
    return new if new.workflow else replace(new, stages=_gate_stage(new, change))


def _with_agent(spec: TaskSpec, chosen: AgentOfTask) -> TaskSpec:
    if chosen.was != spec.agent:
        raise Conflict(
            f"Task {spec.id} was changed by someone else at the same moment; nothing was changed. Look with "
            f"`holdfast show {spec.id}`, then try again."
        )
    return replace(
        spec,
        agent=chosen.agent,
        agent_options=chosen.options,
        provider=chosen.provider,
        health=replace(spec.health, stuck_after=max(spec.health.stuck_after, chosen.quiet)),
    )


def _gate_stage(spec: TaskSpec, change: TaskChange) -> tuple[Stage, ...]:
    """Return the only stage of a task without a workflow: the stage that carries its gate. Empty: the task has no
    gate."""
    before = spec.stages[0] if spec.stages else None
    gate = (before.gate if before is not None else "") if change.gate is None else change.gate
    if not gate:
        if change.tries is not None:
            raise UsageError(
                f"`tries` needs a gate: `holdfast set {spec.id} gate=COMMAND tries={change.tries}`. "
                "Nothing was changed."
            )
        return ()
    stage = before or Stage(name=WORK, agent=spec.agent, retry=2)
    return (
        replace(
            stage,
            agent=spec.agent,
            agent_options=spec.agent_options,
            provider=spec.provider,
            timeout=spec.timeout,
            gate=gate,
            retry=stage.retry if change.tries is None else change.tries - 1,
        ),
    )


def may_keep_session(before: TaskSpec, after: TaskSpec) -> bool:
    """True if the next run can continue in the session of the last one.

    A session belongs to its agent and its account. A workflow that only reads takes no message into a session, so its
    stages read a new prompt in new sessions.
    """
    is_read_only = bool(after.stages) and find_builder(after.stages) is None
    same_account = before.agent_options.get("account") == after.agent_options.get("account")
    return before.agent == after.agent and same_account and not (is_read_only and before.prompt != after.prompt)


def describe_change(before: TaskSpec, after: TaskSpec) -> Iterator[tuple[str, str, str]]:
    """Yield (name of the field, old value, new value) of each changed field, for people."""
    options, new_options = before.agent_options, after.agent_options
    stage, new_stage = (next(iter(spec.stages), None) for spec in (before, after))
    pairs: list[tuple[str, object, object]] = [
        ("prompt", before.prompt, after.prompt),
        ("priority", before.priority, after.priority),
        ("agent", before.agent, after.agent),
        ("model", options.get("model"), new_options.get("model")),
        ("account", options.get("account"), new_options.get("account")),
        ("permission", options.get("permission"), new_options.get("permission")),
        ("allow", _listed(options.get("allow")), _listed(new_options.get("allow"))),
        ("max-turns", options.get("max_turns"), new_options.get("max_turns")),
        ("timeout", f"{before.timeout:g} s", f"{after.timeout:g} s"),
        ("max-resumes", before.max_resumes, after.max_resumes),
        ("budget-usd", before.budget.usd, after.budget.usd),
        ("budget-tokens", before.budget.tokens, after.budget.tokens),
        ("memory", before.limits.memory, after.limits.memory),
        ("processes", before.limits.processes, after.limits.processes),
        ("cpu-weight", before.limits.cpu_weight, after.limits.cpu_weight),
        ("max-output", before.limits.output, after.limits.output),
        ("stuck-after", before.health.stuck_after, after.health.stuck_after),
        ("startup-timeout", before.health.startup_timeout, after.health.startup_timeout),
        ("on-stuck", before.health.on_stuck, after.health.on_stuck),
        ("labels", _labels(before), _labels(after)),
        ("preserve", _preserve(before), _preserve(after)),
        ("gate", stage and stage.gate, new_stage and new_stage.gate),
        ("tries", stage and stage.retry + 1, new_stage and new_stage.retry + 1),
    ]
    for what, old, new in pairs:
        if old != new:
            yield what, _shown(old), _shown(new)


def _labels(spec: TaskSpec) -> str:
    return " ".join(f"{key}={value}" for key, value in spec.labels.items())


def _listed(words: object) -> str:
    return ", ".join(map(str, words)) if isinstance(words, list | tuple) else ""


def _preserve(spec: TaskSpec) -> str:
    if spec.keep_workspace:
        return "always"
    return {None: "", True: "on-failure", False: "never"}[spec.preserve_on_failure]


def _shown(value: object) -> str:
    return "none" if value in (None, "") else one_line(str(value), MOST_SHOWN)
