"""The commented file that `holdfast init` writes: every setting that a repository may have, read from the table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from holdfast.config.settings import SETTINGS
from holdfast.config.values import takes, write

_WIDTH = 100
_HEAD = """\
# Settings of Holdfast for this repository. Every line shows a default: remove the `#` in front of one to change it.
# They stand above your own (~/.config/holdfast/config.toml) and below HOLDFAST_… variables and flags.
# `holdfast config check` finds mistakes, `holdfast config show --origin` says what holds and why.
# Durations carry a unit ("90s", "5m", "1h30m"), sizes too ("512MiB", "2G").
"""
_PER_AGENT = """\
# health.* and limits.* may also be set for one agent only; its own value wins over the plain one.
# [per_agent.command.health]
# stuck_after = "20m"
"""


def template(found_agents: Sequence[str] = ()) -> str:
    """The text of a new holdfast.toml. `found_agents` are lines about the agent CLIs of this machine."""
    blocks = [_HEAD]
    if found_agents:
        blocks.append("\n".join(f"# {line}".rstrip() for line in found_agents) + "\n")
    for key, setting in SETTINGS.items():
        if setting.is_for_repositories:
            blocks.append(_block(key))
    blocks.append(_PER_AGENT)
    return "\n".join(blocks)


def _block(key: str) -> str:
    setting = SETTINGS[key]
    words = f"{setting.meaning} Takes {takes(setting.parse).replace('`', '')}."
    if setting.default is None:
        words += " Not set by default."
    if setting.needs_trust:
        words += " It could run commands or show secrets: after a change, `holdfast trust` is asked for."
    lines = [f"# {line}" for line in textwrap.wrap(words, _WIDTH)]
    return "\n".join([*lines, f"# {key} = {write(setting.parse, setting.default)}\n"])
