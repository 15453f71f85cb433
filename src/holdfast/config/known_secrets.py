"""The sources of secrets that redaction must know: the user's settings, trusted repositories, the environment.

Commands that show an agent's raw output also read the environment of the supervisor that started the agent. A source
that cannot be read is skipped: no error here may stop a command or hide its output.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from functools import lru_cache

from holdfast import config
from holdfast.base.errors import HoldfastError
from holdfast.config.read_file import REPO_FILE, read_settings_file
from holdfast.config.trust import NAME as TRUST
from holdfast.config.trust import read_trust_records
from holdfast.secrets.redact import learn, redact_text, secrets_in, tokens_of_address
from holdfast.secrets.references import SecretMissing, look_up_secret

LIKE_A_TOKEN = 8  # letters


def register_settings_secrets(settings: config.Config, environment: Mapping[str, str] = os.environ) -> None:
    """Register the secrets that accounts, `env.set` and `notify.*` contain or refer to."""
    found = secrets_in(settings["env.set"])
    for agent, tables in settings.accounts.items():
        for name, table in tables.items():
            for key, value in table.env.items():
                found |= _value_of(f"accounts.{agent}.{name}.env.{key}", value, environment)
    for key in ("notify.secret", "notify.webhook"):
        if settings[key]:
            found |= _value_of(key, settings[key], environment)
    for place in settings["notify.urls"]:
        with contextlib.suppress(SecretMissing):
            learn_address(look_up_secret(place, environment))
    address = found.pop("notify.webhook", settings["notify.webhook"])
    learn(found)
    for part in tokens_of_address(address):
        learn({"notify.webhook": part})


def learn_address(address: str) -> None:
    """Register the address of a messenger: everything after its scheme, and each piece that is long enough for a
    token."""
    behind = address.partition("://")[2]
    pieces = [piece for piece in re.split(r"[/?&=:@,#]+", behind) if len(piece) >= LIKE_A_TOKEN]
    for part in (address, behind, *pieces):
        learn({"notify.urls": part})


def _value_of(key: str, value: str, environment: Mapping[str, str]) -> dict[str, str]:
    with contextlib.suppress(SecretMissing):
        found = look_up_secret(value, environment)
        return {key: found} if found != value else secrets_in({key: found})
    return {}


def register_repository_secrets(home: str) -> None:
    """Register the secrets in `env.set` of trusted repositories.

    Agents that have ended, or that another supervisor started, had these secrets in their environment.
    """
    with contextlib.suppress(HoldfastError, OSError):
        for repo in read_trust_records(home):
            layer = read_settings_file(os.path.join(repo, REPO_FILE), of_repository=True, schedules=False)
            learn(secrets_in(layer.values.get("env.set", {})))


def register_supervisor_secrets(home: str) -> None:
    """Register the secrets that the supervisor of this home knows, before an agent's raw output is shown.

    The secrets are read once, and again if the supervisor or its settings changed, because a view may stay open for
    days.
    """
    places = (os.path.join(home, "supervisor.lock"), os.path.join(home, TRUST), config.user_file_path())
    _learn_as_of(home, *map(_stamp, places))


@lru_cache(maxsize=4)
def _learn_as_of(home: str, *_stamps: object) -> None:
    environment = _environment_of_supervisor(home)
    learn(secrets_in(environment))
    register_repository_secrets(home)
    with contextlib.suppress(config.ConfigError, OSError):
        register_settings_secrets(
            config.load_valid_values(environment.get("HOLDFAST_CONFIG")), {**os.environ, **environment}
        )


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def redact_agent_text(text: str, home: str) -> str:
    """Redact an agent's text in a Holdfast command, which knows fewer secrets than the supervisor."""
    register_supervisor_secrets(home)
    return redact_text(text)


def _environment_of_supervisor(home: str) -> dict[str, str]:
    try:
        with open(os.path.join(home, "supervisor.lock"), "rb") as file:
            pid = int(file.read(32))
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [pair.decode(errors="surrogateescape").partition("=") for pair in file.read().split(b"\0")]
    except (OSError, ValueError):
        return {}
    found = {name: value for name, _, value in pairs if name}
    return found if os.path.realpath(found.get("HOLDFAST_HOME", home)) == os.path.realpath(home) else {}
