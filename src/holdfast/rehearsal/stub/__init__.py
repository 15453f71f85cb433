"""A stub of the LLM providers, on loopback: real agent CLIs rehearse against it without a network, a login or a bill.

In a program: `with StubServer() as stub: stub.url("usage-limit")`. As a process of its own:
`python -m holdfast.rehearsal.stub --port-file F`. docs/stub-llm.md lists the scenarios.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.rehearsal.stub.scenarios import SCENARIOS, ScriptedTurn

if TYPE_CHECKING:
    from holdfast.rehearsal.stub.log import Exchange
    from holdfast.rehearsal.stub.server import StubServer, refused_url

__all__ = ["SCENARIOS", "Exchange", "ScriptedTurn", "StubServer", "refused_url"]


def __getattr__(name: str) -> Any:
    """Import the server only when it is used: a command that only lists the scenarios must start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'log' if name == 'Exchange' else 'server'}"), name)
