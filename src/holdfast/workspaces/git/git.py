"""The only module that runs git.

An agent may have written anything into a work tree or a shared `.git`. So no call reads the configuration of a
repository: `config_view.py` puts ours in its place. `hardening.py` adds settings and the environment of every call.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Refused, UsageError, WorkspaceProblem
from holdfast.workspaces.git.config_view import (
    LIST_USER_SETTINGS,
    NO_CONFIG,
    ConfigView,
    ConfigViews,
    RepoLocation,
    locate,
    parse_user_settings,
)
from holdfast.workspaces.git.hardening import (
    CHECKOUT_PROTOCOLS,
    FOR_USERS,
    TRANSPORTS,
    by_environment,
    environment,
    find_subcommand,
    hardened_command,
    receiver,
    subcommand,
    user_environment,
)
from holdfast.workspaces.port import CommandRunner

MayBeHeld = Callable[[str, Sequence[str]], bool]

TIMED_OUT = 124  # the exit code that a CommandRunner returns for a helper that passed its deadline
_KILLED = (TIMED_OUT, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)


def git_timeout(usual: float) -> float:
    """Return the deadline of one git call: HOLDFAST_GIT_TIMEOUT, in seconds, or `usual` if that is not set.

    A large repository may need more time than usual, and a test less.
    """
    try:
        return max(0.01, float(os.environ["HOLDFAST_GIT_TIMEOUT"]))
    except (KeyError, ValueError):
        return usual


_VIEWS = ConfigViews(FOR_USERS)
_WITHOUT_REPOSITORY = frozenset(["init", "clone"])


@dataclass(frozen=True, kw_only=True, slots=True)
class GitCall:
    """One call of git. If `view` is set, the user's settings have to be listed first and kept in it."""

    line: list[str]
    cwd: str
    env: dict[str, str]
    view: ConfigView | None = None


def prepare_call(
    arguments: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None, settings: Sequence[str] = ()
) -> GitCall:
    """Return a call under our own configuration: without the repository's, and with only the safe part of the
    user's."""
    extra = dict(env or {})
    line = hardened_command(_with_upload_pack(arguments), settings)
    surroundings = environment(extra, arguments)
    if subcommand(arguments) in _WITHOUT_REPOSITORY or (cwd == "/" and "GIT_DIR" not in extra):
        return GitCall(line=line, cwd="/", env={**NO_CONFIG, **surroundings})
    location = locate(cwd, extra.get("GIT_DIR"))
    view = _VIEWS.of(location)
    ours = {**view.user_environment(), "GIT_COMMON_DIR": view.common_dir}
    if location is not None and "GIT_DIR" not in extra:
        ours["GIT_CEILING_DIRECTORIES"] = os.path.dirname(location.top)  # never a repository further up
    wants_user = "GIT_CONFIG_GLOBAL" not in extra and view.user is None
    return GitCall(line=line, cwd=cwd, env={**ours, **surroundings}, view=view if wants_user else None)


