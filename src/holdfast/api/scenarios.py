"""Scenario files, for interfaces."""

from __future__ import annotations

from typing import Any

from holdfast.testing.scenario import load


def load_scenario(path: str) -> list[dict[str, Any]]:
    return load(path)
