"""Settings for one agent only: `[per_agent.command.health] stuck_after = "20m"`.

Every `health.*` and `limits.*` key is allowed in such a table, and is read and checked like the plain key. Layers come
first: a later layer wins over an earlier one. Within a layer, the agent's own table wins over the plain key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.config.settings import CLI_AGENTS, SETTINGS
from holdfast.config.values import quote_wrong_value

SECTION = "per_agent"
AGENTS = ("command", "scripted", *CLI_AGENTS)  # tests/architecture/test_layout.py compares them with agents/registry.py
DEEPEST = 8  # deeper parts of a key are not read
_AREAS = ("health.", "limits.")
KEYS = tuple(key for key in SETTINGS if key.startswith(_AREAS))


@dataclass(frozen=True, slots=True)
class Override:
    """One key and its value in one agent's table, as written in a file."""

    agent: str
    key: str  # the key of the plain setting
    value: Any


def full_key(agent: str, key: str) -> str:
    return f"{SECTION}.{agent}.{key}"


def read_overrides(tables: object, complain: Callable[[str, str], None]) -> Iterator[Override]:
    """Yield every override in the value of `per_agent`. Mistakes go to `complain(full key, text)`."""
    if not isinstance(tables, dict):
        example = full_key(AGENTS[0], KEYS[0])
        complain(SECTION, f"'{SECTION}' is a section of settings, such as '{example}', and cannot be set itself")
        return
    for agent, table in tables.items():
        place = f"{SECTION}.{agent}"
        if agent not in AGENTS:
            known = f"this version knows {', '.join(AGENTS)}"
            complain(place, f"there is no agent '{quote_wrong_value(agent)}' ({known}){_meant(agent, AGENTS)}")
        elif not isinstance(table, dict):
            complain(place, f"'{place}' is a section of settings, such as '{full_key(agent, KEYS[0])}'")
        else:
            for key, value in _flat(table):
                if key in KEYS:
                    yield Override(agent, key, value)
                else:
                    complain(full_key(agent, key), _explain_refusal(agent, key))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and (value or f"{key}." in _AREAS) and key.count(".") < DEEPEST:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _explain_refusal(agent: str, key: str) -> str:
    if f"{key}." in _AREAS:
        return f"'{full_key(agent, key)}' is a section of settings, and cannot be set itself"
    if key in SETTINGS:
        return f"'{key}' cannot be set per agent; only {' and '.join(f'{area}*' for area in _AREAS)} can"
    return f"there is no setting '{quote_wrong_value(full_key(agent, key))}'{_meant(key, KEYS, f'{SECTION}.{agent}.')}"


def _meant(word: str, known: tuple[str, ...], prefix: str = "") -> str:
    import difflib

    same_end = [name for name in known if name.rpartition(".")[2] == word.rpartition(".")[2]]
    close = difflib.get_close_matches(word, known, n=1) or same_end[:1]
    return f"; did you mean '{prefix}{close[0]}'?" if close else ""
