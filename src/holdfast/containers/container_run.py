"""Runs in containers: a launch is changed so that the agent runs in a container, and the container's end is proven.

Set-up commands, gates and teardown commands of a container task run in containers too: an agent may have written what
they run.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fnmatch
import os
import sys
from collections.abc import Mapping, Sequence

from holdfast.base import faults
from holdfast.base.concurrency import run_in_engine_thread, run_in_thread
from holdfast.base.errors import HoldfastError, Unavailable
from holdfast.base.ids import new_id
from holdfast.containers import client as boxed
from holdfast.containers.engine import COMMAND, HOME, RUN, TASK, WORKSPACE, ContainerSpec, Engine, Engines, socket_of
from holdfast.core.model import TaskSpec, Workspace
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.core.runs.outcome import Cause, ProcessEnd
from holdfast.core.task_settings import RunLimits
from holdfast.processes.cgroups import base_name
from holdfast.processes.identity import identify
from holdfast.processes.port import LaunchSpec
from holdfast.workspaces.port import CommandRunner

# Variables with the same meaning inside a container. PATH, HOME and the toolchains' paths belong to the machine.
_ALSO_INSIDE = (
    "LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "TZ", "HOLDFAST_*",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
)  # fmt: skip
_OUTSIDE_ONLY = ("HOLDFAST_RUN_DIR", "HOLDFAST_HOME", "HOLDFAST_CHECKOUT")
_LOOKS = 40
_LOOK_AGAIN = 0.05


class Enclosure:
    """The containers of this home's runs, one per run.

    A container is made before the keeper. containers/client.py, which the keeper runs in place of the agent, starts it.
    """

    def __init__(self, home: str, engines: Engines, runner: CommandRunner | None = None) -> None:
        """`runner`: runs the client of a command's container on this machine."""
        self._home = base_name(home)
        self._engines = engines
        self._runner = runner

    async def check(self, spec: TaskSpec) -> None:
        await run_in_engine_thread(lambda: self._engine(spec).check(spec.container.image))

    async def enclose(self, spec: TaskSpec, workspace: Workspace, launch: LaunchSpec) -> tuple[LaunchSpec, str]:
        """Make the container of a run. Return the launch with the client in the agent's place, and the container id."""
        engine = self._engine(spec)
        order = ContainerSpec(
            name=f"holdfast-{launch.run_id}",
            argv=launch.argv,
            env=inside(launch.env, spec.environment, launch.chosen),
            workspace=workspace.path,
            channel=launch.env["HOLDFAST_CHANNEL"],
            labels={HOME: self._home, TASK: spec.id, RUN: launch.run_id, WORKSPACE: workspace.id},
            rules=spec.container,
            limits=launch.limits,
        )
        faults.effect("container.channel")
        os.makedirs(order.channel, mode=0o700, exist_ok=True)
        self._engines.note(engine.socket)
        container = await run_in_engine_thread(engine.create, order)
        return dataclasses.replace(
            launch,
            argv=_client("run", engine.socket, container),
            ender=_client("end", engine.socket, container),
            env={name: value for name, value in launch.env.items() if name.startswith("HOLDFAST_") or name == "PATH"},
            cwd="/",
            # The engine enforces the other limits on the agent. Outside they would only limit the small client.
            limits=RunLimits(output=launch.limits.output, output_kept=launch.limits.output_kept),
        ), container

    async def prove(self, spec: TaskSpec, workspace: Workspace, end: ProcessEnd) -> ProcessEnd:
        """Make sure, after a run's end, that no container of the run is running. Return the end with that proof.

        The container is ended here if the keeper could not end it. That also proves the end of a run whose keeper died
        without proof. The whole agent was in the container, and the client outside died with its keeper.
        """
        await run_in_engine_thread(lambda: self._holder(spec, workspace).end({WORKSPACE: workspace.id}))
        if end.cause is Cause.EXITED and end.signal == boxed.ENGINE_LOST:
            return dataclasses.replace(end, cause=Cause.ENGINE_LOST)
        if end.cause is not Cause.UNPROVEN:
            return end
        return ProcessEnd(cause=Cause.KEEPER_DIED, detail="the engine says that its container does not run")

    async def root(self, spec: TaskSpec, workspace: Workspace) -> ProcessIdentity | None:
        """Return the container's first process as this machine sees it, or None. It is watched for activity."""
        engine, container = self._engine(spec), workspace.container
        if container is None:
            return None
        for _look in range(_LOOKS):
            try:
                details = await run_in_engine_thread(engine.details, container)
            except HoldfastError:
                return None
            state = details["State"] if details else None
            if state is None or state.get("Status") not in ("created", "initialized"):
                pid = int(state.get("Pid") or 0) if state else 0
                return identify(pid) if pid > 0 else None
            await asyncio.sleep(_LOOK_AGAIN)
        return None

    async def silent(self, specs: Sequence[TaskSpec], also: Sequence[str]) -> Mapping[str, str]:
        """Return the engines of these tasks and of `also` that do not answer, each with the reason.

        This does not use the engines' threads: all of them may be waiting for the silent engine. An engine that never
        had a container of this home is left out. The task that wants the first container there waits and reports that.
        """
        wanted = {socket_of(spec.container) for spec in specs} & set(self._engines.all())
        return await run_in_thread(self._silent, wanted.union(also))

    def _silent(self, sockets: set[str]) -> dict[str, str]:
        asked = {socket: self._engines.at(socket).why_silent() for socket in sorted(sockets)}
        return {socket: why for socket, why in asked.items() if why}

    def _holder(self, spec: TaskSpec, workspace: Workspace) -> Engine:
        """Return the engine that has the workspace's container.

        DOCKER_HOST and the existing sockets may have changed since the container was made, so all used engines are
        asked. If none has it and one does not answer, the state is unknown: that engine's error is raised.
        """
        usual = self._engine(spec)
        if workspace.container is None:
            return usual
        silent: HoldfastError | None = None
        for socket in dict.fromkeys((usual.socket, *self._engines.all())):
            try:
                if self._engines.at(socket).details(workspace.container) is not None:
                    return self._engines.at(socket)
            except HoldfastError as error:
                silent = silent or error
        if silent is not None:
            raise silent
        return usual

    def command_runner(self, spec: TaskSpec, workspace: Workspace) -> CommandRunner:
        """Return a runner that runs each command in a container, with the image, mount, user, network and limits of
        the task's agent."""
        assert self._runner is not None
        return _RunnerInContainers(self._home, self._engines, self._engine(spec), self._runner, spec, workspace)

    def _engine(self, spec: TaskSpec) -> Engine:
        return self._engines.at(socket_of(spec.container))


