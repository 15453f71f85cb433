"""`python -m holdfast.rehearsal.stub`: the stub as a process of its own, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import os
import signal
import threading

from holdfast.rehearsal.stub import SCENARIOS, StubServer


def main() -> int:
    scenarios = "\n".join(f"  {name:18}{text}" for name, text in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.rehearsal.stub",
        description="A stub of the LLM providers on 127.0.0.1. Give a CLI the base URL http://127.0.0.1:PORT/SCENARIO.",
        epilog=f"scenarios:\n{scenarios}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free port)")
    parser.add_argument("--port-file", metavar="FILE", help="file to write the port to, once the stub listens")
    parser.add_argument("--log", metavar="FILE", help="file to append every request to, as JSON lines")
    arguments = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with StubServer(log_file=arguments.log, port=arguments.port) as stub:
        print(f"http://127.0.0.1:{stub.port}", flush=True)
        if arguments.port_file:
            _write_whole(arguments.port_file, f"{stub.port}\n")
        ended.wait()
    return 0


def _write_whole(path: str, text: str) -> None:
    """Write a file atomically, so that a program that waits for the file finds the port in it."""
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    raise SystemExit(main())
