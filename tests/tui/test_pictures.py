"""The pictures of the screens, which `make screens` draws from a real run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.sampling import leave_out

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ("fleet", "task", "timeline", "diff", "workers", "alerts", "schedules", "workspaces", "help")


def test_every_screen_has_a_picture_in_the_guide() -> None:
    """R-CRASH-10: each of them is whole, needs nothing from elsewhere, and is shown."""
    guide = (ROOT / "docs" / "howto" / "top.md").read_text(encoding="utf-8")
    for name in SHOWN:
        svg = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        assert f"(../pictures/{name}.svg)" in guide
        assert f"holdfast&#160;top:&#160;{name}" in svg or f"holdfast top: {name}" in svg
        assert not re.search(r"url\(.?https?:|@font-face|<script|<image", svg), "it would load something"


def test_the_pictures_can_be_drawn_again(tmp_path: Path) -> None:
    leave_out(True)
    command = [sys.executable, str(ROOT / "scripts" / "make_screens.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.stem for path in tmp_path.iterdir()} == set(SHOWN)