def _with_upload_pack(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a call that reads another repository, so that its git has our configuration too.

    The words after the source are refs, whose names an agent can choose. git would also accept an option there, for
    example another `--upload-pack`, which is a command. So a word after the source that begins with `-` is refused.
    """
    words, at = list(arguments), find_subcommand(arguments)
    if subcommand(arguments) not in TRANSPORTS:
        return words
    source = next((word for word in words[at + 1 :] if os.path.isabs(word) and os.path.isdir(word)), None)
    if source is None:
        return words
    for word in words[words.index(source, at + 1) + 1 :]:
        if word.startswith("-"):
            raise WorkspaceProblem(f"{source} names a ref that begins with '-', so nothing was fetched from it")
    return [*words[: at + 1], f"--upload-pack={_VIEWS.of(_locate_url('/', source)).upload_pack}", *words[at + 1 :]]


def _question(view: ConfigView) -> tuple[list[str], dict[str, str]]:
    """Return command line and environment of the call that lists the user's settings. `view` has the repository's."""
    return ["git", *LIST_USER_SETTINGS], {**environment(), "GIT_COMMON_DIR": view.common_dir}


class GitFailed(WorkspaceProblem):
    """A git command that should have worked failed. Its error output is kept."""

    def __init__(self, arguments: Sequence[str], code: int, err: str) -> None:
        super().__init__(f"git {' '.join(arguments[:3])} failed ({code}): {err.strip() or 'no message'}")
        self.code = code
        self.err = err
        # A killed git gave no answer to the question. A git that ended by itself would end the same way every time.
        self.answered = code >= 0 and code != TIMED_OUT
        # A config file is locked for an instant, for example by a replaced supervisor that makes the same clone.
        self.passing = code in _KILLED or "could not lock config file" in err


class Git:
    """Git for the supervisor: each call has its own process group and a deadline, and is killed when cancelled."""

    def __init__(self, runner: CommandRunner, may_be_held: MayBeHeld = lambda _lock, _folders: False) -> None:
        """`may_be_held(lock, folders)`: True if a git of another user or program in `folders` could hold `lock`."""
        self._runner = runner
        self.may_be_held = may_be_held

    async def run(
        self,
        *arguments: str,
        cwd: str,
        env: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
        stdin: bytes = b"",
        timeout: float = 300.0,
    ) -> str:
        code, out, err = await self.ask(*arguments, cwd=cwd, env=env, settings=settings, stdin=stdin, timeout=timeout)
        if code != 0:
            raise GitFailed(arguments, code, err)
        return out

    async def ask(
        self,
        *arguments: str,
        cwd: str,
        env: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
        stdin: bytes = b"",
        timeout: float = 300.0,
    ) -> tuple[int, str, str]:
        """Return exit code, output and error output, for a command whose failure is an answer too."""
        call = prepare_call(arguments, cwd=cwd, env=env, settings=settings)
        if call.view is not None:
            await self._list_user_settings(call.view, call.cwd)
        code, out, err = await self._runner(
            call.line, cwd=call.cwd, env=call.env, timeout=git_timeout(timeout), stdin=stdin
        )
        return code, out.decode(errors="surrogateescape"), err.decode(errors="replace")

    async def ok(self, *arguments: str, cwd: str, env: Mapping[str, str] | None = None) -> bool:
        """True if the command exits with 0. A command that was killed gave no answer, so its error is raised."""
        try:
            await self.run(*arguments, cwd=cwd, env=env)
        except GitFailed as error:
            if not error.answered:
                raise
            return False
        return True

    async def is_true(self, *arguments: str, cwd: str) -> bool:
        """True if the command exits with 0, False if it exits with 1. Any other exit code raises GitFailed."""
        try:
            await self.run(*arguments, cwd=cwd)
        except GitFailed as error:
            if error.code != 1:
                raise
            return False
        return True

    async def _list_user_settings(self, view: ConfigView, cwd: str) -> None:
        line, env = _question(view)
        code, out, err = await self._runner(line, cwd=cwd, env=env, timeout=git_timeout(60.0), stdin=b"")
        if code != 0:
            raise GitFailed(LIST_USER_SETTINGS, code, err.decode(errors="replace"))
        view.keep_user(parse_user_settings(out.decode(errors="surrogateescape")))

    async def _view_of(self, cwd: str) -> ConfigView:
        view = _VIEWS.of(locate(cwd))
        if view.user is None:
            await self._list_user_settings(view, cwd)
        return view

    async def disable_filters(self, worktree: str, *, all_of_them: bool = False) -> dict[str, str]:
        """Return an environment with the content filters and merge drivers of the user's own configuration only.

        It also names the work tree. `all_of_them`: the user's filters are left out too.
        """
        view = await self._view_of(worktree)
        return {"GIT_WORK_TREE": worktree, **view.user_environment(commands=not all_of_them)}

    async def checkout_environment(self, worktree: str) -> dict[str, str]:
        """Return an environment for a checkout, which may fetch the objects that a partial clone lacks.

        A remote on this machine is read with our configuration too: its own could name a command.
        """
        view = await self._view_of(worktree)
        local = [
            (key.removesuffix(".url") + ".uploadpack", _VIEWS.of(_locate_url(worktree, url)).upload_pack)
            for key, url in view.local
            if key.startswith("remote.") and key.endswith(".url") and _is_local(url)
        ]
        env = {"GIT_WORK_TREE": worktree, **view.user_environment(commands=True), **by_environment(local)}
        return {**env, "GIT_NO_LAZY_FETCH": "0", "GIT_ALLOW_PROTOCOL": CHECKOUT_PROTOCOLS}

    async def setting(self, key: str, cwd: str) -> str | None:
        """Return the value of a setting that our allow-list has: that of the repository, else that of the user."""
        return (await self._view_of(cwd)).value(key)


def view_of_sync(cwd: str) -> ConfigView:
    """Return the config view of the repository in `cwd`, with the user's settings. For the CLI."""
    view = _VIEWS.of(locate(cwd))
    if view.user is None:
        _list_user_settings_sync(view, cwd)
    return view


def _list_user_settings_sync(view: ConfigView, cwd: str) -> None:
    line, env = _question(view)
    faults.effect("git.settings")
    done = subprocess.run(line, cwd=cwd, env=env, capture_output=True, timeout=git_timeout(60.0), check=False)
    if done.returncode != 0:
        raise Refused(f"git could not read your settings: {done.stderr.decode(errors='replace').strip()}")
    view.keep_user(parse_user_settings(done.stdout.decode(errors="surrogateescape")))


def run_sync(
    *arguments: str,
    cwd: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    alone: bool = False,
    most: int | None = None,
    stdin: bytes | None = None,
) -> tuple[int, str, str]:
    """Run git for the CLI, as one short synchronous call.

    `alone`: run git in its own session, so that it completes even if our process is ended. `most`: the maximal number
    of output bytes. A git that prints more is killed at that point and counts as successful.
    """
    faults.effect("git.call")
    try:
        call = prepare_call(arguments, cwd=cwd, env=env)
        if call.view is not None:
            _list_user_settings_sync(call.view, call.cwd)
        if most is not None:
            return _run_truncated(call.line, call.cwd, call.env, git_timeout(timeout), most)
        done = subprocess.run(
            call.line,
            cwd=call.cwd,
            env=call.env,
            input=stdin,
            capture_output=True,
            timeout=git_timeout(timeout),
            check=False,
            start_new_session=alone,
        )
    except subprocess.TimeoutExpired as error:
        raise Refused(
            f"git has not answered for {git_timeout(timeout):g} s in {cwd} and was ended: git {' '.join(arguments[:3])}"
        ) from error
    except OSError as error:
        if error.filename == cwd:
            raise UsageError(f"The directory {cwd} cannot be entered: {error.strerror}.") from error
        raise UsageError(
            f"git could not be started ({error.strerror}): it is not installed, or not in PATH. "
            "Install it, e.g.: sudo apt-get install git"
        ) from error
    return done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="replace")


