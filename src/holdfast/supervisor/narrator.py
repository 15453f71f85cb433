"""Says what happens, line by line, to whoever watches the supervisor's own output."""

from __future__ import annotations

import asyncio
import time

from holdfast.store.port import Store
from holdfast.supervisor.saying import say
from holdfast.text import one_line

LOOK_EVERY = 0.25
_QUIET = frozenset({"run.ended", "run.stopping", "workspace.gone"})


class Narrator:
    """A follower like any other: it reads events from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seq = int(str(store.view("last_seq")[0]["seq"]))
        self._version = -1

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> None:
        version = self._store.data_version()
        if version == self._version:
            return
        self._version = version
        for event in self._store.view("events", after=self._seq, task=None, limit=1000):
            self._seq = int(str(event["seq"]))
            if event["kind"] not in _QUIET:
                moment = time.strftime("%H:%M:%S", time.localtime(float(str(event["at"]))))
                say(f"{moment} {one_line(event['message'])}")
