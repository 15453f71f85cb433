"""A soak: a fleet that misbehaves, an operator who types everything, and kill -9 for whoever is there. By a seed.

`python -m tests.soak --seconds 300 --seed 7` plays it by hand; test_soak.py where HOLDFAST_TEST_SOAK is set.
What must hold afterwards is in tests/soak_checks.py. Threads make the order differ from run to run: a seed gives the
same mixture, not the same moments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fleet import Fleet, processes_of
from tests.receivers import WebReceiver, web_receiver
from tests.standin import SCRIPT, StandIn

CODES = {0, 1, 2, 3, 4, 69, 75, 130}
ASIDES: list[tuple[str, Any, float]] = [  # what else agents do in a run, and how often
    ("commit", "so far", 0.3),
    ("usage", {"input": 400, "output": 50, "cost_usd": 0.01}, 0.3),
    ("spawn", {"kind": "session"}, 0.1),
    ("spawn", {"kind": "daemon"}, 0.1),
    ("spawn", {"kind": "ignore-term"}, 0.1),
    ("near_limit", {"used": 90, "for": "3s"}, 0.2),
    ("report", {"kind": "checkpoint", "message": "so far"}, 0.2),
]
ENDS: list[dict[str, Any]] = [
    *[{}] * 4,
    *({"limit": kind} for kind in ("rate", "usage", "usage", "auth", "billing", "overloaded", "network", "context")),
    {"crash": "SIGKILL"},
    {"crash": "SIGSEGV"},
    {"hang": True},
    {"exit": 3},
    {"report": {"kind": "fail", "message": "given up"}},
]
COMMANDS = (
    """
pause ID|pause ID --force --no-wait|pause ID --checkpoint|pause ID --for 2s|resume ID|resume ID|resume ID --force
resume ID --checkpoint|resume ID --checkpoint|resume ID --budget-tokens 99999|retry ID|retry ID|retry ID --fresh
cancel ID --no-wait|cancel ID|keep ID|keep ID --for 1s|dispatch release|worker stop web|worker stop spare --now
worker start web|worker restart spare|worker list|alerts ack --all|alerts|workspaces clean --all-preserved --yes
branches prune|diff ID|why ID|show ID|sweep|backup --store-only --force b.db|accounts|tracker sync|doctor --invariants
shell ID -c true|logs ID|merge ID
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
MOST_WAITING = 12
WAITING = ("queued", "running")
FITS = {  # which tasks a command is for, mostly
    **dict.fromkeys(("pause", "keep", "shell", "cancel"), WAITING),
    "resume": ("paused",),
    "retry": ("failed", "cancelled"),
    "merge": ("completed",),
}
MOODS: list[dict[str, Any]] = [{}, {}, {}, {"broken": 5}, {"slow": 1}, {"garbage": "{"}, {"shape": "envelope"}]
AGENT = """\
exec 9>>{w}/lock-$HOLDFAST_TASK_ID
flock -n 9 || echo "$HOLDFAST_TASK_ID $HOLDFAST_RUN_ID" >> {w}/overlaps
echo "$HOLDFAST_RUN_ID $HOLDFAST_TASK_ID" >> {w}/ran
echo "$HOLDFAST_RUN_ID" > "run-$HOLDFAST_RUN_ID.txt" && echo "$HOLDFAST_RUN_ID $HOLDFAST_TASK_ID" >> {w}/wrote
case "$1" in
commit) git add -A; git -c user.name=A -c user.email=a@b commit -qm work ;;
checkpoint) {holdfast} agent checkpoint --note so-far; sleep 0.3 ;;
subtask) {holdfast} add "of an agent" --scenario {w}/../quick.json >> {w}/subtasks ;;
crash) [ "$HOLDFAST_RUN_NUMBER" -gt 2 ] || kill -SEGV $$ ;;
daemon) (setsid sleep 600 9>&- & ) ;;
stubborn) trap '' TERM; sleep 3 ;;
fail) exit 3 ;;
esac
sleep 0.$((HOLDFAST_RUN_NUMBER % 10))
"""


