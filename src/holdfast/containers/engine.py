"""Container engines, through their API. Every call blocks, so callers use threads.

The `docker` package takes 0.2 s to import, so it is imported for the first task of strategy `container`.

The home's file `engines` lists the engines that this home has used. An engine is recorded before the first container is
made there, and the sweep checks every engine of the list.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError, LaunchError, Unavailable
from holdfast.base.files import open_private
from holdfast.containers.client import send_request
from holdfast.core.task_settings import ContainerRules, RunLimits

LABEL = "dev.holdfast."
HOME, TASK, RUN, WORKSPACE, COMMAND = (LABEL + name for name in ("home", "task", "run", "workspace", "command"))
PATIENCE = 30
PING_TIMEOUT = 3.0
NEVER_RAN = ("created", "initialized")
# A container that is started later for a shell must not run its agent again. The file IDLE marks such a start.
IDLE = "idle"
START = f'if [ -e "$HOLDFAST_CHANNEL/{IDLE}" ]; then while sleep 3600; do :; done; fi; exec "$@"'
DEFAULT_SHARES = 1024  # of CPU, at the kernel's default weight of 100


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerSpec:
    """A container that is to be made."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    workspace: str
    channel: str  # the directory of the run's reports; empty: a set-up command, a gate or a teardown command
    labels: Mapping[str, str]
    rules: ContainerRules
    limits: RunLimits


def socket_of(rules: ContainerRules, environment: Mapping[str, str] | None = None) -> str:
    """Return the engine's socket: from the setting, DOCKER_HOST, or the first usual path that exists."""
    environment = os.environ if environment is None else environment
    named = rules.engine or environment.get("DOCKER_HOST", "")
    if named:
        path = named.removeprefix("unix://")
        if not os.path.isabs(path):
            raise LaunchError(
                f"The container engine '{named}' is not a unix socket on this machine. "
                "Set container.engine to the path of one."
            )
        return path
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    own = [os.path.join(runtime, name) for name in ("docker.sock", "podman/podman.sock")] if runtime else []
    places = ["/var/run/docker.sock", *own, "/run/podman/podman.sock"]
    return next((place for place in places if os.path.exists(place)), places[0])


class Engine:
    """One container engine at one socket."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._client: Any = None

    def check(self, image: str) -> None:
        """Raise an error if a container of `image` cannot be made.

        Unavailable: not at the moment. LaunchError: not until the image or the settings change.
        """
        with self._api() as (api, errors):
            try:
                api.inspect_image(image)
            except errors.ImageNotFound:
                raise LaunchError(
                    f"The image '{image}' is not on the engine at {self.socket}. Bring it there (docker pull {image}), "
                    "or set container.image to an image that is there, then retry the task."
                ) from None

    def create(self, order: ContainerSpec) -> str:
        """Make a container without starting it, and return its id. Removes those of earlier runs of the workspace.

        A container for a command replaces only earlier containers for commands. The agent's own container stays, for
        example to be preserved.
        """
        self.remove({name: order.labels[name] for name in (WORKSPACE, COMMAND) if name in order.labels})
        with self._api(LaunchError) as (api, _errors):
            info = api.info()
            user, userns = self._user(api, info, order.rules)
            limits = order.limits
            memory, processes = container_limits(info, order.rules, limits)
            host = api.create_host_config(
                init=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                network_mode=order.rules.network,
                mem_limit=memory,
                memswap_limit=limits.memory,
                pids_limit=processes,
                read_only=order.rules.read_only,
                tmpfs={"/tmp": ""} if order.rules.read_only else None,
                cpu_shares=None if limits.cpu_weight is None else max(2, limits.cpu_weight * DEFAULT_SHARES // 100),
                userns_mode=userns,
                log_config={"type": "none", "config": {}},
                mounts=[_bind(path) for path in (order.workspace, order.channel) if path],
            )
            faults.effect("container.create")
            made = api.create_container(
                image=order.rules.image,
                name=order.name,
                entrypoint=["/bin/sh", "-c", START if order.channel else 'exec "$@"', "holdfast"],
                command=list(order.argv),
                environment=dict(order.env),
                working_dir=order.workspace,
                user=user,
                labels=dict(order.labels),
                stdin_open=True,
                host_config=host,
            )
            faults.passed("container.created")
            return str(made["Id"])

    def _user(self, api: Any, info: Mapping[str, Any], rules: ContainerRules) -> tuple[str, str | None]:
        """Return (user, user namespace), such that files of the workspace belong to the user who runs Holdfast.

        In a rootless engine this user is root inside the container. Podman can keep the user id instead.
        """
        if rules.user:
            return rules.user, None
        ours = f"{os.getuid()}:{os.getgid()}"
        if not any("rootless" in str(option) for option in info.get("SecurityOptions") or []):
            return ours, None
        is_podman = any("podman" in str(part.get("Name", "")).lower() for part in api.version().get("Components") or [])
        return (ours, "keep-id") if is_podman else ("0:0", None)

    def found(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return all containers with these labels, running or not."""
        with self._api() as (api, _errors):
            wanted = [f"{name}={value}" for name, value in labels.items()]
            listed: list[dict[str, Any]] = api.containers(all=True, filters={"label": wanted})
            return listed

    def end(self, labels: Mapping[str, str]) -> None:
        """Kill the running containers with these labels. Unavailable if one still runs afterwards.

        A container that never ran is removed: a start from a dead client that the engine has not processed yet must
        find nothing to start.
        """
        for one in self.found(labels):
            if one["State"] in NEVER_RAN:
                self.drop(str(one["Id"]))
            elif one["State"] in ("running", "paused", "restarting"):
                with self._api() as (api, errors):
                    faults.effect("container.kill")
                    try:
                        api.kill(one["Id"], "SIGKILL")
                        api.wait(one["Id"], timeout=PATIENCE)
                    except errors.APIError:
                        pass  # it ended meanwhile; the check below finds out
        left = [one["Id"][:12] for one in self.found(labels) if one["State"] in ("running", "paused", "restarting")]
        if left:
            raise Unavailable(
                f"Container {left[0]} still runs, although the engine at {self.socket} should have killed it."
            )

    def remove(self, labels: Mapping[str, str]) -> int:
        """Stop and remove all containers with these labels. Return how many."""
        return sum(self.drop(str(one["Id"])) for one in self.found(labels))

    def drop(self, container: str) -> bool:
        with self._api() as (api, errors):
            try:
                faults.effect("container.remove")
                api.remove_container(container, force=True, v=True)
            except errors.NotFound:
                return False
            faults.passed("container.removed")
            return True

    def details(self, container: str) -> dict[str, Any] | None:
        """Return the engine's details of one container, or None if the container does not exist."""
        with self._api() as (api, errors):
            try:
                details: dict[str, Any] = api.inspect_container(container)
            except errors.NotFound:
                return None
            return details

    def start(self, container: str) -> None:
        with self._api() as (api, _errors):
            faults.effect("container.start")
            api.start(container)

    def why_silent(self) -> str:
        """Return why the engine does not answer, or "" when it does. Waits only briefly, and without the package."""
        try:
            status, _answer = send_request(self.socket, "GET", "/_ping", PING_TIMEOUT)
        except TimeoutError:
            return f"no answer within {PING_TIMEOUT:g} s"
        except (OSError, HTTPException) as error:
            return _cause(error)
        return f"it answers with error {status}" if status >= 500 else ""

    @contextmanager
    def _api(self, refusal: type[HoldfastError] = Unavailable) -> Iterator[tuple[Any, Any]]:
        """Yield the API and its error classes. Translate errors into ours, which show who must act.

        `refusal`: the error to raise when the engine refuses a request.
        """
        from docker import APIClient, errors  # type: ignore[import-untyped]  # it has no annotations
        from requests.exceptions import RequestException

        try:
            if self._client is None:
                self._client = APIClient(base_url=f"unix://{self.socket}", version="auto", timeout=PATIENCE)
            yield self._client, errors
        except errors.APIError as error:
            kind = Unavailable if error.is_server_error() else refusal  # an engine that is stopping has a server error
            raise kind(f"The engine at {self.socket} refused: {error.explanation or error}") from error
        except (errors.DockerException, RequestException, OSError) as error:
            self._client = None
            raise Unavailable(
                f"The container engine at {self.socket} does not answer ({_cause(error)}). Nothing was lost, and it is "
                "tried again. Start the engine, or set container.engine."
            ) from error


