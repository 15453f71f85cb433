"""What the supervisor said to what it was asked: no key waits for it, and nobody has to look for it."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound
from holdfast.tui.actions.handlers import Asked
from holdfast.tui.feed import Feed, Watch

Answer = tuple[Asked, bool, str]  # what was asked, whether it was done, in words


class Answers:
    def __init__(self, feed: Feed, done: Callable[[str], None], refused: Callable[[str, str], None]) -> None:
        self._feed, self._done, self._refused = feed, done, refused
        self._asked: tuple[Asked, ...] = ()
        self._watch = Watch("answers", self._read, self._seen)

    def wait_for(self, asked: Asked) -> None:
        self._asked = (*self._asked, asked)
        self._watch.again()
        self._feed.attach((self._watch,))

    def _read(self, queries: Queries) -> list[Answer]:
        """In the feed's thread."""
        found = ((asked, answer_to(queries, asked)) for asked in self._asked)
        return [(asked, *answer) for asked, answer in found if answer is not None]

    def _seen(self, answers: list[Answer]) -> None:
        for asked, is_done, words in answers:
            if asked in self._asked:
                self._asked = tuple(other for other in self._asked if other is not asked)
                self._done(words) if is_done else self._refused(asked.doing.capitalize(), words)
        if not self._asked:
            self._feed.detach((self._watch,))


def answer_to(queries: Queries, asked: Asked) -> tuple[bool, str] | None:
    """Whether it was done, in words; None: nobody has answered yet."""
    past = {"pause": "paused", "cancel": "cancelled"}[asked.doing]
    rows = queries.view("request", id=asked.number)
    try:
        state = queries.state(asked.task)["state"]
    except NotFound:
        rows = []
    if not rows:
        return False, f"Task {asked.task} was forgotten meanwhile."
    answer = rows[0]["answer"]
    if answer is None:
        return None
    from holdfast.api.pausing import PAUSED  # the first picture does not wait for it

    is_done = answer == PAUSED if asked.doing == "pause" else state == "cancelled"
    if is_done:
        return True, f"{past.capitalize()} {asked.task}."
    return False, f"Task {asked.task} was not {past}: {answer}."
