"""What people see of the recordings: golden texts in tests/golden/views.

After a change of the view, write them again and read the difference:

    .venv/bin/python -m tests.agents.test_views
    git diff tests/golden/views
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.recordings import GOLDEN, RECORDED_AT

from holdfast.api.tasks.models import OpenRun
from holdfast.api.tasks.transcript import Transcript
from holdfast.cli.output.agent_events import Teller

VIEWS = GOLDEN.parent / "views"
SHOWN = (
    *(f"claude/{scenario}" for scenario in ("tool", "e429", "oauth-eusage", "warn", "kr1", "kr2", "midcut")),
    *(f"codex/{scenario}" for scenario in ("tool", "e429", "eusage", "kr1")),
    *(f"gemini/{scenario}" for scenario in ("tool", "e429")),
    *(f"{agent}/tool" for agent in ("opencode", "qwen", "copilot")),
    "aider/ok",
)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def view(name: str, directory: Path) -> str:
    """As `holdfast logs` prints it into a pipe."""
    for recorded, kept in (("stdout.jsonl", "out.log"), ("stderr.txt", "err.log")):
        path = GOLDEN / name / recorded
        (directory / kept).write_bytes(path.read_bytes() if path.exists() else b"")
    out = io.StringIO()
    teller = Teller(out.write, io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    run: OpenRun = {"id": "r", "number": 1, "ended_at": RECORDED_AT}
    for event in Transcript(str(directory), name.partition("/")[0], run, "UTC").go_on(final=True):
        teller.tell(event)
    teller.end()
    return out.getvalue()


@pytest.mark.parametrize("name", SHOWN)
def test_recordings_look_as_they_should(name: str, tmp_path: Path) -> None:
    assert view(name, tmp_path) == (VIEWS / f"{name.replace('/', '-')}.txt").read_text()


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    VIEWS.mkdir(exist_ok=True)
    for shown in SHOWN:
        with tempfile.TemporaryDirectory() as folder:
            (VIEWS / f"{shown.replace('/', '-')}.txt").write_text(view(shown, Path(folder)))
