"""The proposals of `init` for a repository: its gate, and the set-up of a new workspace.

Only files at the top of the checkout are read, and nothing is run. The files of a clone come from strangers and may be
hostile. They only select commands of this module: none of their text becomes part of a command.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.config.read_file import read_regular_file

LARGEST = 1024 * 1024
MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_TARGET = re.compile(r"^(test|check)\s*:(?!=)", re.MULTILINE)
_NODE_LOCKS = (  # lock file, set-up, tests
    ("package-lock.json", "npm ci", "npm test"),
    ("pnpm-lock.yaml", "pnpm install --frozen-lockfile", "pnpm test"),
    ("yarn.lock", "yarn install --frozen-lockfile", "yarn test"),
    ("bun.lock", "bun install --frozen-lockfile", "bun run test"),
)
_PYTHON_LOCKS = (("uv.lock", "uv sync", "uv run pytest"), ("poetry.lock", "poetry install", "poetry run pytest"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """Commands that fit the files of a checkout. Empty: no file indicates a command."""

    gate: str = ""
    gate_from: str = ""  # the file that the gate was concluded from
    setup: tuple[str, ...] = ()


def propose(repo: str) -> Proposal:
    """Return the proposals for a checkout. A Makefile has priority: its `test` target is the project's own choice."""
    gates = [found for look in (_make, _node, _python, _cargo, _go) if (found := look(repo)) is not None]
    gate, gate_from = gates[0] if gates else ("", "")
    return Proposal(gate=gate, gate_from=gate_from, setup=tuple(_setup(repo)))


def _make(repo: str) -> tuple[str, str] | None:
    for name in MAKEFILES:
        targets = set(_TARGET.findall(_read(repo, name)))
        if targets:
            return f"make {'test' if 'test' in targets else 'check'}", name
    return None


def _node(repo: str) -> tuple[str, str] | None:
    scripts = _json(repo, "package.json").get("scripts")
    test = scripts.get("test") if isinstance(scripts, dict) else None
    if not isinstance(test, str) or not test or "no test specified" in test:
        return None
    return next((tests for lock, _setup, tests in _NODE_LOCKS if _has(repo, lock)), "npm test"), "package.json"


def _python(repo: str) -> tuple[str, str] | None:
    if "pytest" not in _read(repo, "pyproject.toml"):
        return None
    found = (tests for lock, _setup, tests in _PYTHON_LOCKS if _has(repo, lock))
    return next(found, "python3 -m pytest"), "pyproject.toml"


def _cargo(repo: str) -> tuple[str, str] | None:
    return ("cargo test", "Cargo.toml") if _has(repo, "Cargo.toml") else None


def _go(repo: str) -> tuple[str, str] | None:
    return ("go test ./...", "go.mod") if _has(repo, "go.mod") else None


def _setup(repo: str) -> Iterator[str]:
    """Yield the commands that install what a lock file names.

    A command is left out if git does not ignore the directory that it fills: the directory would be committed with an
    agent's work.
    """
    ignored = {line.strip().strip("/") for line in _read(repo, ".gitignore").splitlines()}
    if "node_modules" in ignored and _has(repo, "package.json"):
        yield from [setup for lock, setup, _tests in _NODE_LOCKS if _has(repo, lock)][:1]
    if ".venv" in ignored:
        yield from [setup for lock, setup, _tests in _PYTHON_LOCKS if _has(repo, lock)][:1]


def _has(repo: str, name: str) -> bool:
    return os.path.isfile(os.path.join(repo, name))


def _read(repo: str, name: str) -> str:
    """Return the text of a regular file, or an empty text if there is none that can be read."""
    try:
        return read_regular_file(os.path.join(repo, name), LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def _json(repo: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(_read(repo, name) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
