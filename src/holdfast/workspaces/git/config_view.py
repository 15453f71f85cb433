"""Our own configuration for every git call, in place of the repository's and the user's.

A git configuration names commands: filters, helpers, pagers, and since git 2.54 hooks too. An agent can write the
configuration of its clone, and in a worktree that of the user's repository. So git never reads a repository's own
configuration when we call it. It reads a *config view*: a directory in our home with a `config` of ours, and with links
to everything else in the repository's common directory. GIT_COMMON_DIR names the view, so git takes refs, objects and
locks from the repository, and settings from us (ADR 0036).

The view's `config` has the keys of an allow-list only. The user's own settings (system and global) are filtered by an
allow-list too. They are listed by one call of git, and kept in the view until one of their files changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from holdfast.base import faults
from holdfast.base.errors import Unavailable
from holdfast.base.files import open_regular_file
from holdfast.base.home import ensure_home, home_directory
from holdfast.workspaces.git.config_file import (
    COMMANDS_FROM_USER,
    FROM_USER,
    Setting,
    allow,
    parse_config,
    render_config,
)

FOLDER = "git-config"  # in the home
NOWHERE = "/dev/null/no-repository"  # as a common directory: git finds no repository
LIST_USER_SETTINGS = ("config", "--list", "--includes", "--show-scope", "--show-origin", "-z")
NO_CONFIG = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}

# Everything in a common directory that git may use, except `config` and `hooks`. A link may lead nowhere.
_LINKS = ("info", "lfs", "logs", "objects", "packed-refs", "refs", "reftable", "shallow", "worktrees")
_NO_FETCH = "GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none"  # a repository that is read asks no other one
_WHOSE = "of"  # the link that says whose view it is: a view of something that is gone is deleted
_FOR_ALL = os.path.join(os.pardir, "user.json")  # beside the views: the user's settings that no condition limits
_LARGEST = 1 << 20  # bytes of a configuration file
_ONBRANCH_AGE = 5.0  # seconds for which settings that depend on the branch are kept


class RepoLocation(NamedTuple):
    """A repository on disk. `top` is the directory in which it was found: a checkout, or a git directory."""

    top: str
    git_dir: str
    common_dir: str


def locate(cwd: str, git_dir: str | None = None) -> RepoLocation | None:
    """Return the repository that git would use in `cwd`, or with `git_dir` as its GIT_DIR. None: there is no
    repository.

    The files may be an agent's, so only plain files are read.
    """
    place = os.path.realpath(os.path.join(cwd, git_dir) if git_dir else cwd)
    if git_dir:
        return RepoLocation(place, place, _common_dir(place)) if _is_git_dir(place) else None
    while True:
        link = os.path.join(place, ".git")
        found = link if _is_git_dir(link) else _linked_git_dir(link)
        if found is None and _is_git_dir(place):
            found = place
        if found is not None:
            found = os.path.realpath(found)
            return RepoLocation(place, found, _common_dir(found))
        if os.path.lexists(link) or place == "/":
            return None  # a `.git` that is no repository: git would look for one in the parents
        place = os.path.dirname(place)


def find_other_work_tree(location: RepoLocation) -> str | None:
    """Return the directory that `core.worktree` names in the repository's own configuration. Our calls of git do not
    use that directory."""
    values = [value for path in _config_files(location) for key, value in parse_config(_read(path) or "")
              if key == "core.worktree"]  # fmt: skip
    return os.path.realpath(os.path.join(location.git_dir, values[-1])) if values else None


def _is_git_dir(path: str) -> bool:
    if not os.path.lexists(os.path.join(path, "HEAD")):
        return False
    common = _common_dir(path)
    return os.path.isdir(os.path.join(common, "objects")) and os.path.isdir(os.path.join(common, "refs"))


def _linked_git_dir(link: str) -> str | None:
    content = _read(link)
    if content is None or not content.startswith("gitdir: "):
        return None
    path = os.path.join(os.path.dirname(link), content.removeprefix("gitdir: ").rstrip("\r\n"))
    return path if _is_git_dir(path) else None


def _common_dir(git_dir: str) -> str:
    named = _read(os.path.join(git_dir, "commondir"))
    return os.path.realpath(os.path.join(git_dir, named.rstrip("\r\n"))) if named else os.path.realpath(git_dir)


def _read(path: str) -> str | None:
    """Return the text of a plain file, or None."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=open_regular_file) as file:
            return file.read(_LARGEST)
    except (OSError, ValueError):
        return None


@dataclass(kw_only=True, slots=True)
class GitUserSettings:
    """The user's own settings that a call may have, and the files that they came from."""

    settings: list[Setting] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)  # names of hooks that the user's configuration defines
    stamps: dict[str, list[int] | None] = field(default_factory=dict)  # file → inode, size and times
    until: float | None = None  # a moment after which they are listed again
    is_conditional: bool = False  # True: another repository may have other settings (includeIf)
    environment: list[str] = field(default_factory=lambda: _user_variables())

    def is_current(self) -> bool:
        if self.environment != _user_variables():
            return False
        if self.until is not None and not 0 <= self.until - time.time() <= _ONBRANCH_AGE:
            return False
        return bool(self.stamps) and all(stamp_of(path) == stamp for path, stamp in self.stamps.items())


