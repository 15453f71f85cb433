"""Every HOLDFAST_… variable that the code names is known to the settings, so that nobody is warned about our own."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.config.env_variables import OWN_VARIABLES, is_ours, strangers

SOURCE = Path(__file__).resolve().parents[2] / "src" / "holdfast"
NAMED = {
    name
    for path in SOURCE.rglob("*.py")
    if "config" not in path.relative_to(SOURCE).parts
    for name in re.findall(r"HOLDFAST_[A-Z_]*[A-Z]", path.read_text())
}


def test_every_variable_in_the_code_is_known() -> None:
    assert {name for name in NAMED if not is_ours(name)} == set(), "add it to config/env_variables.py"


def test_nothing_is_known_that_the_code_does_not_use() -> None:
    assert OWN_VARIABLES - NAMED - {"HOLDFAST_CONFIG"} == set()  # that one is the settings' own


def test_slips_are_told_from_strangers() -> None:
    environment = {"HOLDFAST_AGNETS": "3", "HOLDFAST_OF_SOMEBODY_ELSE": "1", "HOLDFAST_FAULT_TRACE": "x", "PATH": "/"}
    environment |= dict.fromkeys(OWN_VARIABLES, "x") | {"HOLDFAST_AGENTS": "3"}
    assert strangers(environment) == {"HOLDFAST_AGNETS": "HOLDFAST_AGENTS", "HOLDFAST_OF_SOMEBODY_ELSE": ""}
