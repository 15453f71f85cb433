"""Steering workers while the user's file has a mistake in it: the running supervisor continues with those of before."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import config
from holdfast.api.fleet.workers import list_workers, steer_worker
from holdfast.base import clock
from holdfast.base.errors import NotFound
from holdfast.base.home import ensure_home
from holdfast.store.open import open_store


def test_a_worker_of_before_can_be_stopped_while_the_file_has_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-CRASH-05: what works can be stopped, whatever somebody is just typing into the file."""
    home, file = str(tmp_path / "home"), tmp_path / "config.toml"
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    file.write_text("[[worker]\n")
    ensure_home(home)
    store = open_store(home, create=True)
    store.write(lambda tx: tx.workers.enrol(["web", "old"], clock.now()))
    store.write(lambda tx: tx.workers.enrol(["web"], clock.now()))
    assert [(row["name"], row["configured"]) for row in list_workers(home)] == [("web", False)]
    assert steer_worker(home, "stop", "web").data["state"] == "stopped"
    for name in ("old", "nobody"):
        with pytest.raises(NotFound):
            steer_worker(home, "stop", name)


def test_what_may_be_a_token_among_the_words_of_a_command_is_not_shown() -> None:
    """`config show` and the event of a reload: `curl -H 'Authorization: …'` is a usual `notify.command`."""
    for command, shown in ((["curl", "-H", "t0ken"], ["curl", "…"]), (["notify"], ["notify"]), ([], [])):
        assert config.mask_secrets("notify.command", command) == shown
