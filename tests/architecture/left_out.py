"""Finds the tests that `make test` never plays: no case of theirs, whatever the machine has.

Left out are tests behind a switch of the environment or behind STRICT, those that begin with leave_out(True), and those
of whose cases none is kept. They are read from the source, because a skip within a test is not known to a collection.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class _Names:
    """The names of a module with their values, and those of them that depend on a switch."""

    values: Mapping[str, ast.expr]

    def is_switch(self, node: ast.AST) -> bool:
        if "HOLDFAST_" in ast.unparse(node):
            return True
        named = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return bool(named & {"STRICT", "ALL"}) or any(
            "HOLDFAST_" in ast.unparse(self.values[name]) for name in named if name in self.values
        )

    def skips(self, mark: ast.expr) -> bool:
        """True if the decorator leaves out each case of its test."""
        if isinstance(mark, ast.Name):
            return mark.id in self.values and self.skips(self.values[mark.id])
        if isinstance(mark, ast.List | ast.Tuple):
            return any(map(self.skips, mark.elts))
        text = ast.unparse(mark)
        if isinstance(mark, ast.Call) and text.startswith("pytest.mark.skipif"):
            return self.is_switch(mark.args[0])
        return text.startswith("pytest.mark.skip") or "keep=0)" in text

    def begins_with_skip(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        for step in node.body:
            if ast.unparse(step).startswith(("leave_out(True)", "pytest.skip(")):
                return True
            if isinstance(step, ast.If) and self.is_switch(step.test) and "pytest.skip(" in ast.unparse(step.body[0]):
                return True
        return False


def find_left_out(source: str) -> set[str]:
    """Return the names of the tests of a module that are left out."""
    tree = ast.parse(source)
    names = _Names(
        {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
    )
    whole = "pytestmark" in names.values and names.skips(names.values["pytestmark"])
    return set(_visit(tree.body, names, whole=whole))


def _visit(nodes: list[ast.stmt], names: _Names, *, whole: bool) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from _visit(node.body, names, whole=whole or any(map(names.skips, node.decorator_list)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            whole or any(map(names.skips, node.decorator_list)) or names.begins_with_skip(node)
        ):
            yield node.name
