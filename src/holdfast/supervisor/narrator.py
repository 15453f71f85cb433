"""Says what happens, line by line, to whoever watches the supervisor's own output."""

from __future__ import annotations

import asyncio
import time

from holdfast.base.text import one_line
from holdfast.store.port.transaction import Store
from holdfast.supervisor.context import Bell
from holdfast.supervisor.saying import say

SLOW_POLL = 5.0  # for what others write without ringing
AT_MOST_EVERY = 0.25  # many commits are told together
_QUIET = frozenset({"run.ended", "run.stopping", "workspace.gone"})


class Narrator:
    """A follower like any other, that reads events from the store; but it need not poll: the writer rings for it.

    A wake costs an idle supervisor a third of a millisecond: four looks a second were a third of all it used.
    """

    def __init__(self, store: Store, news: Bell) -> None:
        self._store = store
        self._news = news
        self._seq = int(str(store.view("last_seq")[0]["seq"]))
        self._version = -1

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(AT_MOST_EVERY)
            await self._news.wait(SLOW_POLL)

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
