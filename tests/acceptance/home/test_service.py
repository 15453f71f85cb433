"""`holdfast service`: the units, where they go, and the way back. No systemd runs in a test: they work below --root."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.fleet import Fleet

from holdfast.api.home import service as api
from holdfast.base.errors import Conflict

ME = pwd.getpwuid(os.getuid()).pw_name
LIBEXEC = "usr/local/libexec/holdfast"
UNIT = "etc/systemd/system/holdfast.service"


@pytest.fixture
def machine(fleet: Fleet) -> Path:
    """Another machine's root, as `systemctl --root` knows it."""
    root = fleet.root / "machine"
    root.mkdir()
    return root


def service(fleet: Fleet, machine: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    scope = () if "--user" in arguments else ("--system", "--run-as", ME)
    return fleet.cli("service", *arguments, *scope, "--root", machine, code=code)


def seen(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def settings(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", unit, flags=re.M):
        found.setdefault(key, []).append(value)
    return found


def test_a_system_service_is_installed_and_its_sweep_runs(fleet: Fleet, machine: Path) -> None:
    """R-TREE-11, R-TREE-10: the unit has what adoption, limits and the privileged sweep need; what root runs is copied
    to root's own place, and works from there with the unit's environment and nothing else."""
    would = service(fleet, machine, "install", "--dry-run").stdout
    assert seen(machine) == {}
    said = service(fleet, machine, "install").stdout
    assert [line.removeprefix("would write ") for line in would.splitlines()] == [
        line.removeprefix("wrote ") for line in said.splitlines() if line.startswith("wrote ")
    ]
    assert "systemctl enable --now holdfast" in said
    unit = settings((machine / UNIT).read_text())
    expected = {
        "Delegate": "yes",
        "KillMode": "process",  # `mixed` would kill the keepers with the supervisor
        "OOMPolicy": "continue",
        "Restart": "on-failure",
        "TimeoutStartSec": "120",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "full",
        "User": ME,
        "ExecStartPre": f'-+"/{LIBEXEC}/holdfast-cleanup"',
    }
    assert {key: unit[key] for key in expected} == {key: [value] for key, value in expected.items()}
    assert "PrivateTmp" not in unit
    assert unit["ExecStart"][0].endswith(" -m holdfast up")
    modes = {name: mode & 0o7777 for name, (mode, _content) in seen(machine).items()}
    assert modes == {
        UNIT: 0o644,
        f"{LIBEXEC}/holdfast-cleanup": 0o755,
        f"{LIBEXEC}/root_cleanup.py": 0o644,
        f"{LIBEXEC}/delete_tree.py": 0o644,
        f"{LIBEXEC}/installed.json": 0o644,
    }

    entry = fleet.home / "workspaces" / ".trash" / "abcdefgh"
    entry.mkdir(parents=True)
    fleet.home.chmod(0o700)
    (entry.parent / "abcdefgh.trashed.json").write_text(json.dumps({"workspace": "abcdefgh"}))
    environment = dict(value.strip('"').split("=", 1) for value in unit["Environment"])
    assert environment["HOLDFAST_HOME"] == environment["HOLDFAST_CLEANUP_HOMES"] == str(fleet.home)
    done = subprocess.run(
        [machine / LIBEXEC / "holdfast-cleanup"], env=environment, capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout == f"holdfast-cleanup: swept=1 failed=0 skipped=0 roots={fleet.home}\n", done.stderr
    assert os.listdir(entry.parent) == []


def test_services_of_two_homes_and_two_replacements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another home's unit is neither replaced nor removed unasked; what was kept beside first is what comes back."""

    def made(home: str) -> api.SystemdService:
        monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / home))
        return api.resolve_service(system=True, name="holdfast", run_as=ME, root=str(tmp_path))

    unit = tmp_path / UNIT
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/bin/theirs\n")
    one, two = made("one"), made("two")
    api.install(one, dry_run=False, force=True)
    for act in (api.install, api.uninstall):
        with pytest.raises(Conflict, match="another home"):
            act(two, dry_run=False, force=False)
    unit.write_text(one.text + "# by hand\n")
    api.install(one, dry_run=False, force=True)
    assert "by hand" in unit.with_name("holdfast.service.before-holdfast-2").read_text()
    api.uninstall(one, dry_run=False, force=False)
    assert unit.read_text() == "[Service]\nExecStart=/bin/theirs\n"


def test_installing_again_changes_nothing_and_uninstalling_undoes_it(fleet: Fleet, machine: Path) -> None:
    """R-TREE-11: idempotent; a unit that is not ours or was changed is refused; --force keeps it, uninstall too."""
    (machine / "etc/systemd/system").mkdir(parents=True)
    (machine / UNIT).write_text("[Service]\nExecStart=/bin/theirs\n")
    before = seen(machine)
    assert "is not ours" in service(fleet, machine, "install", code=4).stderr
    assert "is not ours" in service(fleet, machine, "uninstall", code=4).stderr
    assert seen(machine) == before
    service(fleet, machine, "install", "--force")
    assert json.loads(service(fleet, machine, "show", "--json").stdout)["state"] == "same"
    once = seen(machine)
    assert "already in place" in service(fleet, machine, "install").stdout
    assert seen(machine) == once

    installed = (machine / UNIT).read_text()
    (machine / UNIT).write_text(installed.replace("RestartSec=10", "RestartSec=99"))
    assert "was changed by hand" in service(fleet, machine, "install", code=4).stderr
    assert "was changed by hand" in service(fleet, machine, "uninstall", code=4).stderr
    (machine / UNIT).write_text(installed)
    program = machine / LIBEXEC / "delete_tree.py"
    program.write_text(program.read_text() + "# mine\n")
    assert "was edited after Holdfast wrote it" in service(fleet, machine, "install", code=4).stderr
    service(fleet, machine, "install", "--force")
    assert seen(machine) == once

    # Another unit runs the same programs: they stay until it is gone too.
    service(fleet, machine, "install", "--name", "second")
    wants = machine / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "holdfast.service").symlink_to("/etc/systemd/system/holdfast.service")
    would = service(fleet, machine, "uninstall", "--dry-run").stdout
    assert "would restore" in would
    assert "restored" in service(fleet, machine, "uninstall").stdout
    assert not (wants / "holdfast.service").is_symlink()
    assert program.exists()
    service(fleet, machine, "uninstall", "--name", "second")
    assert seen(machine) == before
    assert not (machine / LIBEXEC).exists()
    service(fleet, machine, "uninstall", "--name", "second", code=3)


def test_a_users_own_unit(fleet: Fleet, machine: Path) -> None:
    """R-TREE-11: no root and no mount namespaces; the same promises. And words where no systemd runs."""
    service(fleet, machine, "install", "--user")
    folder = machine / str(fleet.root / "user/.config/systemd/user").lstrip("/")
    unit = settings((folder / "holdfast.service").read_text())
    assert "User" not in unit
    assert "ProtectSystem" not in unit
    assert (unit["Delegate"], unit["KillMode"], unit["OOMPolicy"]) == (["yes"], ["process"], ["continue"])
    assert unit["ExecStartPre"][0].startswith("-/bin/sh ")
    assert subprocess.run(["sh", "-c", unit["ExecStartPre"][0][1:]], check=False).returncode == 0
    service(fleet, machine, "uninstall", "--user")
    assert seen(machine) == {}
    fleet.cli("service", "install", "--user", "--run-as", ME, code=2)
    fleet.cli("service", "show", "--system", "--run-as", "no-such-user", code=3)
    fleet.cli("service", "show", "--user", "--name", "../evil", code=2)
    if not os.path.isdir("/run/systemd/system"):
        said = fleet.cli("service", "install", "--user", code=69).stderr
        assert "does not run systemd" in said
        assert "holdfast up --detach" in said


def test_systemd_takes_the_units_as_they_are(fleet: Fleet, machine: Path) -> None:
    """R-TREE-11: `systemd-analyze verify` has nothing to say about either unit, odd paths included."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NOT RUN: there is no systemd-analyze here (Debian: apt-get install systemd)")
    odd = fleet.root / 'a "home" with 100%h $odd\\name'
    for scope in ("--system", "--user"):
        fleet.env["HOLDFAST_HOME"] = str(odd)
        service(fleet, machine, "install", *(["--user"] if scope == "--user" else []))
        (path,) = machine.rglob("holdfast.service")
        assert "100%%h $odd\\\\name" in path.read_text()  # else systemd would put a directory there
        text = path.read_text().replace(f"/{LIBEXEC}", f"{machine}/{LIBEXEC}")  # else it misses the program, rightly
        for broken in (False, True):
            unit = fleet.root / f"try{scope}{broken}.service"
            unit.write_text(text.replace("KillMode=process", "KillMode=nonsense") if broken else text)
            done = subprocess.run(
                ["systemd-analyze", "verify", *(["--user"] if scope == "--user" else []), unit],
                capture_output=True,
                text=True,
                env={**os.environ, "XDG_RUNTIME_DIR": str(fleet.root)},
                check=False,
            )
            about = [line for line in done.stderr.splitlines() if unit.name in line]
            assert bool(about) is broken, done.stderr
        service(fleet, machine, "uninstall", *(["--user"] if scope == "--user" else []))
