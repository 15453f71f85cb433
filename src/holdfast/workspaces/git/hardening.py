"""What keeps git from running other programs: an agent may have written anything into a work tree or a shared `.git`.

docs/security.md says what is promised; the campaign's family `hostile-repo` sets the traps.
"""

from __future__ import annotations

import os
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
    "log.showSignature=false",  # it would ask a program that the repository names
    "core.alternateRefsCommand=true",  # asked in every fetch, if objects are borrowed
    "diff.submodule=short",  # else a diff goes into repositories inside, and uses the drivers that they name
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
_TRANSPORTS = frozenset(["fetch", "clone", "ls-remote"])
_KEPT_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH")
# What a checkout in a partial clone may use to fetch what it has not got yet. Not git://, whose proxy is a command, and
# of several the first one counts, so that it cannot be replaced.
ANY_PROTOCOL = "file:ssh:http:https"


def environment(extra: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> dict[str, str]:
    """A small environment without any inherited GIT_* variable. Missing objects are not fetched: by whose command would
    be up to whoever wrote the shared config. An older git does not know how to leave that, so it may not talk to
    anybody; where it copies from one place to another (`arguments` say so), only to places on this machine, since a
    path can be rewritten into an address. No program is looked for where we happen to be."""
    env = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    env |= {"PATH": search_path()} if "PATH" in env else {}
    env.update(LC_ALL="C", GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0", GIT_ASKPASS="/bin/false")
    env.update(GIT_NO_LAZY_FETCH="1", GIT_ALLOW_PROTOCOL="none")
    if _subcommand(arguments) in _TRANSPORTS:
        env.update(GIT_ALLOW_PROTOCOL="file")
    env.update(extra or {})
    return env


def _subcommand(arguments: Sequence[str]) -> str:
    words = list(arguments)
    while words[:1] == ["-c"]:
        del words[:2]
    return words[0] if words else ""


def search_path() -> str:
    """Where programs are looked for; not in the directory that we happen to be in, whose files are another's."""
    return os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))


def command(arguments: Sequence[str], settings: Sequence[str] = ()) -> list[str]:
    options = [word for setting in (*HARDENED, *settings) for word in ("-c", setting)]
    return ["git", *options, *arguments]


def by_environment(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Settings as an environment: on a command line a name could not contain '='."""
    env = {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
    for number, (key, value) in enumerate(settings):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


# What a push, or a tool of the user's that calls git, may run is the user's own; not what a repository names.
_FOR_USERS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",
    "diff.external=",
    "protocol.ext.allow=never",
    "push.recurseSubmodules=no",
    "submodule.recurse=false",
    "log.showSignature=false",
)


RECEIVER = "git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c core.fsmonitor=false receive-pack"


def of_the_users(submodules: Sequence[str] = (), more: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """The user's own environment, for what runs in their name: no inherited GIT_* variable but how they log in, and
    settings for every git below it. `submodules` are not looked into: their own config names filters.
    `more`: further settings."""
    kept = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in kept}
    words = (*_FOR_USERS, "diff.ignoreSubmodules=all")
    pairs = [(key, value) for key, _, value in (setting.partition("=") for setting in words)]
    pairs += [*((f"submodule.{name}.ignore", "all") for name in submodules), *more]
    return {**env, "PATH": search_path(), **by_environment(pairs)}
