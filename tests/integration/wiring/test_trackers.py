"""Which tracker a repository has, while people edit its files (holdfast/issues.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.model import Repo
from holdfast.wiring.trackers import RepoTrackers

BEADS = '[tracker]\nkind = "beads"\ncommand = ["~/bin/br"]\npoll = "50ms"\n'


async def nobody(*_given: object, **_more: object) -> tuple[int, bytes, bytes]:
    raise AssertionError("nothing is run")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    (tmp_path / "repo" / ".beads").mkdir(parents=True)
    (tmp_path / "config.toml").write_text(BEADS)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Repo(id="r", path=str(tmp_path / "repo"), common_dir=str(tmp_path / "repo" / ".git"))


def test_a_file_with_mistakes_changes_nothing(tmp_path: Path, repo: Repo) -> None:
    """Like every setting of a running supervisor: the old ones hold until the mistake is mended."""
    trackers = RepoTrackers(str(tmp_path), nobody)
    first = trackers.of(repo)
    assert (first.kind, first.problem) == ("beads", None)
    for path in (tmp_path / "config.toml", Path(repo.path, "holdfast.toml")):
        before, held = path.read_text() if path.exists() else "", trackers.of(repo)
        path.write_text("[tracker\n")
        assert trackers.of(repo) is held
        path.write_text(before)
        assert trackers.of(repo).problem is None
    (tmp_path / "config.toml").write_text("")
    assert trackers.of(repo).kind == "builtin"


def test_what_cannot_be_read_is_told_and_never_raised(tmp_path: Path, repo: Repo) -> None:
    """Whoever asks is the supervisor's loop: what a repository's files or the record of trust are must not end it."""
    file = Path(repo.path, "holdfast.toml")
    file.write_text("[tracker\n")
    assert "holdfast.toml" in str(RepoTrackers(str(tmp_path), nobody).of(repo).problem)
    file.write_text('[tracker]\ncommand = ["x"]\n')
    assert "not trusted" in str(RepoTrackers(str(tmp_path), nobody).of(repo).problem)
    (tmp_path / "trust.json").write_text("{")
    assert "trust.json" in str(RepoTrackers(str(tmp_path), nobody).of(repo).problem)


def test_no_file_can_keep_us_busy_and_the_home_is_the_users(tmp_path: Path, repo: Repo) -> None:
    """An interval without a pause is refused, so the tracker that was known before stays."""
    setup = RepoTrackers(str(tmp_path), nobody).of(repo)
    assert setup.poll == 0.05
    assert setup.tracker._command == (f"{tmp_path}/bin/br",)  # type: ignore[attr-defined]
