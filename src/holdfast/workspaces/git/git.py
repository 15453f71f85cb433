"""The only module that runs git.

An agent may have written anything into a work tree or a shared `.git`: every call neutralises what would make git run
other programs (`hardening.py`; filters, which have names, here) and drops inherited GIT_*.
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
from holdfast.workspaces.git.hardening import RECEIVER, of_the_users
from holdfast.workspaces.git.hardening import by_environment as by_environment
from holdfast.workspaces.git.hardening import command as command
from holdfast.workspaces.git.hardening import environment as environment
from holdfast.workspaces.port import CommandRunner

MayBeHeld = Callable[[str, Sequence[str]], bool]

OLDEST = (2, 31)
TIMED_OUT = 124  # what a CommandRunner returns for a helper that it gave up
_KILLED = (TIMED_OUT, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)


def patience(usual: float) -> float:
    """How long one git may take: HOLDFAST_GIT_TIMEOUT, in seconds, where a repository needs more, or a test less."""
    try:
        return max(0.01, float(os.environ["HOLDFAST_GIT_TIMEOUT"]))
    except (KeyError, ValueError):
        return usual


_OF_THE_USER = ("system", "global")  # where an agent's settings are not


# Content filters, and what runs where a checkout fetches what it lacks; and who the user is.
_ASKED = r"^(filter\..*|core\.sshcommand|remote\..*\.uploadpack|user\.(name|email))$"


def _instead(key: str) -> str:
    """What a command becomes that the user's own settings do not have."""
    if key.startswith("filter."):
        return "false" if key.endswith(".required") else ""
    return "ssh" if key == "core.sshcommand" else "git-upload-pack"


class GitFailed(WorkspaceProblem):
    """A git command that should have worked did not. Its words are kept."""

    def __init__(self, arguments: Sequence[str], code: int, err: str) -> None:
        super().__init__(f"git {' '.join(arguments[:3])} failed ({code}): {err.strip() or 'no message'}")
        self.code = code
        self.err = err
        # Killed or given up, it has said nothing about its question; what it does by itself it does every time.
        self.answered = code >= 0 and code != TIMED_OUT
        self.passing = code in _KILLED


class Git:
    """Git for the supervisor: every call in its own process group, with a deadline, killed when cancelled."""

    def __init__(self, runner: CommandRunner, may_be_held: MayBeHeld = lambda _lock, _folders: False) -> None:
        """`may_be_held`: whether somebody else's git could be the holder of a lock in one of those folders."""
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
        """Exit code, output and complaints, for a command whose failure says something too."""
        code, out, err = await self._runner(
            command(arguments, settings),
            cwd=cwd,
            env=environment(env, arguments),
            timeout=patience(timeout),
            stdin=stdin,
        )
        return code, out.decode(errors="surrogateescape"), err.decode(errors="replace")

    async def ok(self, *arguments: str, cwd: str, env: Mapping[str, str] | None = None) -> bool:
        """Whether the command says yes. One that was killed has not said no."""
        try:
            await self.run(*arguments, cwd=cwd, env=env)
        except GitFailed as error:
            if not error.answered:
                raise
            return False
        return True

    async def is_true(self, *arguments: str, cwd: str) -> bool:
        """For questions that git answers with 0 or 1: whatever else it returns is no answer, and raises."""
        try:
            await self.run(*arguments, cwd=cwd)
        except GitFailed as error:
            if error.code != 1:
                raise
            return False
        return True

    async def filters_off(self, worktree: str, *, all_of_them: bool = False) -> dict[str, str]:
        """Environment that replaces every content filter by the user's own definition of it, or by nothing, and names
        the work tree: `core.worktree` in a shared config would have git write to another one.

        A filter is a command, and an agent can define one in the shared config, in its worktree's, or in a file that
        either includes. The user's global config (git-lfs) is out of its reach. Passed by environment, because a name
        may contain '='.
        """
        return (await self.surroundings(worktree, all_of_them=all_of_them))[0]

    async def surroundings(self, worktree: str, *, all_of_them: bool = False) -> tuple[dict[str, str], set[str]]:
        """(what `filters_off` says, which of user.name and user.email are set), with one question to git."""
        effective: dict[str, str] = {}  # the command lines of filters, and of transports
        trusted: dict[str, str] = {}
        identity: set[str] = set()
        for scope, key, value in await self._settings(worktree, _ASKED):
            if key.startswith("user."):
                identity |= {key} if value else set()
                continue
            effective[key] = value
            if scope in _OF_THE_USER and not all_of_them:
                trusted[key] = value
        # Only what is set: an empty `process` would switch the user's own `clean` and `smudge` off.
        settings = [(key, trusted.get(key, _instead(key))) for key in sorted(effective)]
        return {"GIT_WORK_TREE": worktree, **by_environment(settings)}, identity

    async def _settings(self, worktree: str, pattern: str) -> list[tuple[str, str, str]]:
        """(scope, key, value), from the weakest to the strongest."""
        words = ("config", "--show-scope", "--includes", "-z", "--get-regexp", pattern)
        try:
            listed = (await self.run(*words, cwd=worktree)).split("\0")
        except GitFailed as error:
            if not error.answered:
                raise  # filters that we do not know of would run
            return []
        pairs = zip(listed[::2], listed[1::2], strict=False)
        return [(scope, *entry.partition("\n")[::2]) for scope, entry in pairs]


