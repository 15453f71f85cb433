"""Holdfast as a systemd service: its files, their installation and their removal.

A file that is not ours, or that a person changed, is neither overwritten nor removed. With `force` the file is renamed,
and uninstalling restores it. `root` is another directory to work below, as for `systemctl --root`.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator

from holdfast.api.home.systemd_units import Unit, compare_unit, render_unit
from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, NotFound, Refused, Unavailable, UsageError
from holdfast.base.files import listed
from holdfast.base.home import home_directory
from holdfast.workspaces.removal import delete_tree

PROGRAMS = ("holdfast-cleanup", "root_cleanup.py", "delete_tree.py")
FORMER_PROGRAMS = ("rootsweep.py", "deleter.py")  # their names until 0.1: a service that was installed then has them
LIBEXEC = "/usr/local/libexec/holdfast"  # owned by root: root must not run a file that a user can write
MANIFEST = "installed.json"  # in the same directory: the checksum of each program, as it was installed
SYSTEM_UNITS = "/etc/systemd/system"
ASIDE = ".before-holdfast"
_NOT_AS_WRITTEN = {
    "foreign": "is not ours",
    "other": "is the service of another home",
    "changed": "was changed by hand",
}
_SOURCE = os.path.dirname(delete_tree.__file__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemdService:
    """A service, and the files that `install` would write."""

    system: bool
    root: str  # "" is this machine
    unit: Unit
    unit_file: str
    text: str

    @property
    def systemctl(self) -> str:
        return "sudo systemctl" if self.system else "systemctl --user"

    def path(self, path: str) -> str:
        return os.path.normpath(self.root + path) if self.root else path

    def state(self) -> str:
        return compare_unit(_read(self.path(self.unit_file)), self.text)


def resolve_service(*, system: bool, name: str, run_as: str | None, root: str | None) -> SystemdService:
    """Return the service of this user or, as a system service, of the user `run_as`."""
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise UsageError(f"'{name}' cannot be a unit's name. Use only letters, digits, - and _.")
    if not system and run_as is not None:
        raise UsageError("--run-as belongs to a system service (--system).")
    account = _account(run_as) if system else None
    home = _home_of(account) if account is not None else os.path.realpath(home_directory())
    if ":" in home:
        raise UsageError(f"The home {home} has a colon in its path, which separates homes in a unit.")
    python = sys.executable
    unit = Unit(
        name=name,
        user=account.pw_name if account is not None else None,
        home=home,
        python=python,
        path=_path_for(account, python),
        cleanup=f"{LIBEXEC if system else _SOURCE}/{PROGRAMS[0]}",
        uids=_uids(account.pw_uid if account is not None else os.getuid()),
    )
    folder = SYSTEM_UNITS if system else os.path.join(_user_config(), "systemd", "user")
    below = os.path.abspath(root) if root else ""
    return SystemdService(
        system=system, root=below, unit=unit, unit_file=f"{folder}/{name}.service", text=render_unit(unit)
    )


# -- install -----------------------------------------------------------------------------------------------------------


def install(wanted: SystemdService, *, dry_run: bool, force: bool) -> list[str]:
    """Install the service. Return a line for each file that was (or would be) written: no line if everything is in
    place."""
    _refuse_without_systemd(wanted)
    if wanted.system and not wanted.root and not dry_run:
        _refuse_unsafe(LIBEXEC)
    plan = [*_programs_to_write(wanted, force), *_unit_to_write(wanted, force)]
    if dry_run:
        return [f"would write {path}" for path, _content, _mode in plan]
    for path, content, mode in plan:
        _write(path, content, mode)
    if plan:
        _reload(wanted)
    return [f"wrote {path}" for path, _content, _mode in plan]


def _unit_to_write(wanted: SystemdService, force: bool) -> Iterator[tuple[str, bytes, int]]:
    path, state = wanted.path(wanted.unit_file), wanted.state()
    if state == "same":
        return
    if state in _NOT_AS_WRITTEN and not force:
        raise Conflict(
            f"{path} {_NOT_AS_WRITTEN[state]}; it was left as it is. Look at the difference with `holdfast service "
            f"show`, put your own settings into a drop-in (`{wanted.systemctl} edit {wanted.unit.name}`), use another "
            "--name, or replace it with --force: the old file is kept, and `uninstall` restores it."
        )
    if state in _NOT_AS_WRITTEN:
        yield _free_aside_name(path + ASIDE), (_read(path) or "").encode(errors="surrogateescape"), 0o644
    yield path, wanted.text.encode(), 0o644


def _free_aside_name(path: str) -> str:
    """Return a free name for a file that is set aside. A file that was set aside earlier, and will be restored, is not
    overwritten."""
    names = (path if number == 1 else f"{path}-{number}" for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))


def _programs_to_write(wanted: SystemdService, force: bool) -> Iterator[tuple[str, bytes, int]]:
    """Yield the programs that root runs, for a directory that only root can write. Nothing is yielded for a user's own
    unit: it runs the programs from Holdfast's own files, because they give it no further rights."""
    if not wanted.system:
        return
    folder = wanted.path(LIBEXEC)
    sums = _manifest(folder)
    contents = {name: _bytes(os.path.join(_SOURCE, name)) for name in PROGRAMS}
    former = {name: sums[name] for name in FORMER_PROGRAMS if name in sums}
    fresh = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()} | former
    written = False
    for name, content in contents.items():
        path = os.path.join(folder, name)
        found = _bytes(path) if os.path.lexists(path) else None
        if found == content:
            continue
        if found is not None and hashlib.sha256(found).hexdigest() != sums.get(name) and not force:
            raise Conflict(f"{path} was edited after Holdfast wrote it, so it was left as it is. --force replaces it.")
        written = True
        yield path, content, 0o755 if name == PROGRAMS[0] else 0o644
    if written or sums != fresh:
        yield os.path.join(folder, MANIFEST), json.dumps(fresh, indent=1).encode() + b"\n", 0o644


