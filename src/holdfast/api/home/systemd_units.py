"""The text of our systemd units, with the reasons for each line. This module only returns text; `service.py` writes the
files."""

from __future__ import annotations

import hashlib

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import UsageError

_MARK = "# Written by `holdfast service install`. Put your own changes into a drop-in: systemctl {scope}edit {name}"
_SUM = "# sha256 of what follows: "
START_SECONDS = 120  # root's sweep takes 30 at most
STOP_SECONDS = 150  # `down` waits 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One supervisor as a service. `user` is None for a unit of a user's own systemd manager."""

    name: str
    user: str | None
    home: str
    python: str
    path: str  # PATH for agents: systemd's own PATH has no directory of the user's
    cleanup: str  # the full path of holdfast-cleanup
    uids: str  # users whose directories root may empty


def render_unit(unit: Unit) -> str:
    """Return the whole unit file. Its checksum lets a later command detect edits by hand."""
    scope = "" if unit.user is not None else "--user "
    return add_checksum(_MARK.format(scope=scope, name=unit.name), _body(unit))


def add_checksum(mark: str, body: str) -> str:
    return f"{mark}\n{_SUM}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def compare_unit(found: str | None, wanted: str) -> str:
    """Return `absent`, `same`, `older` (of another version), `other` (of another home), `changed` (by hand) or
    `foreign`."""
    if found is None:
        return "absent"
    if found == wanted:
        return "same"
    lines = found.split("\n", 2)
    if len(lines) < 3 or not lines[0].startswith(_MARK.split("{")[0]) or not lines[1].startswith(_SUM):
        return "foreign"
    if add_checksum(lines[0], lines[2]) != found:
        return "changed"
    return "older" if _home_line(found) == _home_line(wanted) else "other"


def _home_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith('Environment="HOLDFAST_HOME=')), "")


def _body(unit: Unit) -> str:
    system = unit.user is not None
    parts = [_UNIT, _SERVICE, _SYSTEM_HARDENING if system else _USER_HARDENING, _INSTALL]
    return "\n".join(parts).format(
        who=f"of {unit.user}" if system else "of this user",
        mounts=_quoted(unit.home),
        after="network-online.target" if system else "default.target",
        wants="Wants=network-online.target\n" if system else "",
        run_as=f"User={unit.user}\n" if system else "",
        home=_assigned("HOLDFAST_HOME", unit.home),
        path=_assigned("PATH", unit.path),
        homes=_assigned("HOLDFAST_CLEANUP_HOMES", unit.home),
        uids=_assigned("HOLDFAST_CLEANUP_UIDS", unit.uids),
        root="+" if system else "/bin/sh ",
        why_root=_AS_ROOT if system else _AS_USER,
        cleanup=_quoted(unit.cleanup),
        python=_quoted(unit.python),
        start=START_SECONDS,
        stop=STOP_SECONDS,
        target="multi-user.target" if system else "default.target",
    )


def _assigned(name: str, value: str) -> str:
    return _quoted(f"{name}={value}")


def _quoted(text: str) -> str:
    """Quote the text so that systemd reads it back unchanged: quotes, and systemd's own %."""
    if any(not letter.isprintable() for letter in text):
        raise UsageError(f"A unit cannot hold {text!r}: there is a character in it that cannot be printed.")
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


_UNIT = """\
[Unit]
Description=Holdfast: supervisor of coding agents {who}
After={after}
{wants}RequiresMountsFor={mounts}
StartLimitIntervalSec=600
StartLimitBurst=5
"""

_AS_ROOT = """\
# As root (+), to delete container leftovers in the trash that this user may not delete. Only root can write that
# program;
# its paths are set here. Never name a file in EnvironmentFile= that somebody else can write: root would read it too."""

_AS_USER = """\
# As this user: files of root are counted and reported. Only a system unit can remove them."""

_SERVICE = """\
[Service]
Type=exec
{run_as}WorkingDirectory=/
Environment={home}
Environment={path}
Environment={homes}
Environment={uids}
{why_root}
ExecStartPre=-{root}{cleanup}
ExecStart={python} -m holdfast up
ExecReload=/bin/kill -HUP $MAINPID
TimeoutStartSec={start}
TimeoutStopSec={stop}
Restart=on-failure
RestartSec=10
# Exit codes 2 and 4 are wrong usage and "another supervisor has this home". A restart would not help.
RestartPreventExitStatus=2 4
# Keepers (one per agent) outlive a crash of the supervisor, and the next start adopts them: `mixed` and `control-group`
# would kill them with it. A stop still ends agents (the supervisor does so, with their grace), and keepers that
# nobody adopts end theirs after health.orphan_grace.
KillMode=process
# An agent that runs out of memory must not take the others with it.
OOMPolicy=continue
# Holdfast makes a cgroup for each agent below this one.
Delegate=yes
"""

_SYSTEM_HARDENING = """\
OOMScoreAdjust=-500
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=full
RestrictRealtime=yes
# Left out, because agents run in this unit:
# PrivateTmp, RootDirectory: a restart would give the next supervisor another /tmp than the agents that it adopts
# ProtectHome, ProtectSystem=strict: repositories may be anywhere
# ProtectControlGroups: we make cgroups. ProtectKernelTunables, ProtectKernelLogs, ProtectProc: mounted over parts of
#   /proc, after which no sandbox of an agent's own (bwrap) can mount one
# RestrictNamespaces, SystemCallFilter, ProtectHostname: the same sandboxes
# PrivateDevices, ProtectClock: /dev/kvm, GPUs
# MemoryDenyWriteExecute: every JIT. LockPersonality: debuggers. RestrictSUIDSGID: `git init --shared`, package builds
# PrivateNetwork, RestrictAddressFamilies, IPAddressDeny: agents talk to their providers
"""

_USER_HARDENING = """\
NoNewPrivileges=yes
RestrictRealtime=yes
# A user's manager can do no more without a user namespace, in which agents would see files of nobody.
"""

_INSTALL = """\
[Install]
WantedBy={target}
"""
