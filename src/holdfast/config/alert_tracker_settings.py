"""Settings for alert delivery and for trackers. Part of the table in settings.py.

The delivery settings are taken from the user's own file only.
"""

from __future__ import annotations

import os
import re

from holdfast.base.units import parse_duration
from holdfast.config.values import (
    DANGEROUS,
    DOWN,
    NEVER,
    OF_THE_SUPERVISOR,
    UP,
    ListOf,
    OneOf,
    Parser,
    Setting,
    WholeNumber,
    parse_boolean,
    parse_text,
    parse_words,
)
from holdfast.core.event_kinds import FAILED, NEEDS_YOU, NOTICE_WORDS

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MESSENGER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
HIDDEN = "…"


def web_address(value: object) -> str:
    """Parse an address, `env:NAME`, `file:PATH` or an empty text.

    Error messages never quote the address, because its path may be a secret.
    """
    address = parse_text(value)
    if not address or address.startswith(("env:", "file:")):
        return secret_place(address)
    return plain_address(address)


def messenger_addresses(value: object) -> list[str]:
    """Parse a list of addresses or of places of addresses. Error messages never quote an address, because all of it may
    be secret."""
    try:
        places = parse_words(value)
    except ValueError:
        raise ValueError('it is not a list of addresses, like ["ntfy://ntfy.sh/TOPIC", "env:SLACK"]') from None
    for place in places:
        if place.startswith(("env:", "file:")):
            secret_place(place)
        elif not _MESSENGER.fullmatch(place):
            raise ValueError("an address in it does not begin like `ntfy://` (nor with `env:` or `file:`)")
    return places


def without_address(place: str) -> str:
    """Return the part of a messenger's address that may be shown: its scheme, or the place that holds the address."""
    return f"{place.partition('://')[0]}://{HIDDEN}" if "://" in place else place


def plain_address(address: str) -> str:
    """Check that a request can be sent to the address, and return the address.

    It also checks addresses that were looked up in a variable or a file.
    """
    from urllib.parse import urlsplit  # few commands need it, and every command pays for top-level imports

    try:
        parts = urlsplit(address)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or not address.isascii() or any(letter.isspace() or not letter.isprintable() for letter in address):
        raise ValueError("it is not an address that begins with http:// or https:// (or `env:NAME`, `file:PATH`)")
    if "@" in parts.netloc:
        raise ValueError("it contains a login, which would not be sent; use `notify.secret`, or a token in the path")
    return address


def is_unprotected(address: str) -> bool:
    """True if others on the network can read requests to the address: http to another machine."""
    from urllib.parse import urlsplit

    if not address.lower().startswith("http://"):
        return False
    host = urlsplit(address).hostname or ""
    return host not in ("localhost", "::1") and not host.startswith("127.")


def secret_place(value: object) -> str:
    """Parse `env:NAME`, `file:PATH` or an empty text. A file of settings must not hold the secret itself."""
    place = parse_text(value)
    how, _, where = place.partition(":")
    if place and not (
        (how == "env" and _VARIABLE.fullmatch(where)) or (how == "file" and os.path.isabs(os.path.expanduser(where)))
    ):
        raise ValueError("it is not the place of a secret: `env:NAME`, or `file:PATH` with a whole path")
    return place


def without_path(address: str) -> str:
    """Return the part of an address that may be shown: its host, without the token in its path."""
    if not address.startswith(("http://", "https://")):
        return address
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    is_bare = parts.path in ("", "/") and not parts.query
    return f"{parts.scheme}://{parts.netloc}{'' if is_bare else f'/{HIDDEN}'}"


def _own(default: object, parse: Parser, meaning: str, least: float = 0) -> Setting:
    return Setting(default, parse, meaning, user_only=OF_THE_SUPERVISOR, reload=True, least=least)


NOTIFY: dict[str, Setting] = {
    "crash.notify": _own(
        True, parse_boolean, "true: alerts about crashes are sent too. false: they are only recorded and shown."
    ),
    "notify.level": _own(
        "warning", OneOf("debug", "info", "warning", "critical"), "The lowest level of alerts that are sent to people."
    ),
    "notify.on": _own(
        [FAILED, NEEDS_YOU],
        ListOf(*NOTICE_WORDS),
        "The kinds of notices. `needs-you`: every alert of at least `notify.level`. The others: endings of tasks.",
    ),
    "notify.gather": _own(
        60.0,
        parse_duration,
        "The shortest time between two notices of endings. Endings within this time share one notice.",
    ),
    "notify.command": _own(
        [], parse_words, "A command that gets every delivery as JSON on its standard input. Exit code 0 is success."
    ),
    "notify.webhook": _own(
        "", web_address, "The address to which every delivery is posted as JSON, or `env:NAME`, `file:PATH`."
    ),
    "notify.urls": _own(
        [],
        messenger_addresses,
        "Addresses of messengers for apprise (ntfy://…, slack://…, discord://…, tgram://…, mailto://…), or `env:NAME`, "
        "`file:PATH`. They need the extra `notify`.",
    ),
    "notify.secret": _own(
        "",
        secret_place,
        "The place of the secret that signs deliveries to `notify.webhook`: `env:NAME` or `file:PATH`.",
    ),
    "notify.resolved": _own(
        False, parse_boolean, "true: also send when an alert was acknowledged or its cause is over. false: do not."
    ),
    "notify.timeout": _own(10.0, parse_duration, "How long one attempt to send may take.", least=0.1),
    "notify.attempts": _own(
        8,
        WholeNumber(1),
        "How many attempts a delivery has. Then it is given up, with an event. Waits double from 2 s to 10 m.",
    ),
}


TRACKERS: dict[str, Setting] = {
    "tracker.kind": Setting(
        "builtin",
        OneOf("builtin", "beads"),
        "Where tasks come from, in addition to `holdfast add`. `builtin`: nowhere else. `beads`: ready issues of "
        "repositories with a `.beads` directory, read by the tracker's command.",
        user_only=DANGEROUS,
    ),
    "tracker.command": Setting(
        [], parse_words, "The command line of the tracker. Empty: `br`, else `bd`, from PATH.", user_only=DANGEROUS
    ),
    "tracker.poll": Setting(
        30.0,
        parse_duration,
        "How often a tracker is queried while a slot is free.",
        untrusted=UP,
        least=0.05,
    ),
    "tracker.max_delay": Setting(
        300.0,
        parse_duration,
        "The longest pause after failures of the tracker in a row.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.1,
    ),
    "tracker.timeout": Setting(
        10.0,
        parse_duration,
        "A tracker command that takes longer than this is ended and retried later.",
        untrusted=DOWN,
        least=0.1,
    ),
    "tracker.label": Setting(
        "",
        parse_text,
        "Only issues with this label become tasks. Empty: all ready issues.",
        untrusted=NEVER,
    ),
    "tracker.close_on_complete": Setting(
        True,
        parse_boolean,
        "true: a completed task closes its issue and names the branch. false: a person closes the issue.",
        untrusted=NEVER,
    ),
}