# -- uninstall ---------------------------------------------------------------------------------------------------------


def uninstall(wanted: SystemdService, *, dry_run: bool, force: bool) -> list[str]:
    """Restore the state before the installation: our files are removed, files that were set aside come back. Homes are
    not touched."""
    path, state = wanted.path(wanted.unit_file), wanted.state()
    if state in _NOT_AS_WRITTEN and not (state == "changed" and force):
        raise Conflict(
            f"{path} {_NOT_AS_WRITTEN[state]}; it was left as it is."
            + (" --force removes it." if state == "changed" else "")
        )
    if state == "absent" and not os.path.lexists(path + ASIDE):
        raise NotFound(f"There is no {path}; nothing was changed.")
    _refuse_active(wanted)
    gone = [*_links_to(wanted), *([path] if state != "absent" else [])]
    back = os.path.lexists(path + ASIDE)
    folder = wanted.path(LIBEXEC)
    programs = _programs_to_remove(wanted, folder) if wanted.system else []
    if not dry_run:
        for name in gone:
            faults.effect("service.remove")
            os.unlink(name)
        if back:
            faults.effect("service.bring_back")
            os.rename(path + ASIDE, path)
        for name in programs:
            faults.effect("service.remove_program")
            os.unlink(name)
        with contextlib.suppress(OSError):
            faults.effect("service.rmdir")
            os.rmdir(folder)
        _reload(wanted)
    word = "would remove" if dry_run else "removed"
    lines = [f"{word} {name}" for name in (*gone, *programs)]
    return [*lines, *([f"{'would restore' if dry_run else 'restored'} {path}"] if back else [])]


def _programs_to_remove(wanted: SystemdService, folder: str) -> list[str]:
    """Return our programs, except those that were changed. Empty if another unit runs them."""
    units = wanted.path(SYSTEM_UNITS)
    for name in listed(units):
        other = os.path.join(units, name)
        if other != wanted.path(wanted.unit_file) and os.path.isfile(other) and LIBEXEC in (_read(other) or ""):
            return []
    sums = _manifest(folder)
    ours = [
        os.path.join(folder, name)
        for name in (*PROGRAMS, *FORMER_PROGRAMS)
        if os.path.isfile(os.path.join(folder, name))
        and hashlib.sha256(_bytes(os.path.join(folder, name))).hexdigest() == sums.get(name)
    ]
    manifest = os.path.join(folder, MANIFEST)
    return [*ours, *([manifest] if os.path.isfile(manifest) else [])]


def _links_to(wanted: SystemdService) -> list[str]:
    """Return the links that `systemctl enable` made."""
    folder = wanted.path(os.path.dirname(wanted.unit_file))
    name = os.path.basename(wanted.unit_file)
    links = [os.path.join(folder, wants, name) for wants in listed(folder) if wants.endswith(".wants")]
    return [link for link in links if os.path.islink(link)]


