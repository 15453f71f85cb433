"""What `init` proposes for the files of a repository. Nothing of them is run, and none of their text is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.api.home.proposals import Proposal, propose

NODE = '{"scripts": {"test": "vitest"}}'
PYTEST = "[tool.pytest.ini_options]\n"
# what the repository has: its files, the gate, the file that it comes from, the set-up
PROJECTS: dict[str, tuple[dict[str, str], str, str, tuple[str, ...]]] = {
    "nothing": ({"README.md": "make test\n"}, "", "", ()),
    "make": ({"Makefile": "test: build\n\tpytest\n"}, "make test", "Makefile", ()),
    "make check": ({"GNUmakefile": "check:\n\ttrue\n"}, "make check", "GNUmakefile", ()),
    "make without a target": ({"Makefile": "test := x\nbuild:\n\ttrue\n"}, "", "", ()),
    "make before npm": ({"Makefile": "test:\n\tnpm test\n", "package.json": NODE}, "make test", "Makefile", ()),
    "npm": ({"package.json": NODE}, "npm test", "package.json", ()),
    "npm with a lock": (
        {"package.json": NODE, "package-lock.json": "{}", ".gitignore": "node_modules/\n"},
        "npm test",
        "package.json",
        ("npm ci",),
    ),
    "pnpm": (
        {"package.json": NODE, "pnpm-lock.yaml": "", ".gitignore": "/node_modules\n"},
        "pnpm test",
        "package.json",
        ("pnpm install --frozen-lockfile",),
    ),
    "yarn": (
        {"package.json": NODE, "yarn.lock": "", ".gitignore": "node_modules\n"},
        "yarn test",
        "package.json",
        ("yarn install --frozen-lockfile",),
    ),
    "bun": (
        {"package.json": NODE, "bun.lock": "", ".gitignore": "node_modules\n"},
        "bun run test",
        "package.json",
        ("bun install --frozen-lockfile",),
    ),
    "npm whose modules would be committed": ({"package.json": NODE, "package-lock.json": "{}"}, "npm test",
                                             "package.json", ()),
    "npm without tests": ({"package.json": '{"scripts": {"test": "echo Error: no test specified"}}'}, "", "", ()),
    "package.json of another shape": ({"package.json": '["scripts"]'}, "", "", ()),
    "pyproject": ({"pyproject.toml": PYTEST}, "python3 -m pytest", "pyproject.toml", ()),
    "pyproject without pytest": ({"pyproject.toml": "[project]\n"}, "", "", ()),
    "uv": (
        {"pyproject.toml": PYTEST, "uv.lock": "", ".gitignore": ".venv\n"},
        "uv run pytest",
        "pyproject.toml",
        ("uv sync",),
    ),
    "poetry": (
        {"pyproject.toml": PYTEST, "poetry.lock": "", ".gitignore": ".venv/\n"},
        "poetry run pytest",
        "pyproject.toml",
        ("poetry install",),
    ),
    "uv whose .venv would be committed": (
        {"pyproject.toml": PYTEST, "uv.lock": ""}, "uv run pytest", "pyproject.toml", ()),
    "cargo": ({"Cargo.toml": "[package]\n"}, "cargo test", "Cargo.toml", ()),
    "go": ({"go.mod": "module x\n"}, "go test ./...", "go.mod", ()),
    "node and python": (
        {"package.json": NODE, "pyproject.toml": PYTEST, "uv.lock": "", "yarn.lock": "",
         ".gitignore": ".venv\nnode_modules\n"},
        "yarn test",
        "package.json",
        ("yarn install --frozen-lockfile", "uv sync"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTS)
def test_the_files_of_a_project_decide(tmp_path: Path, name: str) -> None:
    files, gate, gate_from, setup = PROJECTS[name]
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    assert propose(str(tmp_path)) == Proposal(gate=gate, gate_from=gate_from, setup=setup)