def _user_variables() -> list[str]:
    """Return the variables that say where the user's configuration is."""
    return [os.environ.get(name, "") for name in ("HOME", "XDG_CONFIG_HOME")]


def parse_user_settings(listed: str) -> GitUserSettings:
    """Return the user's settings from the output of `LIST_USER_SETTINGS`, without those of a repository."""
    words = listed.split("\0")
    home = os.environ.get("HOME", "")
    xdg = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    files = {"/etc/gitconfig", os.path.join(home, ".gitconfig"), os.path.join(xdg, "git", "config")}
    found = GitUserSettings()
    for scope, origin, entry in zip(words[::3], words[1::3], words[2::3], strict=False):
        if scope not in ("system", "global"):
            continue
        path = origin.removeprefix("file:")
        key, separator, value = entry.partition("\n")
        files.add(path)
        if key == "include.path" or key.startswith("includeif."):
            files.add(os.path.join(os.path.dirname(path), os.path.expanduser(value)))
            found.is_conditional = found.is_conditional or key.startswith("includeif.")
            if key.startswith("includeif.onbranch:"):
                found.until = time.time() + _ONBRANCH_AGE
        elif key.startswith("hook."):
            found.hooks.append(key.removeprefix("hook.").rpartition(".")[0])
        else:
            found.settings.append((key, value if separator else "true"))
    found.settings = allow(found.settings, FROM_USER) + [
        (key, value)
        for key, value in allow(found.settings, COMMANDS_FROM_USER)
        if key != "http.proxy" or "@" not in value  # a password is not written down
    ]
    found.stamps = {path: stamp_of(path) for path in sorted(files)}
    return found


def stamp_of(path: str) -> list[int] | None:
    """Return a file's inode, size and times, which change whenever its content does. None: there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class ConfigView:
    """The view of one repository, as a directory in our home. Any process may make it or bring it up to date."""

    def __init__(self, path: str, location: RepoLocation | None, hardened: Sequence[Setting]) -> None:
        self.path = path
        self.local: list[Setting] = []  # what the repository's own configuration may say
        self._common_dir = None if location is None else location.common_dir
        self._sources = [] if location is None else _config_files(location)
        self._git_dir = location.git_dir if location is not None and len(self._sources) > 1 else self._common_dir
        self._hardened = hardened
        self._stamps: list[list[int] | None] | None = None
        self._head: str | None = None
        self._user: GitUserSettings | None = None

    def refresh(self) -> None:
        """Make the view, or bring its `config` and `HEAD` up to date. A current view costs a few calls of stat."""
        stamps = [stamp_of(path) for path in self._sources]
        if stamps != self._stamps or not os.path.isdir(self.path):
            self._make()
            self.local = [setting for path in self._sources for setting in allow(parse_config(_read(path) or ""))]
            self._write("config", render_config([*self.local, *self._hardened]))
            self._stamps = stamps
        head = None if self._common_dir is None else _read(os.path.join(self._common_dir, "HEAD"))
        if head is not None and head != self._head:  # `branch` and `worktree` look which branch the main checkout is on
            self._write("HEAD", head)
            self._head = head

    def _make(self) -> None:
        try:
            faults.effect("config_view.make")
            ensure_home(os.path.dirname(os.path.dirname(self.path)))
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            links = {} if self._common_dir is None else {name: os.path.join(self._common_dir, name) for name in _LINKS}
            links |= {_WHOSE: self._git_dir} if self._git_dir is not None else {}
            for name, target in links.items():
                with contextlib.suppress(FileExistsError):
                    faults.effect("config_view.link")
                    os.symlink(target, os.path.join(self.path, name))
        except OSError as error:
            raise Unavailable(f"The directory {self.path} cannot be used: {error.strerror}.") from error
        if self._common_dir is not None and not os.path.isdir(os.path.join(self._common_dir, "logs")):
            with contextlib.suppress(OSError):
                faults.effect("config_view.logs")
                os.mkdir(os.path.join(self._common_dir, "logs"))  # git could not make it through a link

    @property
    def user(self) -> GitUserSettings | None:
        """Return the user's settings if they are known and current. None: the caller has to ask git with
        `LIST_USER_SETTINGS`."""
        if self._user is None:
            self._user = self._read_user()
        elif not self._user.is_current():
            self._user = self._read_user()  # another process, or a view of this one, may have listed them since
        return self._user if self._user is not None and self._user.is_current() else None

    def keep_user(self, found: GitUserSettings) -> None:
        """Keep the user's settings for this repository, and for all others if they are the same everywhere."""
        self._user = found
        if not found.is_conditional:
            self._write(_FOR_ALL, json.dumps(asdict(found)))
        self._write("user.gitconfig", render_config(allow(found.settings, FROM_USER)))
        self._write("commands.gitconfig", render_config(found.settings))
        self._write("user.json", json.dumps(asdict(found)))

    def _read_user(self) -> GitUserSettings | None:
        for name in ("user.json", _FOR_ALL):
            try:
                found = GitUserSettings(**json.loads(_read(os.path.join(self.path, name)) or "null"))
                found.settings = [(key, value) for key, value in found.settings]
            except (ValueError, TypeError, KeyError):
                continue
            if found.is_current():
                self.keep_user(found)  # the other files may be older, or half lost in a power cut
                return found
        return None

    def _write(self, name: str, content: str) -> None:
        """Write a file of the view atomically, if its content differs. Several processes may do this."""
        target = os.path.join(self.path, name)
        if _read(target) == content:
            return
        aside = ""
        try:
            faults.effect("config_view.write")
            fd, aside = tempfile.mkstemp(prefix=f".{os.path.basename(name)}.", dir=os.path.dirname(target))
            with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(content)
            faults.effect("config_view.rename")
            os.rename(aside, target)
        except OSError as error:
            if aside:
                with contextlib.suppress(OSError):
                    os.unlink(aside)
            raise Unavailable(f"{target} cannot be written: {error.strerror}.") from error

    def value(self, key: str) -> str | None:
        """Return the value of an allowed key: that of the repository, else that of the user."""
        found = [value for name, value in (*(self._user.settings if self._user else ()), *self.local) if name == key]
        return found[-1] if found else None

    @property
    def user_hooks(self) -> list[str]:
        return self._user.hooks if self._user is not None else []

    @property
    def common_dir(self) -> str:
        """Return the value for GIT_COMMON_DIR: this view, or a path that does not exist if there is no repository."""
        return NOWHERE if self._common_dir is None else self.path

    def user_environment(self, *, commands: bool = False) -> dict[str, str]:
        """Return variables that put the user's allowed settings in force. `commands`: filters and merge drivers too."""
        name = "commands.gitconfig" if commands else "user.gitconfig"
        return {**NO_CONFIG, "GIT_CONFIG_GLOBAL": os.path.join(self.path, name)}

    @property
    def upload_pack(self) -> str:
        """Return the command with which another git reads this repository. That git has our configuration too."""
        return f"{_NO_FETCH} GIT_COMMON_DIR={shlex.quote(self.common_dir)} git-upload-pack"


