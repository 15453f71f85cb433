"""R-CRASH-06, R-CRASH-10: what an alert's remedy says is done by one word, where one command does it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fleet import Fleet

from holdfast.api.commands import Commands
from holdfast.api.mending import mend
from holdfast.api.pausing import pause
from holdfast.errors import Conflict, NotFound, Refused


def alert(key: str, task: str | None = None) -> dict[str, Any]:
    return {"key": key, "task": task, "remedy": "Do `this`."}


def test_what_is_restarted_and_what_needs_a_person(fleet: Fleet) -> None:
    """R-CRASH-06, R-CRASH-10: a task goes on from where it is; what cannot be restarted says what to do instead, and
    what is gone says so."""
    home, task = str(fleet.home), fleet.queue("true")
    with fleet.as_its_user():
        commands = Commands(home)
        with pytest.raises(Refused, match=f"Task {task} is queued; there is nothing to restart. Do `this`."):
            mend(home, alert(f"stuck:{task}", task))
        commands.cancel(task, "")
        told = mend(home, alert(f"crash:task:{task}", task))
        assert told.startswith(f"Queued {task} again, where it stopped. No supervisor is running")
        assert fleet.show(task)["state"] == "queued"
        pause(home, task)
        assert "resume 1 of 3" in mend(home, alert(f"task:{task}:budget", task))
        with pytest.raises(NotFound, match="was forgotten meanwhile"):
            mend(home, alert("crash:task:zzz", "zzz"))
        with pytest.raises(NotFound, match="There is no worker 'web'"):
            mend(home, alert("crash:worker:web", task))
        with pytest.raises(NotFound, match="Nothing is held back under the name 'provider:x'"):
            mend(home, alert("provider:x"))
        assert mend(home, alert("mass-death")) == "Nothing is held back any more."
        with pytest.raises(Conflict, match="The account claude/default is not shut"):
            mend(home, alert("account:claude/default"))
        with pytest.raises(Refused, match="Nothing is to be restarted here"):
            mend(home, alert("disk:full"))