@dataclasses.dataclass(frozen=True, slots=True)
class _RunnerInContainers:
    """The runner of a container task's commands. Implements CommandRunner."""

    home: str
    engines: Engines
    engine: Engine
    runner: CommandRunner
    spec: TaskSpec
    workspace: Workspace

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout: float,
        stdin: bytes = b"",
        output: int | None = None,
        mark: str | None = None,
    ) -> tuple[int, bytes, bytes]:
        """Run the command in a new container, and remove the container. Raise Unavailable if the engine went away."""
        name = f"holdfast-{new_id()}"
        order = ContainerSpec(
            name=name,
            argv=argv,
            env=inside(env, self.spec.environment),
            workspace=cwd,
            channel="",
            labels={HOME: self.home, TASK: self.spec.id, WORKSPACE: self.workspace.id, COMMAND: "true"},
            rules=self.spec.container,
            limits=self.spec.limits,
        )
        self.engines.note(self.engine.socket)
        self.engines.commands.add(name)
        try:
            await run_in_engine_thread(self.engine.check, self.spec.container.image)
            container = await run_in_engine_thread(self.engine.create, order)
            client = _client("run", self.engine.socket, container)
            path = {"PATH": os.environ.get("PATH", os.defpath)}
            done = await self.runner(client, cwd="/", env=path, timeout=timeout, stdin=stdin, output=output, mark=mark)
            if done[0] == -boxed.ENGINE_LOST:
                raise Unavailable(f"The container engine at {self.engine.socket} went away during a command.")
            return done
        finally:
            # Removal ends the command's processes. An engine that is away removes it before the workspace's next use.
            with contextlib.suppress(HoldfastError):
                await run_in_engine_thread(self.engine.drop, name)
            self.engines.commands.discard(name)


def _client(what: str, socket: str, container: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-X", "utf8", boxed.__file__, what, socket, container]


def inside(env: Mapping[str, str], wanted: Mapping[str, object], own: Sequence[str] = ()) -> dict[str, str]:
    """Return the agent's environment in the container.

    It has what the task's settings pass and set, what adapter and account set (`own`), and the variables that mean the
    same in a container. HOME is /tmp unless it is set, because the image perhaps does not know the user.
    """
    passed, chosen = wanted.get("pass", ()), wanted.get("set", {})
    assert isinstance(passed, list | tuple)
    assert isinstance(chosen, dict)
    held = wanted.get("held", {})
    assert isinstance(held, dict)
    patterns = (*_ALSO_INSIDE, *map(str, passed), *map(str, chosen), *map(str, held), *own)
    kept = {
        name: value
        for name, value in env.items()
        if name not in _OUTSIDE_ONLY and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    return {"HOME": "/tmp", **kept}
