"""Words of others stay words (docs/security.md): on a terminal, in JSON, as an argument, as a path."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness import ROOT

from holdfast.base.errors import UsageError
from holdfast.base.text import indent_text
from holdfast.cli.output.render import print_json, print_table
from holdfast.core.agents.digest import RunDigest
from holdfast.core.agents.events import SessionStarted
from holdfast.intake.repository import locate_repository

HOSTILE = "\x9b31m \x7f \u202eturned \u2028line \u200b \U000e0041 é 日本 😀"


@pytest.mark.parametrize("told", ["--dangerously-skip-permissions", "-c", "../../etc/passwd", "a b", "a\nb", "x" * 300])
def test_a_session_that_could_be_an_option_or_a_path_is_not_continued(told: str) -> None:
    """Found by `hostile-words:streams/options`: what an agent told as its session's id stood on the next one's command
    line as it was, behind `--resume`."""
    digest = RunDigest()
    digest.add(SessionStarted(id=told, model="m"))
    assert digest.session_id is None
    for fine in ("e1253f0b-2414-5764-8856-d070100ecc99", "ses_7f3a", "scripted-1"):
        digest.add(SessionStarted(id=fine, model="m"))
        digest.add(SessionStarted(id=told, model="m"))
        assert digest.session_id == fine


def test_json_on_a_terminal_drives_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Found by `hostile-words:tasks/eight-bit`: JSON escapes only the first 32 characters by itself."""
    print_json({"prompt": HOSTILE})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"schema": 1, "prompt": HOSTILE}
    assert not set("\x9b\x7f\u202e\u2028\u200b\U000e0041") & set(printed)
    assert "é 日本 😀" in printed


def test_a_cell_is_one_line_and_a_quotation_is_indented(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "STATE"), [["one\nFORGED\x1b[2J", "completed"]])
    assert capsys.readouterr().out.splitlines()[1] == "one FORGED  completed"
    assert indent_text("Its last words:\ncompleted x\r\nfailed y") == "Its last words:\n  completed x\n  failed y"


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2Jcleared", "\u202eturned"])
def test_a_repository_whose_path_misleads_is_refused(tmp_path: Path, name: str) -> None:
    """Found by `hostile-words:tasks/lines`: `init`, `trust`, `branches`, `doctor` and `purge` showed it as it was."""
    repo = tmp_path / name
    repo.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=repo, check=True)
    with pytest.raises(UsageError, match="Rename the directory"):
        locate_repository(str(repo))


def test_a_case_of_the_family() -> None:
    """One door and one kind of words; `make faults` plays others by its seed."""
    campaign = [sys.executable, "-m", "tests.harness.campaign", "--replay", "hostile-words:tasks/escapes"]
    done = subprocess.run(campaign, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.endswith("held\n")
