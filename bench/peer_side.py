"""Asks another manager to stop its tree: run by .venv-bench's Python, prints one JSON line.

`peer_side.py supervisord|circus ENDPOINT`. The moments are CLOCK_MONOTONIC, which all processes share, so the start of
this interpreter is not counted. `-` for the endpoint: only the version is wanted.
"""

from __future__ import annotations

import json
import sys
import time
import xmlrpc.client
from importlib import import_module
from importlib.metadata import version

PATIENCE = 30.0


def stop_supervisord(endpoint: str) -> None:
    transport = import_module("supervisor.xmlrpc").SupervisorTransport(None, None, serverurl=endpoint)
    xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor.stopProcess("tree", True)


def stop_circus(endpoint: str) -> None:
    client = import_module("circus.client").CircusClient(endpoint=endpoint, timeout=PATIENCE)
    answer = client.call({"command": "stop", "properties": {"name": "tree", "waiting": True}})
    assert answer["status"] == "ok", answer


def main(manager: str, endpoint: str) -> None:
    stop = {"supervisord": stop_supervisord, "circus": stop_circus}[manager]
    package = {"supervisord": "supervisor"}.get(manager, manager)
    import_module(f"{package}.xmlrpc" if manager == "supervisord" else f"{package}.client")
    began = time.monotonic()
    if endpoint != "-":
        stop(endpoint)
    print(json.dumps({"began": began, "ended": time.monotonic(), "version": version(package)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