def _run_truncated(
    line: list[str], cwd: str, env: Mapping[str, str], timeout: float, most: int
) -> tuple[int, str, str]:
    """Run git and return its exit code, the first `most` bytes of its output, and its errors. For display only."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            line, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        ) as git,
    ):
        assert git.stdout is not None
        too_late = threading.Timer(timeout, git.kill)
        too_late.daemon = True
        too_late.start()
        try:
            out = git.stdout.read(most)
            is_cut = len(out) == most and git.stdout.read(1) != b""
            if is_cut:
                git.kill()
            code = git.wait()
        finally:
            too_late.cancel()
            git.kill()
        if code == -signal.SIGKILL and not is_cut:
            raise subprocess.TimeoutExpired(line, timeout)
        errors.seek(0)
        return 0 if is_cut else code, out.decode(errors="surrogateescape"), errors.read(4096).decode(errors="replace")


_OF_A_PUSH = re.compile(
    r"core\.(sshcommand|askpass|gitproxy)|(credential|https?|url|gpg)\..*|"
    r"remote\..*\.(receivepack|uploadpack|vcs|proxy.*|serveroption)"
)


def list_push_settings(cwd: str) -> list[str]:
    """Return the settings in the repository's own config that a push would use, and that we do not put in force."""
    location = locate(cwd)
    if location is None:
        return []
    found: set[str] = set()
    for name in (location.common_dir + "/config", location.git_dir + "/config.worktree"):
        if os.path.isfile(name):
            found |= {key for key, _value in read_config_file(name)}
    return sorted(key for key in found if _OF_A_PUSH.fullmatch(key))


