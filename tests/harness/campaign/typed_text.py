"""Commands as a person types them, through the real parser, in a process of a case's world; and what they printed."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.harness.matrix.world import World

from holdfast.cli.main import prepare_process, run

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
        prepare_process()
        code.write_text(json.dumps(run(list(words))))

    out.touch()
    world.client(f"typed-{number}", work)
    ended = json.loads(code.read_text()) if code.exists() else CRASHED
    return Said(ended, out.read_bytes(), err.read_bytes() if err.exists() else b"")


def on_terminal(world: World, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Said:
    """The same where everything that it prints goes to a terminal."""
    ours, theirs = os.openpty()
    seen: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(ours, seen))
    reader.start()
    code = world.root / f"terminal-{len(list(world.root.glob('terminal-*')))}"

    def work() -> None:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)
        for number, name in ((1, "stdout"), (2, "stderr")):  # those that we have were opened for a file
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - lives as long as we
        os.chdir(cwd or world.repo)
        os.environ.update(env or {})
        prepare_process()
        code.write_text(json.dumps(run(list(words))))

    try:
        world.client(code.name, work)
    finally:
        os.close(theirs)  # the last one: the reader sees the end
        reader.join()
        os.close(ours)
    ended = json.loads(code.read_text()) if code.exists() else CRASHED
    code.touch()
    return Said(ended, b"".join(seen).replace(b"\r\n", b"\n"), b"")


def _read_all(ours: int, seen: list[bytes]) -> None:
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # nobody has the other end any more
            return
        if not block:
            return
        seen.append(block)
