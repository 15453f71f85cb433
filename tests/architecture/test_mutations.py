"""Every mutant of the fault campaign can be made from the source as it is, and the product has no switch for one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.harness.campaign.mutants import MUTANTS
from tests.harness.mutations import BY_TASK, EDITS, SOURCE, STAND_ALONE, Mutation, changed_functions, edited

SWITCH = re.compile(r"HOLDFAST_BREAK|\bskips\(|_broken\b")


@pytest.mark.parametrize("name", sorted(EDITS))
def test_each_edit_fits_the_source(name: str, tmp_path: Path) -> None:
    """The text to replace stands in its file exactly once, and only bodies of functions change."""
    Mutation(name, tmp_path)
    for file, text in edited(name).items():
        before = (SOURCE / file).read_text(encoding="utf-8")
        assert text != before
        if file.endswith(".py"):
            assert changed_functions(file, before, text) != []


def test_each_mutant_of_the_campaign_has_its_edits() -> None:
    assert {mutant.name for mutant in MUTANTS} - set(EDITS) == set()
    assert BY_TASK not in {mutant.name for mutant in MUTANTS}


def test_the_product_has_no_switch_that_turns_a_protection_off() -> None:
    found = [str(path) for path in SOURCE.rglob("*.*") if path.suffix in (".py", ".sql") and _has_switch(path)]
    assert found == []


def _has_switch(path: Path) -> bool:
    return SWITCH.search(path.read_text(encoding="utf-8")) is not None


class Shop:
    """Functions in every wrapping that the product has."""

    @staticmethod
    def static() -> str:
        return "whole"

    @classmethod
    def of_class(cls) -> str:
        return "whole"

    @property
    def shown(self) -> str:
        return "whole"

    def method(self) -> str:
        return "whole"


@cache
def cached() -> str:
    return "whole"


def test_all_kinds_of_functions_are_replaced() -> None:
    """In a process of its own, where each kind of function has been imported before."""
    code = f"""
import sys
sys.path.insert(0, {os.path.dirname(os.path.dirname(os.path.dirname(__file__)))!r})
from pathlib import Path
from tests.architecture import test_mutations as shop
from tests.harness import mutations
kept = shop.cached, shop.Shop.method, shop.Shop()
source = Path(shop.__file__).read_text()
mutations.SOURCE = Path(shop.__file__).parent
sys.modules["holdfast.test_mutations"] = shop
text = source.replace('return "who' 'le"', 'return "cut"')
for change in list(mutations._replace_functions("test_mutations.py", text)):
    change()
print(kept[0](), kept[1](kept[2]), kept[2].static(), kept[2].of_class(), kept[2].shown)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["cut"] * 5, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("A = 1\n", "A = 2\n", "only the bodies"),
        ("def f(a): pass\n", "def f(b): pass\n", "only the bodies"),
        ("def f(): pass\ndef f(): pass\n", "def f(): pass\ndef f(): return\n", "several functions f"),
    ],
)
def test_an_edit_of_anything_else_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        changed_functions("x.py", old, new)


def test_a_new_interpreter_runs_the_mutant(tmp_path: Path) -> None:
    """The same program, by the test entry: `holdfast --version` answers, and an unknown mutant is refused."""
    whole, mutant = Mutation("").command, Mutation("lifeline", tmp_path / "copies").command
    words = [[*command, "--version"] for command in (whole, mutant)]
    said = [subprocess.run(each, capture_output=True, text=True, check=True).stdout for each in words]
    assert said[0] == said[1] != ""
    copies = {os.path.basename(file) for file in STAND_ALONE if "keeper" in file}
    assert {path.name for path in (tmp_path / "copies").iterdir()} == copies
    refused = subprocess.run([*mutant[:2], "no-such", "", "ps"], capture_output=True, text=True, check=False)
    assert "There is no mutant 'no-such'" in refused.stderr
