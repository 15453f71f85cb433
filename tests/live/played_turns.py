"""What the model answers in each played page."""

from __future__ import annotations

from holdfast.rehearsal.stub import ScriptedTurn

_DOCUMENTED = 'def total(prices):\n    """Return the sum of all prices."""\n    return sum(prices)\n'

_VAT = "def with_vat(price, rate):\n    return price * (1 + rate / 100)\n"
_BROKEN = "def discounted(price, percent):\n    return price - percent\n"
_RIGHT = "def discounted(price, percent):\n    return price * (1 - percent / 100)\n"
_DISCOUNT_TEST = """\
import unittest

from discount import discounted


class DiscountTest(unittest.TestCase):
    def test_a_quarter_off(self):
        self.assertEqual(discounted(200, 25), 150)
"""

TURNS = {
    "README.md": [
        ScriptedTurn(
            prompt="Add a docstring",
            reads=["prices.py"],
            files={"prices.py": _DOCUMENTED},
            text="I added a docstring to total().",
        ),
    ],
    "docs/tutorial.md": [
        ScriptedTurn(
            prompt="Add a docstring",
            reads=["prices.py"],
            files={"prices.py": _DOCUMENTED},
            text="I added a docstring to total().",
        ),
        ScriptedTurn(
            prompt="Also write a test for it",
            files={
                "test_vat.py": "import unittest\n\nfrom vat import with_vat\n\n\nclass VatTest(unittest.TestCase):\n"
                "    def test_twenty_percent(self):\n        self.assertEqual(with_vat(100, 20), 120)\n"
            },
            text="test_vat.py checks 20 %.",
        ),
        ScriptedTurn(
            prompt="FAILED (failures=1)",
            reads=["discount.py"],
            files={"discount.py": _RIGHT},
            text="The discount is a percentage. It is fixed, and the test passes.",
        ),
        ScriptedTurn(
            prompt="Add a function discounted",
            files={"discount.py": _BROKEN, "test_discount.py": _DISCOUNT_TEST},
            text="discounted() is in discount.py, with a test.",
        ),
        ScriptedTurn(prompt="Add a module vat.py", files={"vat.py": _VAT}, text="with_vat() is in vat.py."),
        ScriptedTurn(
            prompt="Write a README",
            files={"README.md": "# Shop\n\n`total(prices)` adds prices.\n"},
            text="README.md says what the module does.",
        ),
        ScriptedTurn(
            prompt="Add a changelog",
            files={"CHANGELOG.md": "# Changes\n\n- First version.\n"},
            text="CHANGELOG.md has a first entry.",
        ),
        ScriptedTurn(
            prompt="Add a module currency.py",
            files={"currency.py": 'def euros(amount):\n    return f"{amount:.2f} €"\n'},
            text="euros() is in currency.py.",
        ),
        ScriptedTurn(
            prompt="Explain the module",
            files={"docs/prices.md": "# Prices\n\n`total` returns the sum.\n"},
            text="docs/prices.md explains it.",
        ),
        ScriptedTurn(
            prompt="merged since yesterday", text="Nothing worth a comment: the changes are small and tested."
        ),
    ],
    "docs/runbook.md": [
        ScriptedTurn(prompt="Write notes", files={"NOTES.md": "# Notes\n"}, text="NOTES.md is written."),
        ScriptedTurn(prompt="Write half", files={"half.txt": "half\n"}, text="Half is written."),
        ScriptedTurn(
            prompt="Add a docstring",
            reads=["prices.py"],
            files={"prices.py": _DOCUMENTED},
            text="I added a docstring to total().",
        ),
    ],
}