def _config_files(location: RepoLocation) -> list[str]:
    """Return the files of a repository's own configuration: that of all worktrees, and that of this one."""
    shared = os.path.join(location.common_dir, "config")
    return [shared, os.path.join(location.git_dir, "config.worktree")] if _is_per_worktree(shared) else [shared]


def _is_per_worktree(path: str) -> bool:
    content = _read(path)
    if content is None or "worktreeconfig" not in content.lower():
        return False
    return dict(parse_config(content)).get("extensions.worktreeconfig", "").lower() in ("true", "yes", "on", "1")


class ConfigViews:
    """All views of this process. They are kept in memory, because each call of git needs one."""

    def __init__(self, hardened: Sequence[str]) -> None:
        self._hardened = [(key, value) for key, _, value in (setting.partition("=") for setting in hardened)]
        self._views: dict[str, ConfigView] = {}

    def of(self, location: RepoLocation | None) -> ConfigView:
        """Return the current view of a repository. None stands for no repository: that view has only the user's
        settings."""
        path = os.path.join(find_folder(), _view_name(location))
        view = self._views.get(path)
        if view is None:
            view = self._views[path] = ConfigView(path, location, self._hardened)
        view.refresh()
        return view


def find_folder() -> str:
    """Return the directory of all views."""
    return os.path.join(_find_home(), FOLDER)


def _find_home() -> str:
    """Return our home. Root, who looks at the home of another user, keeps its views in a home of its own."""
    home = home_directory()
    try:
        is_ours = os.stat(home).st_uid == os.geteuid()
    except OSError:
        return home
    return home if is_ours else os.path.join(os.path.expanduser("~"), ".local", "state", "holdfast")


def _view_name(location: RepoLocation | None) -> str:
    """Return the name of a view. All worktrees of a repository share one, unless each has a config of its own."""
    if location is None:
        return "no-repository"
    own = _is_per_worktree(os.path.join(location.common_dir, "config"))
    identity = f"{location.git_dir if own else ''}\0{location.common_dir}"
    return hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:24]


def drop_stale_views(home: str) -> None:
    """Delete the views of repositories that are gone."""
    folder = os.path.join(home, FOLDER)
    for path in _list_views(folder):
        whose = os.path.join(path, _WHOSE)
        if os.path.islink(whose) and not os.path.isdir(whose):
            for name in os.listdir(path):
                faults.effect("config_view.drop")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(path, name))
            with contextlib.suppress(OSError):
                os.rmdir(path)


def _list_views(folder: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        yield from sorted(entry.path for entry in found if entry.is_dir(follow_symlinks=False))
