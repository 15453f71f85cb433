from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.agents_cache import cli_path
from tests.fleet import Fleet
from tests.live.stage import Stage

from holdfast.agents.registry import AGENTS
from holdfast.rehearsal.stub import StubServer
from holdfast.rehearsal.stub.address import STUB_ACCOUNTS


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer() as server:
        yield server


@pytest.fixture
def stage(fleet: Fleet, stub: StubServer) -> Callable[[str], Stage]:
    """`stage("claude")`; skips the test, loudly, where that CLI is not to be had."""

    def make(name: str) -> Stage:
        binary = cli_path(name)
        if name not in AGENTS or name not in STUB_ACCOUNTS:
            pytest.skip(f"{name.upper()} IS NOT TESTED: it has no adapter yet")
        return Stage(fleet, stub, name, binary)

    return make
