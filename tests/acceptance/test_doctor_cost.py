"""What `holdfast doctor` asks the store does not grow by a question per task."""

from __future__ import annotations

import pytest
from tests.fleet import Fleet

from holdfast.api.doctor import examine
from holdfast.api.queries import Queries


def test_it_does_not_ask_for_every_task(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 tasks that took 21 s. A directory without a record is still found."""
    fleet.add("x", command=("true",))
    (fleet.home / "runs" / "strayrun").mkdir(parents=True)
    asked: list[str] = []
    monkeypatch.setattr(Queries, "task", lambda _self, task_id: asked.append(task_id) or {"runs": []})
    with fleet.as_its_user():
        findings = examine(str(fleet.home))
    assert asked == []
    assert [finding.text for finding in findings if finding.what == "runs"] == ["run directory strayrun has no record"]
