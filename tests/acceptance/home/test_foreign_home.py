"""A home that belongs to another user: read by root, never written, and no file of a home is opened through a link."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.fleet import Fleet
from tests.other_user import as_other_user, reachable_directory

from holdfast.base.errors import Refused
from holdfast.base.home import ensure_home
from holdfast.supervisor.home_lock import HomeLock
from holdfast.workspaces.removal.delete_tree import Deleter, describe_user


def test_root_reads_another_users_home_and_writes_nothing_there() -> None:
    """Finding F11: root started a supervisor on a home of another user, and wrote through a link that this user had
    put there. `up` and every command that writes are refused, and looking works as before."""
    with reachable_directory() as root:
        theirs = as_other_user(Fleet(root))  # skips where there is no other user
        try:
            task = theirs.add("x", "--delay", "1h", command=("true",))
            witness = root / "witness"
            (theirs.home / "supervisor.log").symlink_to(witness)
            prefix, theirs.prefix = theirs.prefix, ()
            python, theirs.python = theirs.python, ""
            for words in (("up", "--detach"), ("up",), ("add", "x", "--", "true"), ("cancel", task), ("sweep",)):
                refused = theirs.cli(*words, code=None)
                assert refused.returncode != 0, words
                assert "belongs to another user" in refused.stderr, (words, refused.stderr)
                assert "sudo -u" in refused.stderr
            assert task in theirs.cli("ps").stdout
            assert theirs.json("show", task)[0]["state"] == "queued"
            assert "store" in theirs.cli("doctor", code=None).stdout
            assert not witness.exists()
            theirs.prefix, theirs.python = prefix, python
            assert (
                "symbolic link" in theirs.cli("up", "--detach", code=None).stderr
            )  # its own user follows no link either
            assert not witness.exists()
            (theirs.home / "supervisor.log").unlink()
            theirs.cli("cancel", task)
            # `lstat`: the git-config directories have links to files that a repository may not have
            assert [path for path in theirs.home.rglob("*") if path.lstat().st_uid == 0] == []
        finally:
            theirs.close()


def test_a_home_must_be_its_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule, for any user: the owner of the home and the user of the process are the same."""
    ensure_home(str(tmp_path))
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    for write in (ensure_home, lambda home: HomeLock(home).take()):
        with pytest.raises(Refused, match="belongs to another user"):
            write(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_owner_of_a_home_is_called_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A uid tells a person nothing. It is shown only where the system has no name for it."""
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    names = {owner: "ada"}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=names[uid]))
    with pytest.raises(Refused, match=r"another user \(ada\).*`sudo -u ada holdfast …`") as refused:
        ensure_home(str(tmp_path))
    assert "uid" not in str(refused.value)
    assert describe_user(owner) == "ada"
    names.clear()
    with pytest.raises(Refused, match=rf"another user \(uid {owner}\).*`sudo -u '#{owner}' holdfast …`"):
        ensure_home(str(tmp_path))
    assert describe_user(owner) == f"uid {owner}"


def test_the_deleter_calls_an_owner_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only some owners are allowed, the directory stays, and its owner is named."""
    (tmp_path / "tree").mkdir()
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_name="ada"))
    deleter = Deleter(may_chmod=False, owners=lambda _uid: False)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert not deleter.delete(folder, "tree", "tree")
    finally:
        os.close(folder)
    assert "a directory of ada, who is not an allowed owner" in deleter.obstacles[0]
    assert (tmp_path / "tree").is_dir()
