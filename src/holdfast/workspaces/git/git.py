"""The only module that runs git.

An agent may have written anything into a work tree or a shared `.git`. So every call disables the settings that make
git run other programs, and drops inherited GIT_* variables. `hardening.py` disables all settings with a fixed name.
Filters have names of their own and are disabled here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence

from holdfast.base import faults
from holdfast.base.errors import Refused, UsageError, WorkspaceProblem
from holdfast.workspaces.git.hardening import RECEIVER, user_environment
from holdfast.workspaces.git.hardening import by_environment as by_environment
from holdfast.workspaces.git.hardening import environment as environment
from holdfast.workspaces.git.hardening import hardened_command as hardened_command
from holdfast.workspaces.port import CommandRunner

MayBeHeld = Callable[[str, Sequence[str]], bool]

OLDEST_GIT = (2, 31)
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


_USER_SCOPES = ("system", "global")  # the configuration scopes that an agent cannot write


# Content filters, commands that run when a checkout fetches missing objects, and the identity of the user.
_FILTERS_AND_IDENTITY = r"^(filter\..*|core\.sshcommand|remote\..*\.uploadpack|user\.(name|email))$"


def _harmless_command(key: str) -> str:
    """Return the harmless value for a command that the user's own settings do not define."""
    if key.startswith("filter."):
        return "false" if key.endswith(".required") else ""
    return "ssh" if key == "core.sshcommand" else "git-upload-pack"


