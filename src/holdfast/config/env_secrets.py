"""Values of `env.set` that look like secrets. The store keeps only the path of the file that has the value.

The value is looked up when the agent starts. If a secret was changed after the task was added, the agent gets the new
value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.base.errors import HoldfastError, Unavailable, UsageError
from holdfast.config.layers import Config, withhold_untrusted
from holdfast.config.read_file import REPO_FILE, read_settings_file, user_file_path
from holdfast.secrets.redact import secrets_in

KEY = "env.set"
OF_REPOSITORY = "repository:"  # prefix of the path of a file that needs trust


def stored_environment(settings: Config, identity: Mapping[str, str]) -> dict[str, object]:
    """Return the part of the agent's environment that is stored with a task.

    `identity`: the variables of the caller that name author and committer. A setting overrides them. In the result,
    `held` maps each secret variable to the file with its value.
    """
    values: Mapping[str, str] = settings[KEY]
    secret = [name for name, value in values.items() if secrets_in({name: value})]
    found: dict[str, object] = {
        "pass": settings["env.pass"],
        "set": {**identity, **{name: value for name, value in values.items() if name not in secret}},
    }
    if secret:
        place = settings.origins[KEY].rpartition(":")
        path = place[0] if place[2].isdigit() else settings.origins[KEY]
        if not os.path.isabs(path):
            raise UsageError(
                f"{KEY}: {' and '.join(secret)} looks like a secret and comes from: {path}. Secrets are not stored "
                "with tasks, and this source is gone when the agent starts. Nothing was queued. Put the secret into "
                f"[{KEY}] of {user_file_path()}, or name the variable in `env.pass`: "
                "then agents get the supervisor's value."
            )
        needs_trust = os.path.basename(path) == REPO_FILE and path != user_file_path()
        found["held"] = dict.fromkeys(secret, OF_REPOSITORY + path if needs_trust else path)
    return found


def look_up_secrets(wanted: Mapping[str, object], home: str) -> dict[str, str]:
    """Return the values of the variables that `held` in `wanted` names, if they still exist and their file is trusted.

    Raise Unavailable if a value is missing from a file that has mistakes (a person may be editing the file). The task
    was valid when it was queued, so it waits until the file is fixed.
    """
    held = wanted.get("held") or {}
    assert isinstance(held, dict)
    found: dict[str, str] = {}
    for place in sorted(set(held.values())):
        path = place.removeprefix(OF_REPOSITORY)
        needs_trust = path != place
        layer = read_settings_file(
            path, of_repository=needs_trust, schedules=needs_trust
        )  # trust covers the whole file
        if needs_trust:
            try:
                withhold_untrusted(layer, os.path.dirname(path), home)
            except HoldfastError:  # the trust record cannot be read now
                continue
        values, wanted_here = layer.values.get(KEY, {}), [name for name, where in held.items() if where == place]
        missing = [name for name in wanted_here if name not in values]
        if missing and layer.problems:
            raise Unavailable(
                f"{KEY}.{missing[0]} is a secret, which is not kept with the task, and its file cannot be used: "
                f"{layer.problems[0]}. The task waits. Fix the file."
            )
        found |= {name: values[name] for name in wanted_here if name in values}
    return found
