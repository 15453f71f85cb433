"""The shape of the tree: small folders, files of one subject, one word per capability, plain names, ports only."""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest
from scripts import rooms

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "holdfast"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))
FOLDERS = sorted({path.parent for path in SOURCE.rglob("*.py")})

MOST_FILES = 25  # in a folder
LONGEST = 700  # lines of a file that has one duty
LONGER = {"processes/keeper.py": 820}  # stands alone and is audited as a whole
SHORT = 60  # lines
MOST_SHORT = 40  # modules below that
LEAST_MEDIAN = 130  # lines
TINY = 40  # lines below which a module needs a reason
TINY_MODULES = {
    "agents/registry.py": "imported by every command: it loads adapters one by one",
    "api/colours.py": "the command line and the terminal UI share it",
    "api/fleet/trackers.py": "the cell of its capability",
    "api/work/git_runner.py": "four modules share it",
    "api/outcome.py": "imported by `ps`, which imports little",
    "base/ids.py": "a seam: tests replace it",
    "base/instant.py": "the pure core may import it, and not base/clock.py",
    "base/low_memory.py": "imported before everything else",
    "base/platform.py": "what this operating system can do, alone",
    "config/values.py": "three tables of settings share it",
    "containers/workspaces.py": "an adapter of the workspace port",
    "intake/new_task.py": "agents and intake would import one another",
    "cli/output/options.py": "every parser imports it",
    "core/agents/stream.py": "imported by `add` and `ps`, which import little",
    "store/open.py": "imported by every command: it decides what else is",
    "store/port/messages.py": "the contract of one facet, and no facet has a place for it",
    "store/sqlite/engine/fence.py": "every table checks the fence by it",
    "store/sqlite/task_lists.py": "loaded only when a list is added",
    "supervisor/settings.py": "wiring and ports share it",
    "trackers/builtin.py": "an adapter of the tracker port",
    "tui/colours.py": "one table",
    "workspaces/scratch.py": "half of the strategies share it",
    "workspaces/strategies/copy_checkout.py": "runs as a process of its own",
}
# Words of the product. A new module whose name has another word adds it to words.txt, after a look at docs/glossary.md.
WORDS = frozenset((Path(__file__).with_name("words.txt")).read_text().split())
# Participles that are nouns of this product, or git's own words.
PARTICIPLES = {"feed", "hardening", "observed", "preserved", "scripted", "setting", "spending", "stalled"}
# A port and its adapters, or a protocol of another room, share a name on purpose.
SHARED_CLASSES = {
    "Event", "GateResult", "Run", "StageResult", "Task",  # the public values of `holdfast.Client`
    "Accounts", "Children", "Command", "Store", "Transaction", "Sweeper", "ContainerSweeper", "Furnishing", "Enclosure",
}  # fmt: skip
ADAPTERS = ("agents", "trackers", "alerts", "store", "processes", "workspaces", "containers")
ALLOWED = {
    "holdfast.agents.common.cli_agent": "lines of any agent's output, split as adapters read them",
    "holdfast.agents.registry": "the table of adapters, loaded one by one",
    "holdfast.processes.caller": "who calls a command, by /proc; every command asks",
    "holdfast.store.doorbell": "a transport, not a store",
    "holdfast.store.open": "the one place that opens a store for commands",
    "holdfast.workspaces.git.fingerprint": "reads files of a git directory, no git",
    "holdfast.workspaces.names": "names that are shared with root's own cleanup",
    "holdfast.workspaces.removal.in_use": "who works in a workspace, by /proc and locks",
    "holdfast.workspaces.removal.trash": "the one way to delete a tree",
    "holdfast.workspaces.snapshots.change_detection": "a cheap mark of a tree",
}
PORT_ROOMS = (
    "supervisor",
    "api/commands.py",
    "api/queries.py",
    "api/requests.py",
    "api/fleet/why.py",
    "api/fleet/view.py",
)


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=relative)
def test_folders_are_small(folder: Path) -> None:
    files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= MOST_FILES
    assert (folder / "__init__.py").is_file()


def test_the_root_is_nearly_empty() -> None:
    assert sorted(path.name for path in SOURCE.glob("*.py")) == ["__init__.py", "__main__.py"]


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_file_is_one_subject(path: Path) -> None:
    name, length = relative(path), lines(path)
    assert length <= LONGER.get(name, LONGEST), f"{name} has {length} lines: is there a second duty in it?"
    assert length >= TINY or name in TINY_MODULES, f"{name} has {length} lines: is it a chapter of another file?"


def test_files_are_not_chapters() -> None:
    """Issue 17: median ≥ 130 lines, at most 40 modules under 60 lines."""
    lengths = [lines(path) for path in MODULES]
    assert statistics.median(lengths) >= LEAST_MEDIAN
    assert sum(length < SHORT for length in lengths) <= MOST_SHORT


