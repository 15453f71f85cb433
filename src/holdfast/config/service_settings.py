"""The settings of how people are told of alerts. Part of the table in settings.py; in the user's own file only."""

from __future__ import annotations

import os
import re

from holdfast.base.units import parse_duration
from holdfast.config.setting_type import DANGEROUS, OF_THE_SUPERVISOR, Setting
from holdfast.config.values import boolean, count, one_of, text, words

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HIDDEN = "…"


def web_address(value: object) -> str:
    """Empty, an address, or the place of one. What is wrong with it is told without it: its path may be a secret."""
    address = text(value)
    if not address or address.startswith(("env:", "file:")):
        return secret_place(address)
    return plain_address(address)


def plain_address(address: str) -> str:
    """An address that a request can be made to, also where it was looked up at its place."""
    from urllib.parse import urlsplit  # few commands need it, and all pay for what stands above

    try:
        parts = urlsplit(address)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or not address.isascii() or any(letter.isspace() or not letter.isprintable() for letter in address):
        raise ValueError("it is not an address that begins with http:// or https:// (or `env:NAME`, `file:PATH`)")
    if "@" in parts.netloc:
        raise ValueError("it has a login in it, which is not sent; use `notify.secret`, or a token in the path")
    return address


def secret_place(value: object) -> str:
    """Empty, `env:NAME` or `file:PATH`: the secret itself has no place in a file of settings."""
    place = text(value)
    how, _, where = place.partition(":")
    if place and not (
        (how == "env" and _VARIABLE.fullmatch(where)) or (how == "file" and os.path.isabs(os.path.expanduser(where)))
    ):
        raise ValueError("it is not the place of a secret: `env:NAME`, or `file:PATH` with a whole path")
    return place


def without_path(address: str) -> str:
    """What may be shown of an address: where it goes, not the token in it."""
    if not address.startswith(("http://", "https://")):
        return address
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    is_bare = parts.path in ("", "/") and not parts.query
    return f"{parts.scheme}://{parts.netloc}{'' if is_bare else f'/{HIDDEN}'}"


def _own(default: object, parse: object, meaning: str) -> Setting:
    return Setting(default, parse, meaning, user_only=OF_THE_SUPERVISOR, reload=True)  # type: ignore[arg-type]  # any parser


NOTIFY: dict[str, Setting] = {
    "crash.notify": _own(True, boolean, "Send alerts about crashes too; off, they are still recorded and shown."),
    "notify.level": _own(
        "warning", one_of("debug", "info", "warning", "critical"), "The mildest alert that is sent to people."
    ),
    "notify.command": _own(
        [], words, "A command that gets every notice: JSON on its standard input; exit 0 is success."
    ),
    "notify.webhook": _own(
        "", web_address, "An address that every notice is posted to as JSON; or `env:NAME`, `file:PATH`."
    ),
    "notify.secret": _own("", secret_place, "Where the secret is that notices to the address are signed with."),
    "notify.resolved": _own(False, boolean, "Send also when an alert was acknowledged, or its cause is over."),
    "notify.timeout": _own(10.0, parse_duration, "How long one attempt to send may take."),
    "notify.attempts": _own(
        8,
        count(1),
        "How often a notice is tried before it is given up, with an event; waits double from 2 s to 10 m.",
    ),
}


TRACKERS: dict[str, Setting] = {
    "tracker.kind": Setting(
        "builtin",
        one_of("builtin", "beads"),
        "Where work comes from besides `holdfast add`: `beads` takes ready issues of repositories that have a `.beads` "
        "directory, and runs its command.",
        user_only=DANGEROUS,
    ),
    "tracker.command": Setting(
        [], words, "The command line of the tracker; empty: `br`, else `bd`, from PATH.", user_only=DANGEROUS
    ),
    "tracker.poll": Setting(
        30.0,
        parse_duration,
        "How often a tracker is looked at while there is room for a task; not more often than every 50ms.",
    ),
    "tracker.timeout": Setting(
        10.0, parse_duration, "A tracker's command that takes longer is ended, and asked later."
    ),
    "tracker.label": Setting("", text, "Only issues with this label are taken; empty: all that are ready."),
    "tracker.close_on_complete": Setting(
        True, boolean, "A completed task closes its issue, naming its branch; otherwise a person does."
    ),
}
