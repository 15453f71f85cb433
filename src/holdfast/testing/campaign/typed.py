"""Commands as a person types them, through the real parser, in a process of a case's world; and what they printed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.interfaces.cli.main import run
from holdfast.interfaces.cli.streams import settle_in
from holdfast.testing.matrix.world import World

CRASHED = 70  # what no command of ours ends with


@dataclass(frozen=True, slots=True)
class Said:
    """`code` is CRASHED where the command ended by an exception that nobody turned into words."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return (self.out + self.err).decode(errors="surrogateescape")


def typed(world: World, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Said:
    """One command. It is not told that nobody looks: there is no terminal, so questions are answered with no."""
    number = len(list(world.root.glob("typed-*.out")))
    out, err, code = (world.root / f"typed-{number}.{part}" for part in ("out", "err", "code"))

    def work() -> None:
        for stream, file in ((0, Path(os.devnull)), (1, out), (2, err)):
            opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
            os.dup2(opened, stream)
        os.chdir(cwd or world.repo)
        os.environ.update(env or {})
        settle_in()
        code.write_text(json.dumps(run(list(words))))

    out.touch()
    world.client(f"typed-{number}", work)
    ended = json.loads(code.read_text()) if code.exists() else CRASHED
    return Said(ended, out.read_bytes(), err.read_bytes() if err.exists() else b"")