def container_limits(
    info: Mapping[str, Any], rules: ContainerRules, limits: RunLimits
) -> tuple[int | None, int | None]:
    """Return the limits of memory (bytes) and of processes.

    A default stands in where the user set no limit. The default is left out if the engine cannot hold that limit: a
    rootless engine may then refuse to start the container. `info`: what the engine reports about itself and its
    machine.
    """
    memory, processes = limits.memory, limits.processes
    if memory is None and rules.memory_share < 100 and info.get("MemoryLimit") and info.get("MemTotal"):
        memory = int(info["MemTotal"]) * rules.memory_share // 100
    if processes is None and info.get("PidsLimit"):
        processes = limits.processes_ceiling
    return memory, processes


def _bind(path: str) -> dict[str, object]:
    return {"Type": "bind", "Source": path, "Target": path, "ReadOnly": False}


def _cause(error: BaseException) -> str:
    """Return the operating system's own message, from below the layers of wrapped exceptions."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = seen.__cause__ or seen.__context__
    return type(error).__name__


NAME = "engines"


class Engines:
    """The engines that a home has used: its file `engines`, with one socket per line."""

    def __init__(self, home: str) -> None:
        self._file = os.path.join(home, NAME)
        self.commands: set[str] = set()  # names of the containers in which this process runs a command now
        self._known: dict[str, Engine] = {}

    def at(self, socket: str) -> Engine:
        return self._known.setdefault(socket, Engine(socket))

    def note(self, socket: str) -> None:
        if socket not in self.all():
            faults.effect("engine.note")
            with open(self._file, "a", encoding="utf-8", errors="surrogateescape", opener=open_private) as file:
                file.write(socket + "\n")

    def all(self) -> list[str]:
        try:
            with open(self._file, encoding="utf-8", errors="surrogateescape") as file:
                return list(dict.fromkeys(file.read().splitlines()))
        except FileNotFoundError:
            return []

    def found(self, labels: Mapping[str, str]) -> list[tuple[Engine, dict[str, Any]]]:
        """Return every container with these labels, on every engine that answers."""
        found = []
        for socket in self.all():
            try:
                found += [(self.at(socket), one) for one in self.at(socket).found(labels)]
            except HoldfastError:
                continue  # containers of an engine that does not answer cannot be listed
        return found
