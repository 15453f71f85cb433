"""What `holdfast doctor` asks the store does not grow by a question per task."""

from __future__ import annotations

import pytest
from tests.fleet import Fleet

from holdfast.api.home.doctor import run_doctor_checks
from holdfast.api.queries import Queries


def test_it_does_not_ask_for_every_task(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 tasks that took 21 s. A directory without a record is still found."""
    fleet.add("x", command=("true",))
    (fleet.home / "runs" / "strayrun").mkdir(parents=True)
    asked: list[str] = []

    def task(_queries: Queries, task_id: str) -> dict[str, object]:
        asked.append(task_id)
        return {"runs": []}

    monkeypatch.setattr(Queries, "task", task)
    with fleet.as_its_user():
        findings = run_doctor_checks(str(fleet.home))
    assert asked == []
    assert [finding.text for finding in findings if finding.what == "runs"] == ["run directory strayrun has no record"]
