"""Spending caps of labels: `[budget.labels."team=web"] day_usd = 20`. Only the user's own file may have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.config.values import Parser, WholeNumber, parse_money, quote_wrong_value

if TYPE_CHECKING:  # every command imports this module and would pay for these imports
    from holdfast.core.dispatch.spending_caps import LabelCap

SECTION = "budget"
TABLE = "labels"
PLACE = f"{SECTION}.{TABLE}"
_READERS: Mapping[str, Parser] = {
    "day_usd": parse_money,
    "day_tokens": WholeNumber(0),
    "total_usd": parse_money,
    "total_tokens": WholeNumber(0),
}
KEYS = tuple(_READERS)
Complain = Callable[[str, str], None]
LabelBudgets = dict[str, "LabelCap"]


def read_label_budgets(tables: object, complain: Complain) -> LabelBudgets:
    """Return the cap of every label in the value of `budget.labels`. Mistakes go to `complain(full key, text)`."""
    found: LabelBudgets = {}
    if not isinstance(tables, dict):
        complain(PLACE, f"'{PLACE}' is a section of tables, such as '{PLACE}.\"team=web\"', and cannot be set itself")
        return found
    for label, table in tables.items():
        place = f"{PLACE}.{label}"
        key, separator, _value = label.partition("=")
        if not separator or not key:
            complain(place, f"'{quote_wrong_value(label)}' is not a label: write it KEY=VALUE, in quotes")
        elif not isinstance(table, dict):
            complain(place, f"'{place}' is a label's budget, a table with {', '.join(KEYS)}, and cannot be set itself")
        else:
            found[label] = _cap(place, table, complain)
    return found


def refuse_label_caps_in_repository(complain: Complain, user_file: str) -> None:
    why = "controls your money, so it is not read from a repository's file"
    complain(PLACE, f"'{PLACE}' {why}. Put it into {user_file}")


def label_caps_to_show(budgets: Mapping[str, LabelCap]) -> dict[str, Any]:
    """Return full key → value for `config show`."""
    found: dict[str, Any] = {}
    for label, cap in budgets.items():
        for name, part in (("day", cap.day), ("total", cap.total)):
            found |= {} if part.usd is None else {f"{PLACE}.{label}.{name}_usd": part.usd}
            found |= {} if part.tokens is None else {f"{PLACE}.{label}.{name}_tokens": part.tokens}
    return found


def _cap(place: str, table: Mapping[str, object], complain: Complain) -> LabelCap:
    from holdfast.core.dispatch.spending_caps import LabelCap, SpendingCap

    values: dict[str, Any] = {}
    for key, value in table.items():
        full = f"{place}.{key}"
        if key not in _READERS:
            complain(full, f"there is no setting '{quote_wrong_value(full)}'{_meant(key, place)}")
            continue
        try:
            values[key] = _READERS[key](value) or None  # 0: no limit
        except ValueError as error:
            complain(full, f"{full}: {error}")
    return LabelCap(
        day=SpendingCap(usd=values.get("day_usd"), tokens=values.get("day_tokens")),
        total=SpendingCap(usd=values.get("total_usd"), tokens=values.get("total_tokens")),
    )


def _meant(word: str, place: str) -> str:
    import difflib

    close = difflib.get_close_matches(word, KEYS, n=1)
    return f"; did you mean '{place}.{close[0]}'?" if close else ""
