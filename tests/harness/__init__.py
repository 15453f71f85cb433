"""Test code that several suites share: fault matrix, fault campaign, fuzzers, private engines, await walker."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # where `python -m tests.harness.…` finds this package
