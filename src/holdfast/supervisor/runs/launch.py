"""The step between an attempt and its agent's adapter: the command to launch, and the verdict that the agent's output
gives on the run's end."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.agents.port import OWN_LOGIN, AgentAdapter, EndedRun, Stream, WorkOrder
from holdfast.base.errors import LaunchError, Unavailable
from holdfast.base.ids import new_id
from holdfast.core.dispatch.spending import SpendingMeter
from holdfast.core.model import Run, Strategy, Task, TaskSpec, Workspace
from holdfast.core.runs.outcome import ProcessEnd, Verdict
from holdfast.core.tasks.messages import NO_MESSAGES, Turn
from holdfast.core.workflows.workflow import name_of
from holdfast.processes.port import LaunchSpec, LiveRun
from holdfast.secrets.redact import learn, secrets_in
from holdfast.store.port.transaction import Ownership
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs.stages import reply_with_feedback

LEAST_BUDGET = 0.0001  # dollars: a CLI may take 0 to mean "no limit"


def build_launch_spec(
    context: Context,
    task: Task,
    ownership: Ownership,
    run: Run,
    workspace: Workspace,
    hand_over: str | None = None,
    meter: SpendingMeter | None = None,
    turn: Turn = NO_MESSAGES,
) -> LaunchSpec:
    """Return the launch of the run's agent. `turn`: the messages of people that matter for the prompt.

    Raise LaunchError when the agent cannot be started here as requested.
    """
    spec, adapter = task.spec, context.ports.agents[task.spec.agent]
    surroundings = context.ports.surroundings(spec)
    problem = adapter.problem(spec.agent_options, surroundings)
    if problem is not None:
        raise LaunchError(f"The agent cannot be started: {problem}.")
    account = OWN_LOGIN if run.account is None else context.ports.accounts.look_up(spec.agent, run.account)
    if spec.strategy is Strategy.CONTAINER:
        # a directory of this machine, which does not exist in the container
        account = replace(account, config_dir=None)
    run_dir = os.path.join(context.home, "runs", run.id)
    channel = os.path.join(run_dir, "channel")
    # Another account must not find the keys of the user's own login.
    own = adapter.login_variables if account.is_default else ()
    wanted = {**spec.environment, "pass": [*_string_list(spec.environment.get("pass")), *own]}
    inherited = context.ports.environment(wanted)
    _require_secrets(task, inherited)
    command = adapter.build(
        WorkOrder(
            prompt=spec.prompt,
            run_number=run.number,
            session_id=task.session_id,
            options=_options_with_budget(spec, adapter, meter),
            new_session=new_session_id(run.id),
            account=account,
            surroundings=surroundings,
            inherited_environment=inherited,
            files_directory=os.path.join(channel, "files"),
            directory=os.path.realpath(workspace.path),
            result_directory=channel,
            hand_over=hand_over,
            is_sent_back=bool(task.progress.feedback),
            reply=reply_with_feedback(task, turn),
        )
    )
    env = inherited | dict(command.env)
    learn(secrets_in(env))
    token = new_id(32)
    env.update(
        HOLDFAST_RUN_ID=run.id,
        HOLDFAST_TASK_ID=task.id,
        HOLDFAST_RUN_DIR=run_dir,
        HOLDFAST_CHANNEL=channel,
        HOLDFAST_RUN_NUMBER=str(run.number),
        HOLDFAST_RUN_TOKEN=token,
        PWD=workspace.path,
    )
    if spec.strategy is not Strategy.CONTAINER:
        env["HOLDFAST_HOME"] = context.home  # so that tasks that the agent adds come to this home
    if task.worker is not None:
        env["HOLDFAST_WORKER"] = task.worker
    return LaunchSpec(
        run_id=run.id,
        argv=command.argv,
        env=env,
        cwd=workspace.path,
        stdin=command.stdin,
        timeout=run.timeout or spec.timeout,
        grace=spec.grace,
        fast_grace=context.settings.thresholds.fast_grace,
        orphan_grace=spec.orphan_grace,
        limits=spec.limits,
        files=command.files,
        told=command.told or (spec.prompt if spec.stages or turn is not NO_MESSAGES else ""),
        chosen=(*command.env, *_find_login_variables(env, own)),
        token=token,
        metadata={
            "task": task.id,
            "agent": spec.agent,
            "role": run.member or task.worker,
            "stage": run.stage or name_of(spec.stages, task.progress),
            "model": str(spec.agent_options.get("model") or "") or None,
            "host": context.host_id,
            "fence": ownership.fence,
            "workspace": workspace.path,
        },
    )


def _require_secrets(task: Task, env: Mapping[str, str]) -> None:
    """Raise LaunchError if a secret of `env.set` is missing.

    A value of `env.set` that looked like a secret at `add` is not kept with the task. The settings file that had the
    value must still have it.
    """
    held = task.spec.environment.get("held")
    for name, place in held.items() if isinstance(held, dict) else ():
        if name not in env:
            raise LaunchError(
                f"The agent cannot be started: env.set.{name} is a secret, which is not kept with the task, and "
                f"{place.removeprefix('repository:')} does not have it any more (or is not trusted now). "
                f"Set it there, then `holdfast retry {task.id}`."
            )


def _options_with_budget(spec: TaskSpec, adapter: AgentAdapter, meter: SpendingMeter | None) -> Mapping[str, object]:
    """Return the agent's options. A CLI that stops by itself at an amount of money gets the rest of the spending cap as
    that amount."""
    left = None if meter is None else meter.left_usd
    if left is None or not adapter.capabilities.budget:
        return spec.agent_options
    return {**spec.agent_options, "budget_usd": max(LEAST_BUDGET, round(left, 6))}


def verdict_from_output(context: Context, task: Task, run: Run, live: LiveRun, end: ProcessEnd) -> Verdict:
    """Return the verdict that the agent's output gives on the run's end."""
    adapter = context.ports.agents[task.spec.agent]
    return adapter.judge(
        EndedRun(
            end=end,
            output=live.output(),
            error_tail=live.error_tail(),
            at=context.clock().wall if end.at is None else end.at,
            zone=_find_time_zone(context, task, run),
            prompt=task.spec.prompt,
            session_id=task.session_id,
            new_session=new_session_id(run.id),
            errors=live.output(Stream.ERR),
            left={name: live.left(name) for name in adapter.result_files},
        )
    )


def _find_time_zone(context: Context, task: Task, run: Run) -> str | None:
    """Return the time zone of the agent's clock: some agents print the end of a limit in local time."""
    own: Mapping[str, str] = {}
    if run.account is not None:
        with contextlib.suppress(LaunchError):  # the account was changed or removed since
            own = context.ports.accounts.look_up(task.spec.agent, run.account).env
    with contextlib.suppress(Unavailable):
        return own.get("TZ") or context.ports.environment(task.spec.environment).get("TZ")
    return own.get("TZ")


def new_session_id(run_id: str) -> str:
    """Return the session id of a run, for CLIs that let us choose it. It is derived from the run id, so it needs no
    record to be known after a crash."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"holdfast:{run_id}"))


def _find_login_variables(env: Mapping[str, str], patterns: Sequence[str]) -> list[str]:
    """Return the variables of the user's own login that are valid in a container. Variables with absolute paths of this
    machine are left out."""
    return [
        name
        for name, value in env.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) and not os.path.isabs(value)
    ]


def _string_list(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list | tuple) else []
