"""A private container engine for the tests of containers: one per session, whatever the number of test processes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine_sitter import PATIENCE
from tests.fleet import Fleet, wait_until
from tests.harness import ROOT
from tests.harness.engines.image import IMAGE, why_not


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    base = factory.getbasetemp()
    root = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = root / "engine"
    folder.mkdir(exist_ok=True)
    return folder


def answered(folder: Path) -> bool:
    return (folder / "ready").exists() or (folder / "failed").exists()


@pytest.fixture(scope="session")
def engine_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    reason = why_not()
    if reason:
        pytest.skip(f"CONTAINERS ARE NOT TESTED: {reason}")
    folder = shared_folder(tmp_path_factory)
    with (folder / "users").open("ab") as users:
        with (folder / "start").open("ab") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)  # while an earlier engine is being ended, this waits
            if not answered(folder):  # one failure is enough: the next test process does not wait for another
                with (folder / "sitter.log").open("ab") as log:
                    words = [sys.executable, "-m", "tests.engine_sitter", str(folder)]
                    subprocess.run(words, cwd=ROOT, stdout=log, stderr=log, check=True)
                wait_until(lambda: answered(folder), "the engine's sitter says something", 4 * PATIENCE)
        if (folder / "failed").exists():
            pytest.skip(f"CONTAINERS ARE NOT TESTED: {(folder / 'failed').read_text()}")
        yield folder


class Docks:
    """A fleet whose tasks work in containers of the private engine."""

    def __init__(self, fleet: Fleet, socket: Path) -> None:
        import docker  # type: ignore[import-untyped]  # it has no annotations

        self.fleet = fleet
        self.socket = socket
        self.api = docker.APIClient(base_url=f"unix://{socket}", version="auto")
        fleet.env.update(
            HOLDFAST_CONTAINER_ENGINE=str(socket),
            HOLDFAST_CONTAINER_IMAGE=IMAGE,
            HOLDFAST_CONTAINER_NETWORK="none",
            HOLDFAST_WORKSPACE_STRATEGY="container",
        )

    def add(self, script: str, *options: object) -> str:
        return self.fleet.add("the prompt", *options, command=("sh", "-c", script))

    def of(self, task_id: str) -> list[dict[str, object]]:
        """The containers of a task, as the engine tells: a witness that is not Holdfast."""
        found: list[dict[str, object]] = self.api.containers(
            all=True, filters={"label": [f"dev.holdfast.task={task_id}"]}
        )
        return found

    def all(self) -> list[str]:
        return [str(one["Id"]) for one in self.api.containers(all=True)]

    def states(self, task_id: str) -> list[str]:
        return [str(one["State"]) for one in self.of(task_id)]


@pytest.fixture
def docks(fleet: Fleet, engine_folder: Path) -> Iterator[Docks]:
    made = Docks(fleet, engine_folder / "sock")
    yield made
    made.api.close()
