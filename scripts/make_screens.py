"""`make screens`: docs/pictures/*.svg, every screen of `holdfast top`, with a supervisor and scripted agents at work.

The fleet is a calm one, with stand-ins for the CLIs of claude and codex. Everything that breaks is in a second home.

Ids, times and sizes are the run's own, but for what would make every picture differ from the one before: ids of tasks
and the folder get fixed names of the same length.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIZE = (118, 30)
PATIENCE = 90.0
SETTINGS = """agents = 3

[[worker]]
name = "web"
labels = {{ area = "web" }}
restart = true

[[worker]]
name = "docs"
labels = {{ area = "docs" }}

[[schedule]]
name = "nightly"
repo = "{repo}"
cron = "0 2 * * *"
timezone = "Europe/Berlin"
prompt = "Look for flaky tests and mend one."
agent = "command"

[[schedule]]
name = "deps"
repo = "{repo}"
cron = "0 6 * * MON"
prompt = "Update the dependencies, one commit each."
agent = "command"
"""
Step = dict[str, Any]
SAYS = ("Reading the failing test", "The export drops empty rows", "I keep them, and add a test", "Running the tests")
WORKS: list[Step] = [
    {"usage": {"input": 18400, "output": 2100, "cost_usd": 0.21}},
    *({"say": words} for words in SAYS),
    {"tool": {"name": "bash", "input": "make test", "for": "50ms"}},
    {"write": {"path": "shop/export.py", "text": "def export(rows):\n    return [row for row in rows]\n"}},
    {"write": {"path": "tests/test_export.py", "text": "def test_empty():\n    assert export([[]]) == [[]]\n"}},
    {"commit": "Keep empty rows in the export"},
    {"report": {"kind": "progress", "message": "mending the last failure", "percent": 70}},
    {"hang": True},
]
CRASHES: list[Step] = [{"say": "Building the page"}, {"stderr": "Segmentation fault in libpng"}, {"crash": "SIGKILL"}]
LIMITED: list[Step] = [{"say": "Migrating"}, {"limit": {"kind": "usage", "for": "3h"}}]
FAILS: list[Step] = [
    {"write": {"path": "shop/cart.py", "text": "total = None\n"}},
    {"stderr": "3 tests failed"},
    {"exit": 1},
]


CALM = """agents = 3
[claude]
binary = "{bin}/claude"
[codex]
binary = "{bin}/codex"
"""
# What the stand-ins print. Then they wait, or end if the prompt says so.
CLAUDE: list[Step] = [
    {"type": "system", "subtype": "init", "session_id": "5d0f2c1e-0000-4000-8000-000000000001", "model": "opus"},
    *(
        {"type": "assistant", "message": {"content": [{"type": "text", "text": words}]}}
        for words in ("The export drops rows that are empty.", "I keep them, and add a test for it.")
    ),
    {
        "type": "assistant",
        "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make test"}}]},
    },
]
CODEX: list[Step] = [
    {"type": "thread.started", "thread_id": "0199a213-0000-7000-8000-000000000002"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "i0", "type": "agent_message", "text": "I read the pages first."}},
]
DONE: list[Step] = [
    {"type": "item.completed", "item": {"id": "i1", "type": "agent_message", "text": "The pages load faster."}},
    {"type": "turn.completed", "usage": {"input_tokens": 18400, "cached_input_tokens": 9000, "output_tokens": 2100}},
]


def make_cli(folder: Path, name: str, version: str, lines: Sequence[Step], ends: Sequence[Step]) -> None:
    """Write a stand-in for the CLI of an agent. It ends if it is asked to shrink something, and waits otherwise."""
    for kind, steps in (("lines", lines), ("ends", ends)):
        (folder / f"{name}.{kind}").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    path = folder / name
    path.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{version}"; exit 0; }}\n'
        f'asked="$* $(cat)"; cat "{folder}/{name}.lines"\n'
        f"case $asked in *Shrink*) echo small > logo; git add logo; git commit -qm Shrink;;"
        f' *) exec sleep 600;; esac; cat "{folder}/{name}.ends"\n'
    )
    path.chmod(0o755)


class Run:
    """A home, a repository and a supervisor of its own."""

    def __init__(self, root: Path, settings: str = SETTINGS) -> None:
        self.root, self.home, self.repo = root, root / "home", root / "shop"
        user = root / "user"
        (user / ".config" / "holdfast").mkdir(parents=True)
        (user / ".config" / "holdfast" / "config.toml").write_text(settings.format(repo=self.repo, bin=self.root))
        (user / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
        kept = {name: os.environ[name] for name in ("PATH",)}
        self.env = {**kept, "HOME": str(user), "HOLDFAST_HOME": str(self.home), "LANG": "C.UTF-8", "TZ": "UTC"}
        self.env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        (self.repo / "shop").mkdir(parents=True)
        (self.repo / "shop" / "export.py").write_text("def export(rows):\n    return [row for row in rows if row]\n")
        for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "Start")):
            subprocess.run(["git", *words], cwd=self.repo, env=self.env, check=True)
        self._number = itertools.count()
        self._supervisor: subprocess.Popen[bytes] | None = None

    def holdfast(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words], cwd=self.repo, env=self.env, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"holdfast {words}: {done.stderr}")
        return done.stdout

    def add(self, prompt: str, steps: Sequence[Step], *more: str) -> str:
        scenario = self.root / f"{next(self._number)}.json"
        scenario.write_text(json.dumps({"step": list(steps)}))
        return str(json.loads(self.holdfast("add", prompt, "--scenario", str(scenario), "--json", *more))["id"])

    def show(self, task: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.holdfast("show", task, "--json"))
        return shown

    def wait(self, fact: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not fact():
            if time.monotonic() > deadline:
                raise RuntimeError(f"this never became true: {what}")
            time.sleep(0.2)

    def up(self) -> None:
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "up"],
            cwd=self.root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=(self.root / "supervisor.log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def down(self) -> None:
        process = self._supervisor
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            process.send_signal(number)
            try:
                process.wait(timeout=20)
                return
            except subprocess.TimeoutExpired:
                continue


def stage(run: Run) -> dict[str, str]:
    """Something of everything: at work, waiting, limited, failed, crashed out. The ids by a word for each."""
    tasks = {
        "export": run.add("Keep empty rows when a list is exported", WORKS),
        "cart": run.add("Make the cart add up", FAILS, "--preserve-on-failure"),
        "images": run.add("Shrink the images of the front page", CRASHES, "--label", "area=web"),
        "schema": run.add("Migrate the orders to the new schema", LIMITED),
        "guide": run.add("Write the guide for new sellers", WORKS, "--label", "area=docs"),
    }
    tasks["reports"] = run.add("Send the reports by mail", WORKS, "--after", tasks["schema"])
    run.up()
    run.wait(lambda: run.show(tasks["cart"])["state"] == "failed", "the cart has failed")
    run.wait(lambda: run.show(tasks["schema"])["state"] == "paused", "the schema has met its limit")
    run.wait(lambda: '"benched"' in run.holdfast("worker", "list", "--json"), "the worker web is benched")
    for name in ("export", "guide"):
        run.wait(partial(_has_committed, run, tasks[name]), f"{name} is at work")
    return tasks


def stage_calm(run: Run) -> dict[str, str]:
    """A fleet on a good day: three at work, one that waits for another, one that is done."""
    make_cli(run.root, "claude", "2.1.325 (Claude Code)", CLAUDE, ())
    make_cli(run.root, "codex", "codex-cli 0.150.0", CODEX, DONE)

    def add(prompt: str, agent: str, *more: str) -> str:
        return str(json.loads(run.holdfast("add", prompt, "--agent", agent, "--json", *more))["id"])

    run.up()
    tasks = {"images": add("Shrink the images of the front page", "codex")}
    run.wait(lambda: run.show(tasks["images"])["state"] == "completed", "the images are done")
    tasks["export"] = add("Keep empty rows when a list is exported", "claude")
    tasks["cart"] = add("Make the cart add up in every currency", "claude", "--gate", "make test")
    tasks["guide"] = add("Write the guide for new sellers", "codex")
    tasks["reports"] = add("Send the reports by mail", "claude", "--after", tasks["export"])
    for name in ("export", "cart", "guide"):
        run.wait(lambda name=name: run.show(tasks[name])["state"] == "running", f"{name} is at work")  # type: ignore[misc]
    return tasks


async def draw_calm(run: Run, tasks: dict[str, str]) -> dict[str, str]:
    from holdfast.tui.app import Top

    app = Top(str(run.home))
    async with app.run_test(size=SIZE, notifications=False) as pilot:
        await _until_drawn(app, pilot, *tasks.values(), "Output of", "make test", "now")
        return {"fleet": app.export_screenshot(title="holdfast top: fleet")}


async def _until_drawn(app: Any, pilot: Any, *words: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not all(word in _text(app) for word in words):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{words} are never on the screen:\n{_text(app)}")
        await pilot.pause(0.1)
    await pilot.pause(0.5)


def _has_committed(run: Run, task_id: str) -> bool:
    task = run.show(task_id)
    return task["state"] == "running" and "mending" in str(task["reason"])


async def draw(run: Run, tasks: dict[str, str]) -> dict[str, str]:
    """Every screen, by a name for its picture."""
    from holdfast.tui.app import Top

    app, found = Top(str(run.home)), {}
    async with app.run_test(size=SIZE, notifications=False) as pilot:

        async def picture(name: str, *words: str) -> None:
            await _until_drawn(app, pilot, *words)
            found[name] = app.export_screenshot(title=f"holdfast top: {name}")

        await _until_drawn(app, pilot, *tasks.values(), "CRITICAL")
        for key, name, word in (
            ("2", "workers", "benched"),
            ("3", "alerts", "critical"),
            ("4", "schedules", "nightly"),
            ("5", "workspaces", tasks["cart"]),
        ):
            await pilot.press(key)
            await picture(name, word)
        await pilot.press("1", "question_mark")
        await picture("help", "Keys")
        await pilot.press("escape")
        app.open_task(tasks["export"])
        await picture("task", *SAYS)
        for key, name, word in (("e", "timeline", "task.claimed"), ("d", "diff", "+def test_empty")):
            await pilot.press(key)
            await picture(name, word)
    return found


def _text(app: Any) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def settled(svg: str, run: Run, tasks: dict[str, str]) -> str:
    """The same names in every run, and no font from elsewhere."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    for number, task in enumerate(tasks.values()):
        named = f"{'abcdefgh'[number]}4k9w2m7q{number}"
        svg = svg.replace(task, named).replace(task[:-1], named[:-1])  # a dialog may cover the last letter
    svg = svg.replace(str(run.root), "/home/ada/src/storefront"[: len(str(run.root))])
    return re.sub(r"terminal-\d+", "terminal", svg)


def main(argv: list[str]) -> int:
    """Into docs/pictures, or the folder that is named."""
    folder = Path(argv[0]) if argv else PICTURES
    root, kept = Path(tempfile.mkdtemp(prefix="hf-screens-")), dict(os.environ)
    folder.mkdir(exist_ok=True)
    pictures: list[str] = []
    for run, make, paint in (
        (Run(root / "a", CALM), stage_calm, draw_calm),
        (Run(root / "b"), stage, draw),
    ):
        try:
            tasks = make(run)
            os.environ.clear()
            os.environ.update(run.env)
            os.chdir(run.repo)
            made = asyncio.run(paint(run, tasks))
        finally:
            run.down()
            os.environ.update(kept)
        for name, svg in made.items():
            (folder / f"{name}.svg").write_text(settled(svg, run, tasks), encoding="utf-8")
            pictures.append(name)
    shutil.rmtree(root, ignore_errors=True)
    print(f"{len(pictures)} pictures are in {folder}: {', '.join(pictures)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
