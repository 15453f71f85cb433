"""Which engines this home has used: noted before the first container is made there, gone over by the sweep."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holdfast.base import faults
from holdfast.base.errors import HoldfastError
from holdfast.base.folders import privately
from holdfast.containers.engine import Engine

NAME = "engines"


class Engines:
    """The file `engines` of a home: one socket a line."""

    def __init__(self, home: str) -> None:
        self._file = os.path.join(home, NAME)
        self._known: dict[str, Engine] = {}

    def at(self, socket: str) -> Engine:
        return self._known.setdefault(socket, Engine(socket))

    def note(self, socket: str) -> None:
        if socket not in self.all():
            faults.effect("engine.note")
            with open(self._file, "a", encoding="utf-8", errors="surrogateescape", opener=privately) as file:
                file.write(socket + "\n")

    def all(self) -> list[str]:
        try:
            with open(self._file, encoding="utf-8", errors="surrogateescape") as file:
                return list(dict.fromkeys(file.read().splitlines()))
        except FileNotFoundError:
            return []

    def found(self, labels: Mapping[str, str]) -> list[tuple[Engine, dict[str, Any]]]:
        """Every container with these labels, on every engine that answers."""
        found = []
        for socket in self.all():
            try:
                found += [(self.at(socket), one) for one in self.at(socket).found(labels)]
            except HoldfastError:
                continue  # an engine that does not answer has nothing that we could see
        return found
