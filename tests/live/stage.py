"""A fleet with a real agent CLI in it, and the stub in its provider's place: an account per scenario."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.fleet import Fleet, processes_of, wait_until

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.registry import AGENTS
from holdfast.rehearsal.stub import StubServer
from holdfast.rehearsal.stub.address import STUB_ACCOUNTS

# The first time it never ends; whoever comes after a kill, with or without a memory of it, gets on.
ONCE = "test -e once.txt || { touch once.txt; sleep 1004; }"
PROGRAM = "python3 -c \"open('made.txt', 'w')\""
ADDRESSES = {"once": ("shell", ONCE), "program": ("shell", PROGRAM)}  # scenarios of ours; the rest are the stub's own
PATIENCE = 180.0  # the slow CLIs take ten seconds to start, on an idle machine


class Stage:
    """One agent's CLI, one home, one supervisor. Tasks name the scenario as their account."""

    def __init__(self, fleet: Fleet, stub: StubServer, name: str, binary: str) -> None:
        self.fleet, self.stub, self.name, self.binary = fleet, stub, name, binary
        self.adapter = AGENTS[name]
        self.config_dir = fleet.root / f"login-{name}"
        self.config_dir.mkdir()
        self.scratch = fleet.root / "tmp"
        self.scratch.mkdir(exist_ok=True)
        first = STUB_ACCOUNTS[name].first
        if first and isinstance(self.adapter, CliAgent):
            own = {self.adapter.login.config_variable: str(self.config_dir)}
            subprocess.run([binary, *first], env=fleet.env | own, check=True, cwd=self.config_dir, timeout=PATIENCE)
        for place, text in self.adapter.fresh_config.items() if isinstance(self.adapter, CliAgent) else ():
            path = self.config_dir / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def settle(self, *scenarios: str, **settings: object) -> None:
        """Write the user's settings: an account per scenario, and `section.key` = value."""
        stand = STUB_ACCOUNTS[self.name]
        chosen = {
            "permissions__mode": "full",
            "permissions__sandbox": True,
            "retry__base": "0.2s",
            f"{self.name}__binary": self.binary,
            **({f"{self.name}__model": stand.model} if stand.model else {}),
            **settings,
        }
        lines = [f"{key.replace('__', '.')} = {_toml(value)}" for key, value in chosen.items()]
        for scenario in scenarios:
            env = {
                **(stand.plan if "usage-limit" in scenario and stand.plan else stand.env),
                "TMPDIR": str(self.scratch),  # gemini, for one, leaves reports of its errors there
            }
            lines += [
                f"[accounts.{self.name}.{account_of(scenario)}]",
                f"base_url = {_toml(self.stub.url(*address_of(scenario)) + stand.path)}",
                f"config_dir = {_toml(str(self.config_dir))}",
                f"env = {{ {', '.join(f'{key} = {_toml(value)}' for key, value in env.items())} }}",
            ]
        path = self.fleet.root / "user" / ".config" / "holdfast" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)

    def add(self, scenario: str, *options: object) -> str:
        return self.fleet.add(f"play {scenario}", "--agent", self.name, "--account", account_of(scenario), *options)

    def run(self, scenario: str) -> str:
        """`holdfast run` until it is over; the id of its task."""
        arguments = ("--agent", self.name, "--account", account_of(scenario), "--json")
        said = self.fleet.cli("run", f"play {scenario}", *arguments, timeout=PATIENCE, code=None)
        assert said.returncode == 0, f"{said.stdout}\n{said.stderr}\n{self.why()}"
        return str(json.loads(said.stdout.splitlines()[-1])["id"])

    def wait_completed(self, task: str) -> dict[str, Any]:
        shown = self.fleet.wait_state(task, "completed", "failed", "cancelled", "paused", patience=PATIENCE)
        assert shown["state"] == "completed", f"{shown['runs']}\n{self.why()}"
        return shown

    def wait_for_file(self, task: str, name: str) -> Path:
        """Until the agent wrote it into its workspace."""

        def there() -> Path | None:
            shown = self.fleet.show(task)
            if shown["state"] not in ("queued", "running"):
                raise AssertionError(f"{shown['runs']}\n{self.why()}")
            place = shown["workspace"]["path"]
            return Path(place, name) if place and Path(place, name).exists() else None

        found = wait_until(there, f"{name} of {task} is there", PATIENCE)
        assert found is not None
        return found

    def forget_sessions(self, task: str) -> int:
        """As if the CLI's own files had been cleaned up; how many there were."""
        assert isinstance(self.adapter, CliAgent)
        assert self.adapter.transcript is not None, f"where {self.name} keeps its sessions is not known"
        place = self.adapter.transcript("*", str(self.config_dir), self.fleet.show(task)["workspace"]["path"])
        pattern = place.replace("~", self.fleet.env["HOME"], 1)
        found = wait_until(lambda: glob.glob(pattern, recursive=True), "its session is written", PATIENCE)
        for path in found:
            os.unlink(path)
        return len(found)

    def kill_agent(self, task: str) -> None:
        """SIGKILL to the CLI itself, as the kernel or a person would; it happened when the run has ended."""
        run = self.fleet.wait_started(task)["runs"][-1]
        os.kill(run["pid"], signal.SIGKILL)

    def kill_all_of(self, task: str) -> None:
        """SIGKILL to the CLI and all of its processes at once: none of them gets to write its session again."""
        run = self.fleet.show(task)["runs"][-1]
        mark = f"HOLDFAST_RUN_ID={run['id']}".encode()
        for pid in processes_of(Path(self.fleet.show(task)["workspace"]["path"])):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)

    def why(self) -> str:
        """What its runs wrote last, for a test that failed."""
        parts = [self.fleet.log()[-2000:]]
        for path in sorted(Path(self.fleet.home, "runs").glob("*/*")):
            if path.is_file() and ("out" in path.name or "err" in path.name):
                parts.append(f"--- {path}\n{path.read_text(errors='replace')[-1500:]}")
        return "\n".join(parts)


def address_of(scenario: str) -> tuple[str, ...]:
    return ADDRESSES.get(scenario) or tuple(scenario.split("/"))


def account_of(scenario: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", scenario)


def seconds(run: dict[str, Any]) -> float:
    return float(run["ended_at"]) - float(run["started_at"])


def _toml(value: object) -> str:
    return json.dumps(value)
