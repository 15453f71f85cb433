"""What `doctor` says of alerts: which are open, whether they can be sent, and what could not be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from holdfast import config
from holdfast.api.fleet.notices import undelivered
from holdfast.api.home.doctor_agents import Finding
from holdfast.api.queries import Queries
from holdfast.secrets.references import NotThere, look_up

SHOWN = 5


def alert_findings(queries: Queries) -> Iterator[Finding]:
    for alert in queries.alerts():
        yield Finding("note", "alert", f"{alert['level']}: {alert['message']}")
    yield from _targets()
    lost = undelivered(queries)
    for row in lost[-SHOWN:]:
        how = "was given up" if row["state"] == "given_up" else "waits"
        said = f": {row['told']}" if row["told"] else ""
        tried = f"after {row['attempts']} attempt(s)" if row["attempts"] else "to be sent"
        what = f"alert {row['alert']} ({row['transition']}) to the {row['target']}"
        yield Finding("note", "notices", f"{what} {how} {tried}{said}")
    if len(lost) > SHOWN:
        yield Finding("note", "notices", f"and {len(lost) - SHOWN} earlier one(s)")


def _program(name: str) -> Iterator[Finding]:
    if os.sep in name and not os.path.isabs(name):
        yield Finding("problem", "notices", f"notify.command: {name} is looked for in /; write its whole path")
    elif shutil.which(name) is None:
        yield Finding("problem", "notices", f"notify.command: there is no program {name}")


def _targets() -> Iterator[Finding]:
    settings = config.best_effort()
    command, webhook = settings["notify.command"], settings["notify.webhook"]
    if not command and not webhook:
        yield Finding(
            "note", "notices", "alerts are sent nowhere (`notify.command`, `notify.webhook`); `ps` shows them"
        )
        return
    if command:
        yield from _program(os.path.expanduser(command[0]))
    for key in ("notify.webhook", "notify.secret"):
        try:
            look_up(settings[key])
        except NotThere as missing:
            yield Finding("problem", "notices", f"{key} {missing}")
    if webhook and not settings["notify.secret"]:
        yield Finding("note", "notices", "notices to notify.webhook are not signed: `notify.secret` is not set")
    names = " and ".join(name for name, there in (("a command", command), ("an address", webhook)) if there)
    level = settings["notify.level"]
    yield Finding("ok", "notices", f"alerts from {level} on go to {names}; try it: `holdfast alerts test`")
