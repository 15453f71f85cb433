"""How a person continues in a task's session, and what `show` warns of."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.tasks.usage import find_manual_command


@pytest.mark.parametrize(
    ("state", "session", "told"),
    [
        ("paused", "s1", "Holdfast will continue in this session by itself"),
        ("queued", None, "Holdfast will continue by itself, in a new session"),  # it was lost, or its context was full
        ("running", "s1", "Two agents at once would conflict"),
        ("running", None, "its agent is working in the same directory"),
    ],
)
def test_what_is_said_of_a_session_that_is_given_up(state: str, session: str | None, told: str, tmp_path: Any) -> None:
    run = {"session_id": "s1", "account": None}
    another = [{**run, "session_id": None}] if state == "running" and session is None else []  # it has said nothing yet
    task: Any = {
        "id": "t",
        "agent": "claude",
        "strategy": "worktree",
        "repo": "/",
        "state": state,
        "session_id": session,
    }
    found = find_manual_command(task | {"workspace": {"path": str(tmp_path)}, "runs": [run, *another]})
    assert found is not None
    assert found["warning"] is not None
    assert told in found["warning"]
    assert "holdfast cancel t" in found["warning"]
