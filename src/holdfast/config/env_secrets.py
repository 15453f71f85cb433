"""Values of `env.set` that look like secrets: a task does not carry them into the store, only the file that has them.

They are looked up when its agent starts, so a key that was changed meanwhile is the new one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.base.errors import HoldfastError, Unavailable, UsageError
from holdfast.config.layers import Config, withhold_untrusted
from holdfast.config.read_file import REPO_FILE, read_file, user_file
from holdfast.secrets.redact import secrets_in

KEY = "env.set"
OF_REPOSITORY = "repository:"  # before the path of a file that needs trust


def environment_of(settings: Config) -> dict[str, object]:
    """What a task keeps of its agent's environment. `held`: variable → the file to look its value up in."""
    values: Mapping[str, str] = settings[KEY]
    secret = [name for name, value in values.items() if secrets_in({name: value})]
    found: dict[str, object] = {
        "pass": settings["env.pass"],
        "set": {name: value for name, value in values.items() if name not in secret},
    }
    if secret:
        place = settings.origins[KEY].rpartition(":")
        path = place[0] if place[2].isdigit() else settings.origins[KEY]
        if not os.path.isabs(path):
            raise UsageError(
                f"{KEY}: {' and '.join(secret)} looks like a secret, and {path} is not there when the agent starts: "
                f"secrets are not stored with tasks. Put it into [{KEY}] of {user_file()}, or name the variable in "
                "`env.pass`, so that agents get the supervisor's. Nothing was queued."
            )
        needs_trust = os.path.basename(path) == REPO_FILE and path != user_file()
        found["held"] = dict.fromkeys(secret, OF_REPOSITORY + path if needs_trust else path)
    return found


def looked_up(wanted: Mapping[str, object], home: str) -> dict[str, str]:
    """The values that `held` names, as far as they are there now and their file is trusted. Raises Unavailable while a
    file has mistakes (somebody edits it just now, say) and does not have one for all that can be read of it: what was
    queued in good order waits for it."""
    held = wanted.get("held") or {}
    assert isinstance(held, dict)
    found: dict[str, str] = {}
    for place in sorted(set(held.values())):
        path = place.removeprefix(OF_REPOSITORY)
        needs_trust = path != place
        layer = read_file(path, of_repository=needs_trust, schedules=needs_trust)  # trust is in all of a file
        if needs_trust:
            try:
                withhold_untrusted(layer, os.path.dirname(path), home)
            except HoldfastError:  # nobody can say now whether it is trusted
                continue
        values, wanted_here = layer.values.get(KEY, {}), [name for name, where in held.items() if where == place]
        missing = [name for name in wanted_here if name not in values]
        if missing and layer.problems:
            raise Unavailable(
                f"{KEY}.{missing[0]} is a secret, which is not kept with the task, and its file cannot be used: "
                f"{layer.problems[0]}. Mend the file; the task waits for it."
            )
        found |= {name: values[name] for name in wanted_here if name in values}
    return found
