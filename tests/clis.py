"""Stand-ins for real agent CLIs: scripts that print a recording (tests/golden/agents) and say a version."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from tests.agents.recordings import GOLDEN


def recorded(agent: str, scenario: str) -> list[str]:
    return (GOLDEN / agent / scenario / "stdout.jsonl").read_text().splitlines()


def fake_cli(
    folder: Path, name: str, *, lines: Sequence[str] = (), version: str = "", then: str = ":", hold: int = 0
) -> Path:
    """An executable `name` in `folder`. It prints `lines`; with `hold`, it waits before that one for the file NAME.go.
    `then` are shell commands before its end."""
    folder.mkdir(parents=True, exist_ok=True)
    first, rest = folder / f"{name}.first", folder / f"{name}.rest"
    first.write_text("".join(f"{line}\n" for line in lines[:hold]))
    rest.write_text("".join(f"{line}\n" for line in lines[hold:]))
    go = folder / f"{name}.go"
    if not hold:
        go.touch()
    path = folder / name
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && {{ echo {shlex.quote(version)}; exit 0; }}\n'
        "cat > /dev/null\n"
        f"cat {shlex.quote(str(first))}\n"
        f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.1; done\n"
        f"cat {shlex.quote(str(rest))}\n"
        f"{then}\n"
    )
    path.chmod(0o755)
    return path


def install(folder: Path, *names: str) -> str:
    """CLIs that do nothing, in `folder`. The PATH with that folder at its end."""
    for name in names:
        fake_cli(folder, name)
    return f"{os.environ['PATH']}:{folder}"