def read_config_file(path: str) -> list[tuple[str, str]]:
    """Return (key, value) of a configuration file and what it includes. The file is read, and not put in force."""
    code, out, err = run_sync("config", "--file", path, "--includes", "-z", "--list", cwd="/", timeout=10)
    if code != 0:
        raise Refused(f"git could not read {path}: {err.strip()} Nothing was changed.")
    entries = (entry.partition("\n") for entry in out.split("\0") if entry)
    return [(key, value if separator else "true") for key, separator, value in entries]


def change_config_file(cwd: str, *arguments: str) -> None:
    """Change the shared configuration file of the repository in `cwd`, as `git config` with these arguments does."""
    location = locate(cwd)
    if location is not None:
        run_sync("config", "--file", os.path.join(location.common_dir, "config"), *arguments, cwd="/")


def list_submodules(cwd: str) -> list[str]:
    """Return the submodule names from the checkout's config and from its `.gitmodules`."""
    places: list[tuple[str, ...]] = [()]
    if os.path.isfile(os.path.join(cwd, ".gitmodules")):
        places.append(("--file", ".gitmodules"))
    asked = ("-z", "--name-only", "--get-regexp", r"^submodule\..*\.")
    listed = [key for place in places for key in run_sync("config", *place, *asked, cwd=cwd)[1].split("\0")]
    return sorted({key.removeprefix("submodule.").rpartition(".")[0] for key in listed if key})


def push(remote: str, branch: str, *, cwd: str) -> int:
    """Push as the user would, with the user's environment, credentials and terminal.

    A push to a repository on this machine runs no hooks there. An agent can replace a remote by a directory, and the
    hooks in that directory would be the agent's commands.
    """
    faults.effect("git.push")
    view = view_of_sync(cwd)
    refspec = f"refs/heads/{branch}:refs/heads/{branch}"
    local = next((url for url in list_push_urls(remote, cwd=cwd) if _is_local(url)), None)
    options = [] if local is None else ["--receive-pack", receiver(_VIEWS.of(_locate_url(cwd, local)).common_dir)]
    line = ["git", "--no-pager", "push", *options, "--end-of-options", remote, refspec]
    return subprocess.run(
        line, cwd=cwd, env=user_environment(view.common_dir, (), view.user_hooks), check=False
    ).returncode


def list_push_urls(remote: str, *, cwd: str) -> list[str]:
    """Return where a push goes, with the user's own rewriting rules."""
    env = view_of_sync(cwd).user_environment(commands=True)
    return run_sync("remote", "get-url", "--push", "--all", "--", remote, cwd=cwd, env=env)[1].splitlines()


def _locate_url(cwd: str, url: str) -> RepoLocation | None:
    """Return the repository on this machine that a URL or a path names."""
    path = os.path.join(cwd, url.removeprefix("file://"))
    return locate(path) if os.path.lexists(os.path.join(path, ".git")) else locate("/", path)


def users_own_environment(cwd: str) -> dict[str, str]:
    """Return the environment for a program that calls git on the user's behalf in a checkout."""
    view = view_of_sync(cwd)
    return user_environment(view.common_dir, list_submodules(cwd), view.user_hooks)


def _is_local(url: str) -> bool:
    """True if the URL is a local path by git's rule: no colon before the first slash."""
    return url.startswith("file://") or ("://" not in url and ":" not in url.partition("/")[0])