# -- the machine -------------------------------------------------------------------------------------------------------


def has_systemd() -> bool:
    return os.path.isdir("/run/systemd/system")


def _refuse_without_systemd(wanted: SystemdService) -> None:
    if wanted.root or has_systemd():
        return
    raise Unavailable(
        "This machine does not run systemd (there is no /run/systemd/system); nothing was changed. `holdfast up "
        "--detach` starts a supervisor without it. Call it from an init script or from cron's @reboot. `holdfast "
        "service show` prints the unit, --root DIR writes it for another machine."
    )


def _refuse_unsafe(folder: str) -> None:
    """Raise unless only root can write every directory on the path: other writers could have root run anything."""
    if os.geteuid() != 0:
        raise Refused(
            "A system service is installed by root. Type `sudo "
            f"{sys.executable} -m holdfast service install --system`, or leave --system out to install one for your "
            f"user."
        )
    while True:
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(folder)
            if found.st_uid != 0 or (found.st_mode & 0o022 and not os.path.islink(folder)):
                raise Refused(
                    f"{folder} can be written by users other than root, and root would run files from it. "
                    f"Nothing was changed. Type `chown root {folder}; chmod go-w {folder}` first."
                )
        if folder == "/":
            return
        folder = os.path.dirname(folder)


def _refuse_active(wanted: SystemdService) -> None:
    if wanted.root or not has_systemd():
        return
    if _systemctl(wanted, "is-active", wanted.unit.name) in ("active", "activating", "reloading", "deactivating"):
        raise Conflict(
            f"The service runs; nothing was changed. Stop it first with "
            f"`{wanted.systemctl} disable --now {wanted.unit.name}`: agents get their grace, their tasks stay queued."
        )


def _reload(wanted: SystemdService) -> None:
    if not wanted.root and has_systemd():
        _systemctl(wanted, "daemon-reload")


def _systemctl(wanted: SystemdService, *words: str) -> str:
    scope = [] if wanted.system else ["--user"]
    faults.effect("service.systemctl")
    done = subprocess.run(["systemctl", *scope, *words], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip()


def _account(run_as: str | None) -> pwd.struct_passwd:
    name = run_as or os.environ.get("SUDO_USER") or (pwd.getpwuid(os.getuid()).pw_name if os.getuid() else "")
    if not name:
        raise UsageError("Which user owns the agents? Give --run-as USER (root only if you mean it).")
    try:
        return pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise NotFound(f"There is no user '{name}' on this machine.") from None


def _home_of(account: pwd.struct_passwd) -> str:
    named = os.environ.get("HOLDFAST_HOME")
    home = os.path.realpath(home_directory() if named else os.path.join(account.pw_dir, ".local/state/holdfast"))
    if os.path.isdir(home) and os.stat(home).st_uid != account.pw_uid:
        raise Refused(f"The home {home} does not belong to {account.pw_name}; nothing was changed. Set HOLDFAST_HOME.")
    return home


def _path_for(account: pwd.struct_passwd | None, python: str) -> str:
    if account is None:
        return os.environ.get("PATH") or os.defpath
    folders = [os.path.dirname(python), os.path.join(account.pw_dir, ".local/bin")]
    return ":".join([*folders, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])


def _uids(uid: int) -> str:
    """Return the user's id, and the ids that the user may give to containers."""
    with contextlib.suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
        words = [str(uid)]
        for line in (_read("/etc/subuid") or "").splitlines():
            owner, _, rest = line.partition(":")
            first, _, count = rest.partition(":")
            if owner in (name, str(uid)) and first.isdigit() and count.isdigit() and int(count):
                words.append(f"{first}-{int(first) + int(count) - 1}")
        return " ".join(words)
    return str(uid)


def _user_config() -> str:
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    return chosen if os.path.isabs(chosen) else os.path.join(os.path.expanduser("~"), ".config")


# -- files -------------------------------------------------------------------------------------------------------------


def _write(path: str, content: bytes, mode: int) -> None:
    """Write the file whole or not at all. Never writes through a link."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    fresh = f"{path}.new-{os.getpid()}"
    try:
        faults.effect("service.write")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.rename(fresh, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise Unavailable(f"{path} could not be written: {error.strerror}. Give the command again.") from error


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _manifest(folder: str) -> dict[str, str]:
    try:
        sums = json.loads(_read(os.path.join(folder, MANIFEST)) or "{}")
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in sums.items()} if isinstance(sums, dict) else {}
