"""The map of the product: capability × layer → file. `make docs` writes it to docs/rooms.md.

A module belongs to the capability whose word is in its path: in its own name, else in the name of its folder. So one
word per capability on every layer is what makes the map work. tests/architecture/test_layout.py fails for a module that
fits no cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "holdfast"

LAYERS: Mapping[str, tuple[str, ...]] = {
    "core": ("core",),
    "config": ("config",),
    "store": ("store",),
    "adapters": ("agents", "alerts", "trackers", "processes", "workspaces", "containers"),
    "intake": ("intake",),
    "supervisor": ("supervisor", "wiring"),
    "api": ("api",),
    "cli": ("cli",),
    "tui": ("tui",),
    "client": ("client",),
}
APART = ("base", "checker", "rehearsal", "secrets")  # rooms with one duty: each is a row of its own

# The first word of each row is the capability's own. The others name its parts, as docs/glossary.md defines them.
CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    "schedules": ("schedules", "schedule", "scheduled", "cron"),
    "trackers": ("trackers", "tracker"),
    "subtasks": ("subtasks",),
    "workflows": ("workflows", "workflow", "stages", "stage", "member", "handover", "result", "results"),
    "alerts": ("alerts", "alert"),
    "accounts": ("accounts",),
    "workers": ("workers", "worker"),
    "spending": ("spending", "usage", "cost"),
    "checkpoints": ("checkpoints", "checkpoint"),
    "salvage": ("salvage", "salvages", "snapshots", "save"),
    "retention": ("retention", "preserve", "preserved", "purge"),
    "cleanup": ("cleanup", "sweep", "sweeper", "removal", "remove", "strays", "inventory"),
    "health": ("health", "liveness"),
    "dispatch": ("dispatch", "claims", "holds", "resume", "pressure"),
    "secrets": ("secrets",),
    "containers": ("containers", "container"),
    "agents": ("agents", "agent", "transcript", "logs", "log_window"),
    "workspaces": (
        "workspaces", "shell", "guard", "setup", "strategies", "git", "branches", "diff", "merge", "pull_request",
        "git_runner",
    ),
    "backup": ("backup", "backup_file", "restore", "copies"),
    "service": ("service", "systemd_units"),
    "doctor": ("doctor",),
    "init": ("init", "trust", "edit_file", "proposals", "repository"),
    "events": ("events", "event_kinds"),
    "settings": ("settings", "setting", "reload", "config", "task_settings"),
    "runs": ("runs", "run", "settle", "processes", "run_dir", "crashes"),
    "fleet": ("fleet", "live_output", "top", "stats", "hosts", "daemon", "home_lock"),
    "tasks": (
        "tasks", "task", "task_lists", "why", "add", "control", "messages", "send", "requests", "commands", "queries",
        "report", "states", "resolve", "model", "models", "prompts",
    ),
    "rehearsal": ("rehearse", "rehearsal"),
    "home": ("home",),
}  # fmt: skip

# Modules whose own name has a word of another row.
ELSEWHERE = {
    "api/home/models.py": "home",
    "config/report.py": "settings",
    "core/agents/events.py": "agents",
    "workspaces/setup/commands.py": "workspaces",
}

# What a layer has for itself, by folder or file.
OF_THE_LAYER = (
    "__main__.py", "core/states.py", "core/model.py", "store/doorbell.py", "store/open.py", "store/port/transaction.py",
    "store/port/values.py", "store/port/history.py", "store/sqlite/engine", "store/sqlite/transaction.py",
    "store/sqlite/rows.py", "store/sqlite/engine/fence.py", "supervisor/context.py", "supervisor/daemon.py",
    "supervisor/ports.py", "supervisor/service.py", "supervisor/log.py", "supervisor/services/clock.py",
    "wiring/supervisor.py", "api/format.py", "api/models.py", "cli/main.py", "cli/completion.py", "cli/help",
    "cli/output", "tui/app.py", "tui/feed.py", "tui/colours.py", "tui/terminal.py", "tui/key_reference.py",
    "tui/actions", "tui/widgets", "api/colours.py", "api/outcome.py", "client",
)  # fmt: skip


def modules() -> list[str]:
    """Return every product module, relative to src/holdfast."""
    found = (path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    return sorted(str(path.relative_to(SOURCE)) for path in found)


def layer_of(module: str) -> str | None:
    """Return the column of a module. None: its package stands apart."""
    package = module.split("/")[0]
    return next((layer for layer, packages in LAYERS.items() if package in packages), None)


def capability_of(module: str) -> str | None:
    """Return the row of a module. None: the module fits no cell."""
    if any(module == part or module.startswith(f"{part}/") for part in OF_THE_LAYER):
        return "(the layer itself)"
    if module in ELSEWHERE:
        return ELSEWHERE[module]
    package = module.split("/")[0]
    if package in APART:
        return package
    for name in reversed(module.removesuffix(".py").split("/")):
        for words in (name, *name.split("_")):
            row = next((row for row, known in CAPABILITIES.items() if words in known), None)
            if row is not None:
                return row
    return None


def page() -> str:
    """Return docs/rooms.md."""
    cells: dict[tuple[str, str], list[str]] = {}
    for module in modules():
        layer, row = layer_of(module), capability_of(module)
        if layer is not None and row is not None:
            cells.setdefault((row, layer), []).append(module)
    head = ["capability", *LAYERS]
    rows = [
        [row, *(_cell(cells.get((row, layer), ())) for layer in LAYERS)]
        for row in (*CAPABILITIES, "(the layer itself)")
    ]
    rows = [row for row in rows if any(row[1:])]
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"""# Rooms: capability × layer → file

To change a capability, read its row from left to right: rules, settings, tables, adapters, intake, service (with its
wiring), read model, command, screen. A folder stands for all of its files. Paths are relative to
`src/holdfast/`. Four rooms stand apart:
`base` (no domain), `secrets`, `rehearsal` and `checker`. SQL statements are in `store/sqlite/queries/`, migrations in
`store/sqlite/migrations/`.

{table}
"""


def _cell(found: Iterable[str]) -> str:
    """Name whole folders once."""
    found = list(found)
    shown: dict[str, None] = {}
    for module in found:
        folder = module.rpartition("/")[0]
        siblings = [other for other in modules() if other.rpartition("/")[0] == folder]
        whole = len(siblings) > 1 and all(other in found for other in siblings) and folder.count("/") > 0
        shown[f"`{folder}/`" if whole else f"`{module.removesuffix('.py')}`"] = None
    return "<br>".join(shown)
