"""A stub of the LLM providers, on loopback: real agent CLIs rehearse against it without a network, a login or a bill.

`with StubServer() as stub: stub.url("usage-limit")` in a program, `python -m holdfast.testing.stub --port-file F`
beside one. docs/stub-llm.md lists the scenarios.
"""

from __future__ import annotations

from holdfast.testing.stub.log import Exchange
from holdfast.testing.stub.scenarios import SCENARIOS
from holdfast.testing.stub.server import StubServer, refused_url

__all__ = ["SCENARIOS", "Exchange", "StubServer", "refused_url"]
