"""One value into somebody's own file: every other byte stays, or nothing is changed and the line is told."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.errors import Refused
from holdfast.config.edit_file import write_setting

KEY = "permissions.mode"

FILES = {
    "nothing": ("", 'permissions.mode = "full"\n'),
    "no newline at the end": ("agents = 2", 'agents = 2\npermissions.mode = "full"\n'),
    "above the first section": (
        "# a\n[health]\ngrace='1s'\n",
        "# a\npermissions.mode = \"full\"\n[health]\ngrace='1s'\n",
    ),
    "into its section": ("[permissions] # p\nsandbox = true\n", '[permissions] # p\nmode = "full"\nsandbox = true\n'),
    "in place": ('permissions.mode = "read"  # why\nagents=1\n', 'permissions.mode = "full"  # why\nagents=1\n'),
    "in place, in its section": ("[permissions]\nmode='read'\n", '[permissions]\nmode="full"\n'),
    "quoted": ('"permissions"."mode"="read"\n', '"permissions"."mode"="full"\n'),
    "another key of that name": (
        '[container]\nimage = "mode"\n[permissions]\nmode = "edit"\n',
        '[container]\nimage = "mode"\n[permissions]\nmode = "full"\n',
    ),
    "windows": ("agents = 2\r\n[health]\r\n", 'agents = 2\r\npermissions.mode = "full"\r\n[health]\r\n'),
    "a bracket in a text": (
        'command.argv = ["""\n[permissions]\n"""]\n',
        'command.argv = ["""\n[permissions]\n"""]\npermissions.mode = "full"\n',
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_it_is_written_where_it_belongs(name: str, tmp_path: Path) -> None:
    before, after = FILES[name]
    path = tmp_path / "config.toml"
    path.write_bytes(before.encode())
    assert write_setting(str(path), KEY, "full")
    assert path.read_bytes().decode() == after
    assert not write_setting(str(path), KEY, "full")


@pytest.mark.parametrize("text", ["permissions = { mode = 'read', sandbox = false } # one\n", "helth = 1\n", "a = \n"])
def test_what_cannot_be_done_safely_is_left_to_the_person(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(Refused, match=r'Add this line to it yourself: permissions\.mode = "full"'):
        write_setting(str(path), KEY, "full")
    assert path.read_text() == text


def test_a_link_stays_one_and_a_missing_folder_is_made(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "holdfast.toml", tmp_path / "config" / "config.toml"
    link.parent.mkdir()
    link.symlink_to(real)
    write_setting(str(link), "agent", "codex")
    assert link.is_symlink()
    assert real.read_text() == 'agent = "codex"\n'


_LINES = st.sampled_from(
    [
        "# a comment\n",
        "\n",
        "agents = 3\n",
        "[permissions]\n",
        "sandbox = true\n",
        "permissions.sandbox = false\n",
        "mode = 'read'\n",
        "permissions.mode = 'edit' # x\n",
        "[health]\n",
        "grace = '1s'\n",
        "env.pass = [\n  'A',\n]\n",
        "[env]\n",
        "set = { MODE = 'x' }\n",
    ]
)


@given(st.lists(_LINES, max_size=8).map("".join))
def test_whatever_the_file_is_only_that_value_changes(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("c") / "config.toml"
    path.write_text(text)
    try:
        write_setting(str(path), KEY, "full")
    except Refused:
        assert path.read_text() == text
        return
    before, after = tomllib.loads(text), tomllib.loads(path.read_text())
    assert after["permissions"].pop("mode") == "full"
    before.setdefault("permissions", {}).pop("mode", None)
    assert after == before
    assert set(text.split()) - set(path.read_text().split()) <= {"'read'", "'edit'"}
