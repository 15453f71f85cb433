"""`make screens`: docs/pictures/*.svg, every screen of `holdfast top`, with a supervisor and scripted agents at work.

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


class Run:
    """A home, a repository and a supervisor of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.repo = root, root / "home", root / "shop"
        user = root / "user"
        (user / ".config" / "holdfast").mkdir(parents=True)
        (user / ".config" / "holdfast" / "config.toml").write_text(SETTINGS.format(repo=self.repo))
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


def _has_committed(run: Run, task_id: str) -> bool:
    task = run.show(task_id)
    return task["state"] == "running" and "mending" in str(task["reason"])


async def draw(run: Run, tasks: dict[str, str]) -> dict[str, str]:
    """Every screen, by a name for its picture."""
    from holdfast.tui.app import Top

    app, found = Top(str(run.home)), {}
    async with app.run_test(size=SIZE, notifications=False) as pilot:

        async def picture(name: str, *words: str) -> None:
            deadline = time.monotonic() + PATIENCE
            while not all(word in _text(app) for word in words):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{words} are never on the {name} screen:\n{_text(app)}")
                await pilot.pause(0.1)
            await pilot.pause(0.5)
            found[name] = app.export_screenshot(title=f"holdfast top: {name}")

        await picture("fleet", *tasks.values(), "CRITICAL")
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
    root = Path(tempfile.mkdtemp(prefix="hf-screens-"))
    run = Run(root)
    try:
        tasks = stage(run)
        os.environ.clear()
        os.environ.update(run.env)
        os.chdir(run.repo)
        pictures = asyncio.run(draw(run, tasks))
    finally:
        run.down()
    folder.mkdir(exist_ok=True)
    for name, svg in pictures.items():
        (folder / f"{name}.svg").write_text(settled(svg, run, tasks), encoding="utf-8")
    shutil.rmtree(root, ignore_errors=True)
    print(f"{len(pictures)} pictures are in {folder}: {', '.join(pictures)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
