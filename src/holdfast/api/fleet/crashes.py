"""Crashes in words, for `show`, `why` and `crashes`."""

from __future__ import annotations

from typing import Any

from holdfast.api.format import moment
from holdfast.base.text import one_line

Row = dict[str, Any]
SHOWN = 5  # the newest; `holdfast crashes ID` has all


def crash_line(crash: Row) -> str:
    """One crash on one line."""
    worker = f" (worker {crash['worker']})" if crash["worker"] else ""
    claim = "claim released" if crash["claim_released"] else "claim not released"
    return (
        f"crash {crash['id']}  {moment(crash['at'])}{worker}  {crash['outcome']}: {crash['reason']}; {claim}; "
        f"{crash['decision']}"
    )


def crash_lines(crashes: list[Row]) -> list[str]:
    left = len(crashes) - SHOWN
    more = [f"and {left} earlier crash(es): `holdfast crashes {crashes[0]['task']}`"] if left > 0 else []
    return [*(crash_line(crash) for crash in crashes[-SHOWN:]), *more]


def crash_summary(crashes: list[Row]) -> list[str]:
    """One sentence, where there were any."""
    if not crashes:
        return []
    last = crashes[-1]
    said = one_line(last["error_text"], 200)
    words = f" Its last words: {said}" if said else ""
    return [
        f"It crashed {len(crashes)} time(s), last at {moment(last['at'])}: {last['reason']}. {last['decision']}.{words}"
        f" All of them: `holdfast crashes {last['task']}`."
    ]