def call(
    *arguments: str,
    cwd: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    alone: bool = False,
    most: int | None = None,
) -> tuple[int, str, str]:
    """Git for the CLI: one short synchronous call. `alone`: in a session of its own, so that it comes to its end
    whatever happens to us. `most`: bytes of what it prints; one that prints more is ended there, and has done well."""
    faults.effect("git.call")
    line, surroundings = command(arguments), environment(env, arguments)
    try:
        if most is not None:
            return _beginning(line, cwd, surroundings, patience(timeout), most)
        done = subprocess.run(
            line,
            cwd=cwd,
            env=surroundings,
            capture_output=True,
            timeout=patience(timeout),
            check=False,
            start_new_session=alone,
        )
    except subprocess.TimeoutExpired as error:
        raise Refused(
            f"git has not answered for {patience(timeout):g} s in {cwd} and was ended: git {' '.join(arguments[:3])}"
        ) from error
    except OSError as error:
        if error.filename == cwd:
            raise UsageError(f"The directory {cwd} cannot be entered: {error.strerror}.") from error
        raise UsageError(
            f"git could not be started ({error.strerror}): it is not installed, or not in PATH. "
            "Install it, e.g.: sudo apt-get install git"
        ) from error
    return done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="replace")


def _beginning(line: list[str], cwd: str, env: Mapping[str, str], timeout: float, most: int) -> tuple[int, str, str]:
    """For those who show it: a diff can be larger than our memory."""
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


_OF_A_PUSH = (
    r"^(core\.(sshcommand|askpass|gitproxy)|credential\.(.*\.)?helper|gpg\.(.*\.)?(program|defaultkeycommand)|"
    r"remote\..*\.(receivepack|uploadpack|vcs))$"
)


def commands_of_a_push(cwd: str) -> list[str]:
    """Settings of the repository's own config that name a command which a push could run."""
    code, out, err = call("config", "--show-scope", "--includes", "-z", "--get-regexp", _OF_A_PUSH, cwd=cwd)
    if code not in (0, 1):
        raise Refused(f"git could not read its settings: {err.strip()} Nothing was pushed.")
    words = out.split("\0")
    pairs = zip(words[::2], words[1::2], strict=False)
    return sorted({entry.partition("\n")[0] for scope, entry in pairs if scope in ("local", "worktree")})


def submodules_of(cwd: str) -> list[str]:
    """Names that a checkout's config and its `.gitmodules` have for repositories inside."""
    places: list[tuple[str, ...]] = [()]
    if os.path.isfile(os.path.join(cwd, ".gitmodules")):
        places.append(("--file", ".gitmodules"))
    asked = ("-z", "--name-only", "--get-regexp", r"^submodule\..*\.")
    listed = [key for place in places for key in call("config", *place, *asked, cwd=cwd)[1].split("\0")]
    return sorted({key.removeprefix("submodule.").rpartition(".")[0] for key in listed if key})


_OF_A_LOOK = r"^(filter\..*|diff\..*\.(command|textconv)|gpg\.(.*\.)?(program|defaultkeycommand))$"


def replaced_for_looking(cwd: str) -> list[tuple[str, str]]:
    """Settings for who looks at a checkout (status, diff, log): commands as the user's own settings have them, or
    something harmless. An agent could have named the others in the shared config."""
    code, out, err = call("config", "--show-scope", "--includes", "-z", "--get-regexp", _OF_A_LOOK, cwd=cwd)
    if code not in (0, 1):
        raise Refused(f"git could not read its settings: {err.strip()}")
    words = out.split("\0")
    found = [(scope, *entry.partition("\n")[::2]) for scope, entry in zip(words[::2], words[1::2], strict=False)]
    trusted = {key: value for scope, key, value in found if scope in _OF_THE_USER}
    return [(key, trusted.get(key, _harmless(key))) for key in sorted({key for _scope, key, _value in found})]


def _harmless(key: str) -> str:
    if key.startswith("filter."):
        return _instead(key)
    return "cat" if key.endswith(".textconv") else "false"


def push(remote: str, branch: str, *, cwd: str) -> int:
    """Push as the user would: their environment, credentials and terminal. A repository on this machine runs no hook of
    its own: an agent can turn a remote into a directory, and hooks in there would be its commands."""
    faults.effect("git.push")
    refspec = f"refs/heads/{branch}:refs/heads/{branch}"
    urls = call("remote", "get-url", "--push", "--all", "--", remote, cwd=cwd)[1].splitlines()
    receiver = ["--receive-pack", RECEIVER] if any(map(_is_here, urls)) else []
    line = ["git", "push", *receiver, "--end-of-options", remote, refspec]
    return subprocess.run(line, cwd=cwd, env=of_the_users(), check=False).returncode


def _is_here(url: str) -> bool:
    """As git tells it: a path, unless a colon comes before its first slash."""
    return url.startswith("file://") or ("://" not in url and ":" not in url.partition("/")[0])


def version() -> tuple[int, ...]:
    _code, out, _err = call("version", cwd="/")
    words = out.split()
    numbers = words[2].split(".") if len(words) > 2 else []
    return tuple(int(number) for number in numbers if number.isdecimal() and number.isascii())


def refuse_unusable() -> None:
    """A clear refusal before anything is queued or started that git could not carry out."""
    found = version()
    if found < OLDEST:
        shown = f"is {'.'.join(map(str, found))}" if found else "does not tell its version"
        needed = ".".join(map(str, OLDEST))
        raise UsageError(f"The git in PATH {shown}; Holdfast needs {needed} or newer. Upgrade it, then try again.")
