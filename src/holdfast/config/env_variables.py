"""HOLDFAST_… variables that are not settings: Holdfast's own, foreign ones, and misspelt names of settings.

These variables are never an error: agents inherit Holdfast's own variables, and scripts may use the prefix too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.config.settings import SETTINGS, variable_name

PREFIX = "HOLDFAST_"
# Every variable that our code reads or sets and that is not a setting. tests/architecture/test_variables.py checks that
# the list is complete.
OWN_VARIABLES = frozenset(
    {
        "HOLDFAST_HOME",
        "HOLDFAST_CONFIG",
        "HOLDFAST_RUN_ID",
        "HOLDFAST_RUN_DIR",
        "HOLDFAST_CHANNEL",
        "HOLDFAST_RUN_NUMBER",
        "HOLDFAST_RUN_TOKEN",
        "HOLDFAST_TASK_ID",
        "HOLDFAST_TASK_PROMPT",
        "HOLDFAST_WORKER",
        "HOLDFAST_WORKSPACE_PATH",
        "HOLDFAST_STAGE",
        "HOLDFAST_CHECKOUT",
        "HOLDFAST_HELPER",
        "HOLDFAST_NOTICE_KEY",
        "HOLDFAST_NOTICE_TEXT",
        "HOLDFAST_NOTICE_TITLE",
        "HOLDFAST_NOTICE_TRANSITION",
        "HOLDFAST_ALERT_ID",
        "HOLDFAST_ALERT_LEVEL",
        "HOLDFAST_ALERT_MESSAGE",
        "HOLDFAST_CLOCK_OFFSET",
        "HOLDFAST_DEBUG",
        "HOLDFAST_GIT_TIMEOUT",
    }
)
OWN_PREFIXES = (
    "HOLDFAST_FAULT",
    "HOLDFAST_WALK",
    "HOLDFAST_FUZZ",
    "HOLDFAST_GIT_KILLS",
    "HOLDFAST_GIT_SHIM",
    "HOLDFAST_STORM",
    "HOLDFAST_LEAKED",
    "HOLDFAST_CLEANUP",
    "HOLDFAST_ROOT",
    "HOLDFAST_AGENTS_CACHE",
    "HOLDFAST_TEST_",
)
_CLOSE = 0.85


def is_ours(name: str) -> bool:
    return name in OWN_VARIABLES or name.startswith(OWN_PREFIXES) or name in _variables()


def strangers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return unknown variables with our prefix, each with the variable that was probably meant, or an empty text."""
    import difflib

    known = _variables()
    found = {}
    for name in sorted(environment):
        if name.startswith(PREFIX) and not is_ours(name):
            close = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
            found[name] = close[0] if close else ""
    return found


def _variables() -> list[str]:
    return [variable_name(key) for key in SETTINGS]