class GitFailed(WorkspaceProblem):
    """A git command that should have worked failed. Its error output is kept."""

    def __init__(self, arguments: Sequence[str], code: int, err: str) -> None:
        super().__init__(f"git {' '.join(arguments[:3])} failed ({code}): {err.strip() or 'no message'}")
        self.code = code
        self.err = err
        # A killed git gave no answer to the question. A git that ended by itself would end the same way every time.
        self.answered = code >= 0 and code != TIMED_OUT
        self.passing = code in _KILLED


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
        code, out, err = await self._runner(
            hardened_command(arguments, settings),
            cwd=cwd,
            env=environment(env, arguments),
            timeout=git_timeout(timeout),
            stdin=stdin,
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
        """Return the answer of a command that exits with 0 for yes and 1 for no. Any other exit code raises."""
        try:
            await self.run(*arguments, cwd=cwd)
        except GitFailed as error:
            if error.code != 1:
                raise
            return False
        return True

    async def disable_filters(self, worktree: str, *, all_of_them: bool = False) -> dict[str, str]:
        """Return an environment that disables every content filter which the user has not defined.

        It also names the work tree, because `core.worktree` in a shared config would make git write to another one.
        A filter is a command. An agent can define one in the shared config, in the config of its worktree, or in a file
        that either includes. It cannot write to the user's global config (git-lfs). The settings are passed by
        environment, because a filter name may contain '='. `all_of_them`: disable the user's filters too.
        """
        return (await self.surroundings(worktree, all_of_them=all_of_them))[0]

    async def surroundings(self, worktree: str, *, all_of_them: bool = False) -> tuple[dict[str, str], set[str]]:
        """Return the environment of `filters_off`, and which of user.name and user.email are set, with one git call."""
        effective: dict[str, str] = {}  # the command lines of filters, and of transports
        trusted: dict[str, str] = {}
        identity: set[str] = set()
        for scope, key, value in await self._settings(worktree, _FILTERS_AND_IDENTITY):
            if key.startswith("user."):
                identity |= {key} if value else set()
                continue
            effective[key] = value
            if scope in _USER_SCOPES and not all_of_them:
                trusted[key] = value
        # Replace only keys that are set: an empty `process` would disable the user's own `clean` and `smudge`.
        settings = [(key, trusted.get(key, _harmless_command(key))) for key in sorted(effective)]
        return {"GIT_WORK_TREE": worktree, **by_environment(settings)}, identity

    async def _settings(self, worktree: str, pattern: str) -> list[tuple[str, str, str]]:
        """Return (scope, key, value) of all matching settings, from the weakest scope to the strongest."""
        words = ("config", "--show-scope", "--includes", "-z", "--get-regexp", pattern)
        try:
            listed = (await self.run(*words, cwd=worktree)).split("\0")
        except GitFailed as error:
            if not error.answered:
                raise  # unknown filters would run
            return []
        pairs = zip(listed[::2], listed[1::2], strict=False)
        return [(scope, *entry.partition("\n")[::2]) for scope, entry in pairs]


def run_sync(
    *arguments: str,
    cwd: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    alone: bool = False,
    most: int | None = None,
) -> tuple[int, str, str]:
    """Run git for the CLI, as one short synchronous call.

    `alone`: run git in its own session, so that it completes even if our process is ended. `most`: the maximal number
    of output bytes. A git that prints more is killed at that point and counts as successful.
    """
    faults.effect("git.call")
    line, surroundings = hardened_command(arguments), environment(env, arguments)
    try:
        if most is not None:
            return _run_truncated(line, cwd, surroundings, git_timeout(timeout), most)
        done = subprocess.run(
            line,
            cwd=cwd,
            env=surroundings,
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
    """Return the beginning of the output. It is meant for display: a whole diff can be larger than our memory."""
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


_PUSH_COMMANDS = (
    r"^(core\.(sshcommand|askpass|gitproxy)|credential\.(.*\.)?helper|gpg\.(.*\.)?(program|defaultkeycommand)|"
    r"remote\..*\.(receivepack|uploadpack|vcs))$"
)


def list_push_commands(cwd: str) -> list[str]:
    """Return the settings in the repository's own config that name a command which a push could run."""
    code, out, err = run_sync("config", "--show-scope", "--includes", "-z", "--get-regexp", _PUSH_COMMANDS, cwd=cwd)
    if code not in (0, 1):
        raise Refused(f"git could not read its settings: {err.strip()} Nothing was pushed.")
    words = out.split("\0")
    pairs = zip(words[::2], words[1::2], strict=False)
    return sorted({entry.partition("\n")[0] for scope, entry in pairs if scope in ("local", "worktree")})


def list_submodules(cwd: str) -> list[str]:
    """Return the submodule names from the checkout's config and from its `.gitmodules`."""
    places: list[tuple[str, ...]] = [()]
    if os.path.isfile(os.path.join(cwd, ".gitmodules")):
        places.append(("--file", ".gitmodules"))
    asked = ("-z", "--name-only", "--get-regexp", r"^submodule\..*\.")
    listed = [key for place in places for key in run_sync("config", *place, *asked, cwd=cwd)[1].split("\0")]
    return sorted({key.removeprefix("submodule.").rpartition(".")[0] for key in listed if key})


_READ_COMMANDS = r"^(filter\..*|diff\..*\.(command|textconv)|gpg\.(.*\.)?(program|defaultkeycommand))$"


def read_only_settings(cwd: str) -> list[tuple[str, str]]:
    """Return settings for commands that only read a checkout (status, diff, log).

    Every setting that names a command gets the value from the user's own settings, or a harmless value. An agent could
    have written other values into the shared config.
    """
    code, out, err = run_sync("config", "--show-scope", "--includes", "-z", "--get-regexp", _READ_COMMANDS, cwd=cwd)
    if code not in (0, 1):
        raise Refused(f"git could not read its settings: {err.strip()}")
    words = out.split("\0")
    found = [(scope, *entry.partition("\n")[::2]) for scope, entry in zip(words[::2], words[1::2], strict=False)]
    trusted = {key: value for scope, key, value in found if scope in _USER_SCOPES}
    return [(key, trusted.get(key, _harmless_value(key))) for key in sorted({key for _scope, key, _value in found})]


def _harmless_value(key: str) -> str:
    if key.startswith("filter."):
        return _harmless_command(key)
    return "cat" if key.endswith(".textconv") else "false"


def push(remote: str, branch: str, *, cwd: str) -> int:
    """Push as the user would, with the user's environment, credentials and terminal.

    A push to a repository on this machine runs no hooks there. An agent can replace a remote by a directory, and the
    hooks in that directory would be the agent's commands.
    """
    faults.effect("git.push")
    refspec = f"refs/heads/{branch}:refs/heads/{branch}"
    urls = run_sync("remote", "get-url", "--push", "--all", "--", remote, cwd=cwd)[1].splitlines()
    receiver = ["--receive-pack", RECEIVER] if any(map(_is_local, urls)) else []
    line = ["git", "push", *receiver, "--end-of-options", remote, refspec]
    return subprocess.run(line, cwd=cwd, env=user_environment(), check=False).returncode


def _is_local(url: str) -> bool:
    """True if the URL is a local path by git's rule: no colon before the first slash."""
    return url.startswith("file://") or ("://" not in url and ":" not in url.partition("/")[0])


def version() -> tuple[int, ...]:
    _code, out, _err = run_sync("version", cwd="/")
    words = out.split()
    numbers = words[2].split(".") if len(words) > 2 else []
    return tuple(int(number) for number in numbers if number.isdecimal() and number.isascii())


def refuse_old_git() -> None:
    """Raise UsageError if git is too old, before work is queued or started that git could not carry out."""
    found = version()
    if found < OLDEST_GIT:
        shown = f"is {'.'.join(map(str, found))}" if found else "does not report its version"
        needed = ".".join(map(str, OLDEST_GIT))
        raise UsageError(f"The git in PATH {shown}; Holdfast needs {needed} or newer. Upgrade it, then try again.")
