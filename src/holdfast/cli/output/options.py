"""Arguments that many commands share, each with one help text."""

from __future__ import annotations

import argparse


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="machine-readable output (stable, documented)")


def add_task_id(parser: argparse.ArgumentParser) -> None:
    """Add the id of a task. `Queries.resolve` completes a shortened id."""
    parser.add_argument("id", help="a task's id, or the beginning of it")
