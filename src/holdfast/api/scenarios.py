"""Scenarios, for interfaces: files of the scripted agent, names of the stub LLM server."""

from __future__ import annotations

from typing import Any

from holdfast.rehearsal.scenario import load
from holdfast.rehearsal.stub.catalogue import SCENARIOS as STUB_SCENARIOS

__all__ = ["STUB_SCENARIOS", "load_scenario"]


def load_scenario(path: str) -> list[dict[str, Any]]:
    return load(path)