def test_reasons_for_tiny_modules_are_needed() -> None:
    assert [name for name in TINY_MODULES if not (SOURCE / name).exists()] == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_module_has_a_cell(path: Path) -> None:
    """One word per capability on every layer: scripts/rooms.py finds the row of a module by the words in its path."""
    assert rooms.capability_of(relative(path)) is not None, f"{relative(path)} fits no cell of docs/rooms.md"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_names_are_plain(path: Path) -> None:
    stem = path.stem
    assert stem in PARTICIPLES or not re.search(r"(ing|ed)$", stem.rpartition("_")[2]), f"{stem}: name it with a noun"
    unknown = [word for word in stem.split("_") if word not in WORDS]
    assert unknown == [], f"{stem}: {unknown} are not words of this product (run together? a synonym?)"


def test_class_names_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in tree_of(path).body:  # a nested class is named with its owner
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(relative(path))
    twice = {name: places for name, places in found.items() if len(places) > 1 and name not in SHARED_CLASSES}
    assert twice == {}


def imports_of(path: Path) -> set[str]:
    """Return every module of ours that a file imports, in functions too."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast."):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = (SOURCE.parent / Path(*full.split("."))).with_suffix(".py").exists()
                found.add(full if is_module else node.module)
    return found


def test_the_supervisor_sees_ports_only() -> None:
    """R-TERM-01: processes, supervisor and agents stay apart. An allow-list: a new adapter is reached through its
    port, or has a reason here."""
    used: Counter[str] = Counter()
    for path in MODULES:
        if not relative(path).startswith(PORT_ROOMS):
            continue
        for name in imports_of(path):
            parts = name.split(".")
            if parts[1] in ADAPTERS and "port" not in parts:
                used[name] += 1
    assert sorted(set(used) - set(ALLOWED)) == []


def test_settings_per_agent_know_every_agent() -> None:
    """config cannot ask wiring, which imports everything: it keeps a list of names."""
    from holdfast.agents.registry import AGENTS as WIRED
    from holdfast.config.per_agent import AGENTS

    assert set(WIRED) == set(AGENTS)
    assert {name: agent.name for name, agent in WIRED.items()} == {name: name for name in WIRED}


def test_health_is_judged_in_one_place() -> None:
    """R-TERM-01: a living run is diagnosed by the health service alone. `why` shows the same judgement."""
    users = [
        relative(path) for path in MODULES if "holdfast.core.health.diagnosis" in imports_of(path) and _diagnoses(path)
    ]
    assert users == ["api/tasks/health.py", "supervisor/health/run_facts.py"]
    users = [relative(path) for path in MODULES if "STOP_WHY[" in path.read_text(encoding="utf-8")]
    assert users == ["supervisor/health/monitor.py"]


def _diagnoses(path: Path) -> bool:
    calls = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id == "diagnose" for call in calls)


def test_contributing_names_every_room() -> None:
    """CONTRIBUTING stays short: one row per room; docs/rooms.md has the files."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(text.encode()) <= 6 * 1024
    rows = re.findall(r"^\| `([a-z]+)/` \|", text, re.M)
    assert sorted(rows) == sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def test_the_supervisor_is_woken_in_one_place_of_api() -> None:
    """A command writes by `change_store` or `Commands.write` (api/commands.py), and cannot forget the doorbell."""
    users = [str(path.relative_to(SOURCE)) for path in MODULES if "doorbell.ring(" in path.read_text(encoding="utf-8")]
    assert users == ["api/commands.py"]


def test_a_plain_user_proves_some_of_every_room() -> None:
    """`make test` runs the files of tests/plain_user.txt once more as a plain user: some of every folder."""
    listed = (ROOT / "tests" / "plain_user.txt").read_text().split()
    for entry in listed:
        path, *names = entry.split("::")
        assert (ROOT / path).exists(), entry
        text = (ROOT / path).read_text() if names else ""
        assert all(re.search(rf"(def|class) {name}\b", text) for name in names), entry
    folders = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    divided = ("tests/acceptance/", "tests/core/", "tests/integration/")
    rooms = {folder if folder.startswith(divided) else "/".join(folder.split("/")[:2]) for folder in folders}
    left_out = {"tests/architecture", "tests/fuzz", "tests/live"}  # they depend on no user, or need real logins
    assert {room for room in rooms if not any(entry.startswith(room) for entry in listed)} == left_out


def test_what_is_proven_is_said_everywhere() -> None:
    """The classifiers, the doctor and `make test-pythons` name the same Pythons; pages and refusal the same git."""
    from holdfast.api.home.doctor import PROVEN_PYTHONS
    from holdfast.workspaces.git.git_versions import OLDEST_GIT, PROVEN_GIT

    found = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert tuple((3, int(minor)) for minor in found) == PROVEN_PYTHONS
    script = (ROOT / "scripts" / "test_pythons.sh").read_text()
    assert all(f"python3.{minor}" in script for minor in found)
    oldest, newest = (".".join(map(str, version)) for version in PROVEN_GIT)
    assert PROVEN_GIT[0] == OLDEST_GIT
    for page, words in (
        ("README.md", f"git {oldest} or newer"),
        ("docs/howto/troubleshooting.md", f"older than {oldest}"),
        ("docs/adr/0036-config-view.md", f"Our floor is {oldest}"),
        ("docs/security.md", f"git {oldest} and {newest} are proven"),
    ):
        assert words in (ROOT / page).read_text(encoding="utf-8"), page
