"""Settings and environment that keep git from running other programs, besides the config view (config_view.py).

An agent may have written anything into a work tree or a shared `.git`. docs/security.md lists the guarantees. The
fault campaign's family `hostile-repo` tests them with traps.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

HARDENED = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.editor=true",
    "diff.external=",
    "protocol.ext.allow=never",
    "credential.helper=",
    "commit.gpgsign=false",
    "log.showSignature=false",  # git would run a program that the repository names
    "core.alternateRefsCommand=true",  # run in every fetch if objects are borrowed
    "diff.submodule=short",  # otherwise a diff enters nested repositories and uses the drivers that they name
    "status.submoduleSummary=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "core.quotePath=false",
    "core.filesRefLockTimeout=1000",  # the user's gc locks every branch and all packed refs for a moment
    "core.packedRefsTimeout=5000",
)
TRANSPORTS = frozenset(["fetch", "clone", "ls-remote"])
_KEPT_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH")
# The protocols that a checkout in a partial clone may use to fetch missing objects. git:// is not allowed, because its
# proxy is a command, and the first of several proxies counts, so ours could not replace it.
CHECKOUT_PROTOCOLS = "file:ssh:http:https"


def environment(extra: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> dict[str, str]:
    """Return a small environment without inherited GIT_* variables.

    Missing objects are not fetched, because the shared config could name any command for that. An older git ignores
    GIT_NO_LAZY_FETCH, so no protocol is allowed. A command that copies between repositories (see `arguments`) may use
    local paths only. A path alone proves nothing: a setting can rewrite it into an address. PATH has absolute entries
    only, so no program is taken from the current directory.
    """
    env = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    env |= {"PATH": search_path()} if "PATH" in env else {}
    env.update(LC_ALL="C", GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0", GIT_ASKPASS="/bin/false")
    env.update(GIT_NO_LAZY_FETCH="1", GIT_ALLOW_PROTOCOL="none")
    env.update(GIT_NO_REPLACE_OBJECTS="1", GIT_GRAFT_FILE="/dev/null/none")  # an agent's ref could show other content
    if subcommand(arguments) in TRANSPORTS:
        env.update(GIT_ALLOW_PROTOCOL="file")
    env.update(extra or {})
    return env


def subcommand(arguments: Sequence[str]) -> str:
    return "".join(arguments[find_subcommand(arguments) :][:1])


def find_subcommand(arguments: Sequence[str]) -> int:
    """Return the position of git's subcommand, after the settings."""
    at = 0
    while arguments[at : at + 1] == ("-c",) or arguments[at : at + 1] == ["-c"]:
        at += 2
    return at


def search_path() -> str:
    """Return PATH without relative entries: the files in the current directory may belong to another user."""
    return os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))


def hardened_command(arguments: Sequence[str], settings: Sequence[str] = ()) -> list[str]:
    options = [word for setting in (*HARDENED, *settings) for word in ("-c", setting)]
    return ["git", *options, *arguments]


def by_environment(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return settings as an environment, because a setting on a command line cannot have '=' in its name."""
    env = {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
    for number, (key, value) in enumerate(settings):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


# A push, or a tool of the user that calls git, may run the user's own commands, but not those that a repository names.
FOR_USERS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",
    "diff.external=",
    "protocol.ext.allow=never",
    "push.recurseSubmodules=no",
    "submodule.recurse=false",
    "log.showSignature=false",
)


def receiver(common_dir: str) -> str:
    """Return the command that takes a push into a directory, with our configuration and without hooks."""
    words = {"GIT_COMMON_DIR": common_dir, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    settings = "-c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c core.fsmonitor=false"
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in words.items()), f"git {settings} receive-pack"]
    )


def user_environment(common_dir: str, submodules: Sequence[str] = (), hooks: Sequence[str] = ()) -> dict[str, str]:
    """Return the user's own environment, for programs that run on the user's behalf.

    The user's own configuration is in force, that of the repository is not: `common_dir` is its config view. Inherited
    GIT_* variables are dropped, except those for logging in. Our settings apply to every git that such a program
    starts. git does not enter `submodules`, because their own config names filters. `hooks`: names of hooks in the
    user's configuration.
    """
    kept = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in kept}
    words = (*FOR_USERS, "diff.ignoreSubmodules=all")
    pairs = [(key, value) for key, _, value in (setting.partition("=") for setting in words)]
    pairs += [(f"submodule.{name}.ignore", "all") for name in submodules]
    pairs += [(f"hook.{name}.enabled", "false") for name in hooks]
    ours = {"PATH": search_path(), "GIT_PAGER": "cat", "GIT_COMMON_DIR": common_dir}
    return {**env, **ours, **by_environment(pairs)}