class Soak:
    def __init__(self, root: Path, seed: int, seconds: float, receiver: WebReceiver) -> None:
        self.fleet = Fleet(root)
        self.fleet.may_be_warm = False
        self.dice = random.Random(seed)
        self.seconds = seconds
        self.cgroup = self.dice.choice(["auto", "off"])  # without them, a keeper that dies with us leaves a frozen task
        self.receiver = receiver
        self.witness = root / "witness"
        self.witness.mkdir()
        self.acknowledged: list[str] = []
        self.scripted: dict[str, str] = {}  # content that a scripted agent wrote, by the note that it left
        self.states: dict[str, str] = {}  # as they were lately
        self.troubles: list[str] = []
        self.actions: list[str] = []
        self.supervisors: list[subprocess.Popen[bytes]] = []
        self.stop = threading.Event()
        self._number = 0
        self._lock = threading.Lock()
        self.tracker = StandIn(self.fleet.repo)
        self._furnish(root)

    # -- the world ---------------------------------------------------------------------------------------------------

    def _furnish(self, root: Path) -> None:
        holdfast = f"{sys.executable} -m holdfast"
        (root / "agent.sh").write_text(AGENT.format(w=self.witness, holdfast=holdfast))
        (root / "quick.json").write_text(json.dumps({"step": [{"sleep": "100ms"}]}))
        tool = root / "bin" / "br"
        tool.parent.mkdir()
        tool.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {SCRIPT} "$@"\n')
        tool.chmod(0o755)
        self.fleet.env["PATH"] = f"{tool.parent}:{self.fleet.env['PATH']}"
        self.config = root / "config.toml"
        self.fleet.env["HOLDFAST_CONFIG"] = str(self.config)
        self.configure()
        self.fleet.cli("init", "--no-file")

    def configure(self, *, calm: bool = False) -> None:
        dice = self.dice
        with_mistake = not calm and dice.random() < 0.1
        workers = [] if not calm and dice.random() < 0.2 else ["web", "spare"]
        lines = [
            f"agents = {dice.choice([1, 3, 4])}" if not with_mistake else 'agents = "many"',
            'agent = "command"',
            'disk.floor = "0"',
            "pressure.min_memory = 0",
            f'checkpoint.every = "{dice.choice(["1s", "1s", "0s"])}"',
            f"checkpoint.keep = {dice.choice([1, 3])}",
            f'crash.window = "{dice.choice(["5s", "20s"])}"',
            f"crash.auto_restart = {dice.choice(['true', 'false'])}",
            f"crash.release_claims = {'true' if calm else dice.choice(['true', 'true', 'false'])}",
            f"mass_death.agents = {dice.choice([0, 3])}",
            'mass_death.window = "2s"',
            'mass_death.hold = "3s"',
            'breaker.hold = "1s"',
            'breaker.max_hold = "3s"',
            'probe.alone = "5s"',
            'outage.max = "20s"',
            'resume.jitter = "1s"',
            'resume.default_hold = "2s"',
            f"resume.auto = {'true' if calm else dice.choice(['true', 'true', 'false'])}",
            f'processes.cgroup = "{self.cgroup}"',
            f"near_limit.starts = {dice.choice([0, 1])}",
            'retry.base = "200ms"',
            'health.grace = "1s"',
            'health.orphan_grace = "8s"',
            'health.claim_grace = "2s"',
            f"budget.day_tokens = {0 if calm else dice.choice([0, 0, 3000])}",
            f'notify.webhook = "{self.receiver.url}"',
            f"notify.resolved = {dice.choice(['true', 'false'])}",
            'notify.timeout = "2s"',
            'tracker.kind = "beads"',
            'tracker.poll = "1s"',
            'tracker.timeout = "3s"',
            f'command.argv = ["sh", "{self.fleet.root}/agent.sh", "commit"]',
        ]
        for name in workers:
            lines += ["[[worker]]", f'name = "{name}"', f"restart = {dice.choice(['true', 'false'])}"]
            lines += ['labels = { area = "web" }'] if name == "web" else []
        new = self.config.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.config)

    def holdfast(self, *words: object, kill_after: float | None = None, timeout: float = 90) -> tuple[int, str, str]:
        """One command, perhaps killed on its way."""
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *map(str, words)],
            cwd=self.fleet.repo, env=self.fleet.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        if kill_after is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(kill_after)
            process.kill()
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.trouble(f"holdfast {' '.join(map(str, words))} took more than {timeout} s: {err[-300:]}")
            return 124, out, err
        if "Traceback" in err or process.returncode not in CODES | {-9}:
            self.trouble(f"holdfast {' '.join(map(str, words))} → {process.returncode}: {err[-1500:]}")
        return process.returncode, out, err

    def trouble(self, text: str) -> None:
        print("TROUBLE", text, flush=True)
        self.troubles.append(text)

    def tasks(self) -> list[dict[str, Any]]:
        code, out, _err = self.holdfast("ps", "--all", "--json")
        return [json.loads(line) for line in out.splitlines()] if code == 0 else []

    # -- tasks -------------------------------------------------------------------------------------------------------

    def scenario(self) -> Path:
        """What agents do: files that must not be lost, then some trouble, in each of the first runs another."""
        with self._lock:
            self._number += 1
            number = self._number
        dice = self.dice
        steps: list[dict[str, Any]] = []
        if dice.random() < 0.3:
            steps.append({"provider": dice.choice(["acme", "globex"])})
        for run in range(1, 5):
            note, text = f"{number}-{run}", f"scenario {number} run {run} {dice.random()}\n"
            self.scripted[note] = text
            steps.append({"run": run, "write": {"path": f"s{number}-{run}.txt", "text": text}})
            steps.append({"run": run, "touch": str(self.witness / note)})
            asides = [{key: value} for key, value, share in ASIDES if dice.random() < share]
            end = dice.choice(ENDS)
            last = [{**end, "limit": {"kind": end["limit"], "for": "2s"}}] if "limit" in end else [end] if end else []
            steps += [{"run": run, **step} for step in (*asides, {"sleep": f"{dice.randrange(20, 2500)}ms"}, *last)]
        path = self.fleet.root / f"scenario-{number}.json"
        path.write_text(json.dumps({"step": [*steps, {"print": "done"}]}))
        return path

    def add(self) -> None:
        dice = self.dice
        words: list[object] = ["add", "work", "--json", "--timeout", "20s", "--stuck-after", "4s"]
        if dice.random() < 0.3:
            words += ["--label", "area=web"]
        if dice.random() < 0.2:
            words += ["--budget-tokens", dice.choice([300, 2000])] if dice.random() < 0.5 else ["--max-resumes", 1]
        if dice.random() < 0.15:
            words += [dice.choice(["--keep-workspace", "--preserve-on-failure"])]
        if dice.random() < 0.2:
            words += ["--workspace", dice.choice(["clone", "directory", "directory:copy"])]
        if self.acknowledged and dice.random() < 0.2:
            words += [dice.choice(["--parent", "--after"]), dice.choice(self.acknowledged)]
        if dice.random() < 0.6:
            words += ["--scenario", self.scenario()]
        else:
            how = ["commit", "checkpoint", "subtask", "crash", "daemon", "stubborn", "fail", "plain"]
            words = [word for word in words if word != "--budget-tokens" and word not in (300, 2000)]
            words += ["--", "sh", self.fleet.root / "agent.sh", dice.choice(how)]
        code, out, err = self.holdfast(*words, kill_after=dice.uniform(0, 0.4) if dice.random() < 0.1 else None)
        if code == 0 or (code == -9 and out.strip()):
            with contextlib.suppress(ValueError):
                self.acknowledged.append(json.loads(out)["id"])
        elif code not in (-9, 4, 2):
            self.trouble(f"add → {code}: {err}")

    # -- trouble -----------------------------------------------------------------------------------------------------

    def up(self, *words: object) -> subprocess.Popen[bytes]:
        with (self.fleet.root / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "up", *map(str, words)],
                cwd=self.fleet.root, env=self.fleet.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.supervisors.append(process)
        return process

    def unfrozen(self) -> list[subprocess.Popen[bytes]]:
        self.supervisors = [process for process in self.supervisors if process.poll() is None]
        return self.supervisors

    def victims(self, kind: str) -> list[int]:
        found = []
        ours = {process.pid for process in self.supervisors} | {os.getpid()}
        for pid, line in processes_of(self.fleet.home).items():
            with contextlib.suppress(OSError):
                where = os.readlink(f"/proc/{pid}/cwd")
                is_keeper = where.startswith(str(self.fleet.home / "runs"))
                is_git = line.startswith("git ") or "/git" in line.split(" ")[0]
                is_agent = b"HOLDFAST_RUN_ID=" in Path(f"/proc/{pid}/environ").read_bytes() and not is_keeper
                what = "keeper" if is_keeper else "git" if is_git else "agent" if is_agent else "other"
                if what == kind and pid not in ours:
                    found.append(pid)
        return found

    def disturb(self) -> None:
        dice = self.dice
        kind = dice.choice(
            ["agent"] * 6 + ["git"] * 5 + ["supervisor"] * 4 + ["keeper"] * 3 + ["other", "term", "down"]
        )
        if kind in ("supervisor", "term"):
            for process in self.unfrozen():
                process.send_signal(signal.SIGKILL if kind == "supervisor" else signal.SIGTERM)
        elif kind == "down":
            self.holdfast("down", *dice.choice([[], ["--now"], ["--keep-agents"]]), timeout=60)
        else:
            found = self.victims(kind)
            deadline = time.monotonic() + 1
            while not found and kind == "git" and time.monotonic() < deadline:
                found = self.victims(kind)
            for pid in found[: dice.choice([1, 1, 1, 4])]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            kind = f"{kind} ×{len(found)}"
        self.actions.append(f"kill {kind}")

    def command(self) -> None:
        dice = self.dice
        issue = f"bd-{dice.randrange(40)}"
        words: list[object] = [word for line in dice.choices(COMMANDS) for word in line.split()]
        if "ID" in words:
            wanted = FITS.get(str(words[0]), ())
            fitting = [task for task, state in self.states.items() if state in wanted] if dice.random() < 0.9 else []
            task = dice.choice(fitting or self.acknowledged or ["none"])
            words = [task if word == "ID" else word for word in words]
            if "--checkpoint" in words and words[0] == "resume":
                words.append(self._checkpoint_of(task))
        if words[0] in ("merge", "backup") and dice.random() < 0.7:
            return
        code, out, err = self.holdfast(
            *words, kill_after=dice.uniform(0, 0.5) if dice.random() < 0.15 else None, timeout=120
        )
        self.actions.append(f"{' '.join(map(str, words))} → {code}")
        if words[0] == "doctor" and code == 1:
            self.trouble(f"{' '.join(map(str, words))}: {out} {err}")
        if dice.random() < 0.25:
            self.configure()
        if dice.random() < 0.3:
            self.tracker.behave(**dice.choice(MOODS))
            with contextlib.suppress(StopIteration):
                self.tracker.get(issue)
                self.tracker.set(issue, **dice.choice([{"assignee": "ann"}, {"status": "closed"}, {"title": "New"}]))
                return
            self.tracker.add(issue)
        self.receiver.behaviour = dice.choice(["take"] * 5 + ["refuse", "close"])

    def _checkpoint_of(self, task: str) -> object:
        code, out, _err = self.holdfast("show", task, "--json")
        numbers = [kept["number"] for kept in json.loads(out)["checkpoints"]] if code == 0 else []
        return self.dice.choice(numbers or [1])

    # -- the play ----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        parts = (self._adds, self._types, self._types, self._kills)
        threads = [threading.Thread(target=self._guarded, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        time.sleep(self.seconds)
        self.stop.set()
        for thread in threads:
            thread.join()

    def _guarded(self, part: Callable[[], None]) -> None:
        while not self.stop.is_set():
            try:
                part()
            except Exception as error:  # noqa: BLE001 - a fault of the soak itself is told, and it continues
                self.trouble(f"{part.__name__}: {error!r}")

    def _adds(self) -> None:
        self.states = {task["id"]: task["state"] for task in self.tasks()}
        if len([state for state in self.states.values() if state in WAITING]) < MOST_WAITING:
            self.add()
        self.stop.wait(self.dice.uniform(0, 0.5))

    def _types(self) -> None:
        self.command()
        self.stop.wait(self.dice.uniform(0, 0.8))

    def _kills(self) -> None:
        if not self.unfrozen():
            self.stop.wait(self.dice.choice([0, 0, 1, 4]))
            self.up()
            if self.dice.random() < 0.2:
                self.up()
        self.stop.wait(self.dice.uniform(0.1, 2.5))
        self.disturb()

    # -- to rest -----------------------------------------------------------------------------------------------------

    def rest(self, patience: float = 240) -> None:
        """An operator who wants an end: opens what is shut, and decides about what waits for a person."""
        self.configure(calm=True)
        self.tracker.behave()
        self.receiver.behaviour = "take"
        deadline = time.monotonic() + patience
        while tasks := self._open_all():
            for task in tasks:
                self._decide(task)
            if time.monotonic() > deadline:
                for task in tasks:
                    self.trouble(f"never ended: {self.holdfast('why', task['id'])[1]}")
                break
            time.sleep(1)
        for process in self.unfrozen():
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        last = self.up("--idle-exit", "1s")
        try:
            if last.wait(timeout=400) != 0:
                self.trouble(f"the last supervisor ended with {last.returncode}")
        except subprocess.TimeoutExpired:
            self.trouble(f"the last supervisor never comes to rest: {self.holdfast('ps')[1]}")
            last.kill()

    def _open_all(self) -> list[dict[str, Any]]:
        """What has not ended yet."""
        if not self.unfrozen():
            self.up()
        for name in ("web", "spare"):
            self.holdfast("worker", "restart", name)
        self.holdfast("dispatch", "release")
        for line in self.holdfast("accounts", "--json")[1].splitlines():
            account = json.loads(line)
            if account["state"] != "open":
                self.holdfast("accounts", "resume", account["account"])
        return [task for task in self.tasks() if task["state"] not in ("completed", "failed", "cancelled")]

    def _decide(self, task: dict[str, Any]) -> None:
        if task["state"] == "running":
            _code, out, _err = self.holdfast("why", task["id"])
            if "frozen" in out:
                for pid, line in processes_of(self.fleet.home).items():
                    with contextlib.suppress(OSError):
                        if f"HOLDFAST_TASK_ID={task['id']}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                            self.actions.append(f"an operator ends {pid} {line[:80]}")
                            os.kill(pid, signal.SIGKILL)
                self.actions.append(f"frozen {task['id']}")
                self.holdfast("cancel", task["id"], "--assume-dead")
        elif task["state"] == "paused":
            code, out, _err = self.holdfast("why", task["id"])
            if code != 0 or ("is paused" in out and "resume" not in out):
                self.trouble(f"why {task['id']} does not say how it continues: {out}")
            if task["resume_after"] is None or self.dice.random() < 0.3:
                words = self.dice.choice([["resume", task["id"]], ["cancel", task["id"], "--no-wait"]])
                self.holdfast(*words)


def soak(root: Path, seed: int, seconds: float) -> list[str]:
    from tests.soak_checks import check

    with web_receiver() as receiver:
        played = Soak(root, seed, seconds, receiver)
        try:
            played.play()
            played.rest()
            (root / "actions.log").write_text("\n".join(played.actions) + "\n")
            states: dict[str, int] = {}
            for task in played.tasks():
                states[task["state"]] = states.get(task["state"], 0) + 1
            print(f"seed {seed}: {states}, {len(played.actions)} actions, {len(receiver.received)} notices", flush=True)
            return [*played.troubles, *check(played)]
        finally:
            for process in played.unfrozen():
                process.kill()
                process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--root", type=Path)
    given = parser.parse_args()
    root = given.root or Path(tempfile.mkdtemp(prefix="soak-"))
    root.mkdir(exist_ok=True)
    print(f"seed {given.start_from_head}, in {root}", flush=True)
    found = soak(root, given.start_from_head, given.seconds)
    for line in found:
        print("FOUND", line)
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
