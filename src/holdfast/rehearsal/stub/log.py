"""The log of the stub's requests: in memory for tests, and as JSON lines for other programs."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter, deque

from holdfast.base.dataclass import dataclass

_KEPT = 5_000  # exchanges
_SHOWN = 2_000  # characters of each text


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request to a model, and its answer."""

    path: str  # the scenario with its arguments, as in the base URL
    protocol: str
    model: str
    stream: bool
    prompts: tuple[str, ...]  # the texts of the user's side; a resumed session sends its history again
    calls: tuple[str, ...]  # tool calls in the history
    results: int  # tool results in the history
    answer: str  # text, call TOOL, the failure's name, or the manner if that is not WHOLE
    key_end: str  # the last characters of the key that was sent
    at: float  # seconds since the epoch


class RequestLog:
    def __init__(self, file: str | None = None) -> None:
        self._lock = threading.Lock()
        self._exchanges: deque[Exchange] = deque(maxlen=_KEPT)
        self._tries: Counter[str] = Counter()
        self._file = file

    def tries(self, path: str) -> int:
        """Return how many requests came to `path` before this one, and count this one."""
        with self._lock:
            self._tries[path] += 1
            return self._tries[path] - 1

    def add(self, exchange: Exchange) -> None:
        short = dataclasses.replace(
            exchange, prompts=_cut(exchange.prompts), calls=_cut(exchange.calls), key_end=exchange.key_end[-6:]
        )
        with self._lock:
            self._exchanges.append(short)
            if self._file:
                with open(self._file, "a", encoding="utf-8") as file:
                    file.write(json.dumps(dataclasses.asdict(short)) + "\n")

    def of(self, path: str | None) -> list[Exchange]:
        with self._lock:
            return [one for one in self._exchanges if path is None or one.path == path]


def _cut(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text[:_SHOWN] for text in texts)
