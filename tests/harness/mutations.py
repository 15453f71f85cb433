"""Mutants: edits of the source that each remove one protection, applied to a process of a test.

A test that cannot fail is a defect. So each protection is removed once, and a case of the fault campaign must notice
(tests/harness/campaign/mutants.py). The product has no switch for that: the mutant is made here, from the source.

- `EDITS` has the edits of each mutant: a file below src/holdfast, a text that stands in it exactly once, the new text.
- `Mutation(names, folder)` compiles them; `apply()` changes the running process. A fork server calls `apply` in the
  forked child, so that its own process stays whole.
- A function keeps its identity and gets new code: all modules that have imported it see the mutant.
- A file of SQL statements is parsed again, and its statements are replaced in place.
- The keeper, its fork server and the container client run as files of their own. Edited copies are written into
  `folder`, and the paths in the modules that start them are replaced.
- A command that is started as a new interpreter is started by `command`, through tests/harness/mutant.py.
"""

from __future__ import annotations

import ast
import builtins
import dis
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import holdfast

SOURCE = Path(holdfast.__file__).parent
KEEPER, FORK_SERVER = "processes/keeper.py", "processes/keeper_fork_server.py"
CLIENT = "containers/client.py"
STAND_ALONE = (KEEPER, FORK_SERVER, CLIENT)
KEEPER_RECORDS = ("pid.json", "exit.json", "empty.json")
BY_TASK = "keeper-trace-by-task"  # not a mutant: keepers take their trace file from the task (tests/hostile/gate.py)
TRACE_OF_TASK = "KEEPER_TRACE"

Edit = tuple[str, str, str]  # file below src/holdfast, old text, new text

# -- the edits: anchored at code, not at comments or docstrings --------------------------------------------------------

_LIFE_OF = "    return judge_liveness(identity, seen)\n"
_SAME_BOOT = (
    "    identity = ProcessIdentity(boot_id=seen.boot_id, pid=identity.pid, start_ticks=identity.start_ticks)\n"
)
_SAME_START = """    ticks = seen.start_ticks or identity.start_ticks
    identity = ProcessIdentity(boot_id=identity.boot_id, pid=identity.pid, start_ticks=ticks)
"""
_OTHER_BOOT = "    if identity.boot_id != clock.boot_id():\n"
_WRITE_MARKER = "    os.makedirs(os.path.dirname(workspace.path), mode=0o700, exist_ok=True)\n"
_FSYNC_CREATED = "            os.write(fd, json.dumps(content).encode())\n            os.fsync(fd)\n"
_FSYNC_FILLED = "            os.pwrite(fd, block, 0)\n            os.fsync(fd)\n"
_FSYNC_FOLDER = "        os.fsync(self._directory)\n"
_FSYNC_OF_LAUNCHER = "            if is_record:\n                os.fsync(fd)"
_RECORD_RESULT = "    def record(self, ownership: Ownership, result: StageResult) -> StageResult:\n"
_SAVE_CHECKPOINT = (
    "    def save(self, ownership: Ownership, checkpoint: Checkpoint, keep: int, now: Instant) -> None:\n"
)
_REQUIRE_OWNER = "        require_owner(self._tasks, ownership)\n"
_SETTLE = """        changed = self._sql.change(
            "settle",
            id=ownership.task_id,
            fence=ownership.fence,
            owner=ownership.owner,
"""
_SETTLE_UNFENCED = """        present = self._get(ownership.task_id)
        changed = self._sql.change(
            "settle",
            id=ownership.task_id,
            fence=ownership.fence if present.owner is None else present.fence,
            owner=ownership.owner if present.owner is None else present.owner,
"""
_INTEND = "        self._require_owner(ownership, workspace)\n        self._record_intent(workspace, now)\n"
_READY = """        faults.tx("workspace.ready")
"""
_READY_UNINTENDED = """        faults.tx("workspace.ready")
        if self._sql.row("get", id=workspace.id) is None:
            self._record_intent(workspace, now)
"""
_FIRE = """        self._decide(record, occurrence, "fired", task_id, "", now)
"""
_UNFIRE = """        self._sql.change("unfire", **_key_columns(record.schedule), cursor=record.cursor)
        self._sql.change("unadmit", **_key_columns(record.schedule), fire_time=occurrence)
        return
"""
_UNFIRE_STATEMENTS = """-- name: unfire
UPDATE schedules SET cursor = :cursor WHERE repo = :repo AND name = :schedule

-- name: unadmit
DELETE FROM occurrences WHERE repo = :repo AND name = :schedule AND hand = 0 AND fire_time = :fire_time

"""
_LEASE = (
    "\n  AND EXISTS (SELECT 1 FROM hosts WHERE id = :host AND state = 'active' AND boot_id = :boot_id"
    " AND lease_until > :boottime)\n"
)
_REQUIRE_HOST = """        try:
            await self._context.writer.write(lambda tx: tx.hosts.require_active(self._context.host_id))
"""
_STOP_ATTEMPT = "        await attempt.stop(StopWhy.CANCEL, fast=True)\n"
_ANSWER_AT_ONCE = "        await self._answer(request, RequestResult.CANCELLED)\n"
_ENV_GIVEN = "    return {\n        name: value\n        for name, value in environment.items()\n"
_COMMON_DIR = '    ours = {**view.user_environment(), "GIT_COMMON_DIR": view.common_dir}\n'
_REDACT = "    return _short(text) if len(text) < _WORTH_KEEPING else _redactor.redact(text)\n"
_MAKE_PRIVATE = "    try:\n        if os.stat(path).st_mode & 0o077 == 0:\n"
_SALVAGE = "    try:\n        rules = replace(spec.salvage, "
_ADD_STASHES = "        if own_git is None:\n            await _add_stashes(source)\n"
_IS_GONE = "    if workspace.strategy is Strategy.NONE or workspace.state is WorkspaceState.INTENDED:\n"
_LAUNCHED = "        return KeeperRun(directory, self._children, self._cgroups, identify(pid), ready_r)\n"
_OWN_DESCRIPTORS = "    os.set_inheritable(ready_fd, False)\n"
_FIND_STRAYS = "        return find_strays(os.path.dirname(self._root), frozenset({os.getpid()}))\n"


def _before(file: str, anchor: str, more: str) -> Edit:
    """Return the edit that puts lines in front of the anchor."""
    return file, anchor, more + anchor


def _after(file: str, anchor: str, more: str) -> Edit:
    """Return the edit that puts lines behind the anchor."""
    return file, anchor, anchor + more


def _without(file: str, anchor: str, part: str, instead: str = "") -> Edit:
    """Return the edit that replaces a part of the anchor. The rest of the anchor makes it unique."""
    assert anchor.count(part) == 1
    return file, anchor, anchor.replace(part, instead)


def _keeper_sync(record: str) -> tuple[Edit, ...]:
    """Return the edits that leave out the fsync of one record of the keeper."""
    instead = f'name == "{record}" or os.fsync(fd)'
    return tuple(_without(KEEPER, anchor, "os.fsync(fd)", instead) for anchor in (_FSYNC_CREATED, _FSYNC_FILLED))


def _keeper_folder_sync(record: str) -> tuple[Edit, ...]:
    """Return the edit that leaves out the fsync of the directory of one record of the keeper."""
    sync = "os.fsync(self._directory)"
    return (_without(KEEPER, _FSYNC_FOLDER, sync, f'name == "{record}" or {sync}'),)


EDITS: Mapping[str, tuple[Edit, ...]] = {
    # -- the store
    "fence": (
        ("store/sqlite/settle.py", _SETTLE, _SETTLE_UNFENCED),
        _without("store/sqlite/workflows.py", _RECORD_RESULT + _REQUIRE_OWNER, _REQUIRE_OWNER),
    ),
    "checkpoint-fence": (_without("store/sqlite/checkpoints.py", _SAVE_CHECKPOINT + _REQUIRE_OWNER, _REQUIRE_OWNER),),
    "adopt-fence": (
        _without("store/sqlite/queries/tasks.sql", "UPDATE tasks SET fence = fence + 1, owner", "fence = fence + 1, "),
    ),
    "claim-lease": (_without("store/sqlite/queries/tasks.sql", "WHERE state = 'queued'" + _LEASE, _LEASE, "\n"),),
    "resume-count": (("store/sqlite/tasks.py", '"attempt": decision.attempt,', '"attempt": task.resume_attempts,'),),
    "cursor": (
        _before("store/sqlite/schedules.py", _FIRE, _UNFIRE),
        _before("store/sqlite/queries/schedules.sql", "-- name: admit\n", _UNFIRE_STATEMENTS),
    ),
    "sync-commit": (
        ("store/sqlite/engine/connection.py", '"PRAGMA synchronous = FULL"', '"PRAGMA synchronous = OFF"'),
    ),
    "private": (_before("store/sqlite/engine/connection.py", _MAKE_PRIVATE, "    return\n"),),
    # -- workspaces
    "intent": (
        _without("store/sqlite/workspaces.py", _INTEND, "        self._record_intent(workspace, now)\n"),
        ("store/sqlite/workspaces.py", _READY, _READY_UNINTENDED),
        # The marker is an intent too: by it the sweep finds what the ledger has lost.
        _before("workspaces/removal/owner_marker.py", _WRITE_MARKER, "    return\n"),
    ),
    "marker": (_before("workspaces/removal/owner_marker.py", _WRITE_MARKER, "    return\n"),),
    "sync-owner.json": (("workspaces/removal/owner_marker.py", "        os.fsync(file.fileno())\n", ""),),
    "sync-folder-owner.json": (
        ("workspaces/removal/owner_marker.py", "    _sync(os.path.dirname(target))", "    pass"),
    ),
    "salvage": (_before("supervisor/workspaces/save.py", _SALVAGE, "    return None, True\n"),),
    "vanished": (_before("supervisor/workspaces/save.py", _IS_GONE, "    return False\n"),),
    "stashes": (_without("workspaces/snapshots/checkpoint.py", _ADD_STASHES, "await _add_stashes(source)", "pass"),),
    "config-view": (("workspaces/git/git.py", _COMMON_DIR, "    ours = view.user_environment()\n"),),
    "config-allow-list": (("workspaces/git/config_file.py", "if allowed.fullmatch(key) and", "if True and"),),
    # -- processes
    "emptiness": (
        ("processes/launcher.py", "        if self._directory.is_empty() and is_whole:\n", "        if True:\n"),
        # The sweep would find what an unproven end leaves.
        ("processes/strays.py", _FIND_STRAYS, "        return []\n"),
    ),
    "given-up": (("processes/launcher.py", "            if directory.is_given_up():\n", "            if False:\n"),),
    "intent-file": (
        ("processes/run_dir.py", "        self.intend()\n", ""),
        _before("processes/launcher.py", _LAUNCHED, "        directory.intend()\n"),
        (
            "processes/launcher.py",
            "            if not self._directory.give_up(clock.now().wall):\n",
            "            if False:\n",
        ),
        (KEEPER, 'json.loads(read_file("intent.json"))', 'json.loads(read_file("intent.json.new"))'),
    ),
    "sync-intent.json": (
        _without("processes/run_dir.py", _FSYNC_OF_LAUNCHER, "is_record:", 'is_record and name != "intent.json.new":'),
    ),
    "sync-folder-intent.json": (
        (
            "processes/run_dir.py",
            '        self._sync()\n        faults.passed("rundir.intent")\n',
            '        faults.passed("rundir.intent")\n',
        ),
    ),
    "heed-sync": (
        _without(
            "processes/run_dir.py",
            _FSYNC_OF_LAUNCHER,
            "                os.fsync(fd)",
            "                with contextlib.suppress(OSError):\n                    os.fsync(fd)",
        ),
    ),
    "boot-id": (
        _before("processes/identity.py", _LIFE_OF, _SAME_BOOT),
        ("processes/identity.py", _OTHER_BOOT, "    if False:\n"),
    ),
    "start-time": (
        _before(
            "processes/identity.py",
            _LIFE_OF,
            _SAME_START,
        ),
    ),
    "identity": (
        ("processes/identity.py", _OTHER_BOOT, "    if False:\n"),
        ("processes/identity.py", "        is_it = life_of(identity) is Liveness.ALIVE\n", "        is_it = True\n"),
    ),
    "lifeline": ((KEEPER, 'float(str(intent["orphan_grace"]))', 'float("inf")'),),
    "lock": (_after(KEEPER, _OWN_DESCRIPTORS, "    os.close(lock_fd)\n"),),
    "go-pipe": ((KEEPER, 'if os.read(go, 1) != b"!":', "if False:"),),
    **{f"sync-{record}": _keeper_sync(record) for record in KEEPER_RECORDS},
    **{f"sync-folder-{record}": _keeper_folder_sync(record) for record in KEEPER_RECORDS},
    # -- the supervisor
    "stale-stop": (
        _before("supervisor/daemon.py", _REQUIRE_HOST, "        if True:\n            return False\n"),
        ("supervisor/runs/run.py", "if still is None or still.id != self.run.id:", "if True:"),
    ),
    "death-first": (_after("supervisor/services/requests.py", _STOP_ATTEMPT, _ANSWER_AT_ONCE),),
    "created-goes": (("containers/engine.py", 'if one["State"] in NEVER_RAN:', "if False:"),),
    # -- secrets and text
    "allow-list": (_before("agents/common/environment.py", _ENV_GIVEN, "    return dict(environment)\n"),),
    "held-secrets": (("config/env_secrets.py", "if secrets_in({name: value})]", "if False]"),),
    "redaction": (("secrets/redact.py", _REDACT, "    return text\n"),),
    "redact-shown": (("secrets/redact.py", "        shown = without_invisible(text)\n", "        shown = None\n"),),
    "clean-text": (("base/text.py", '    plain = ESCAPES.sub("", str(text))\n', "    plain = str(text)\n"),),
    # -- not a mutant
    BY_TASK: (
        _after(
            KEEPER,
            _OWN_DESCRIPTORS,
            f'    set_faults({{"HOLDFAST_FAULT_TRACE": json.loads(environment).get("{TRACE_OF_TASK}", "")}})\n',
        ),
    ),
}

# -- applying them -----------------------------------------------------------------------------------------------------


class Mutation:
    """The edits of some mutants, ready to be applied. `names`: of EDITS, separated by commas; empty: no edit.

    `folder`: a directory for edited copies of stand-alone files. It has to stay while processes of the mutant live.
    """

    def __init__(self, names: str, folder: Path | None = None) -> None:
        self._names, self._folder = names, folder
        self._changes: list[Callable[[], None]] = []
        for file, text in edited(names).items():
            if file in STAND_ALONE:
                self._changes.append(_replace_program(file, text, folder))
            elif file.endswith(".sql"):
                self._changes.append(_replace_statements(file, text))
            else:
                self._changes += _replace_functions(file, text)

    def apply(self) -> None:
        """Change this process. There is no way back: call it in a child that was forked for the mutant."""
        for change in self._changes:
            change()

    @property
    def command(self) -> list[str]:
        """The words that start a `holdfast` with these edits in a new interpreter; its arguments follow."""
        if not self._names:
            return [sys.executable, "-m", "holdfast"]
        entry = os.path.join(os.path.dirname(__file__), "mutant.py")
        return [sys.executable, entry, self._names, str(self._folder or "")]


def edited(names: str) -> dict[str, str]:
    """Return the new text of every file that these mutants edit."""
    texts: dict[str, str] = {}
    for name in filter(None, names.split(",")):
        if name not in EDITS:
            raise SystemExit(f"There is no mutant '{name}'. There are: {', '.join(sorted(EDITS))}.")
        for file, old, new in EDITS[name]:
            text = texts.get(file) or (SOURCE / file).read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise ValueError(f"mutant {name}: {file} has {text.count(old)} of these, not one:\n{old}")
            texts[file] = text.replace(old, new)
    return texts


def _replace_program(file: str, text: str, folder: Path | None) -> Callable[[], None]:
    """Write the edited program, and return the change that makes this process start it."""
    assert folder is not None, f"{file} is a program of its own: an edited copy needs a folder"
    compile(text, file, "exec", dont_inherit=True)
    folder.mkdir(parents=True, exist_ok=True)
    if file == CLIENT:
        _write(folder / "client.py", text)
        return lambda: _set("holdfast.containers.client", "__file__", folder / "client.py")
    # The fork server imports the keeper that is in its own directory.
    for each in (KEEPER, FORK_SERVER):
        path = folder / os.path.basename(each)
        if each == file or not path.exists():
            _write(path, text if each == file else (SOURCE / each).read_text(encoding="utf-8"))

    def change() -> None:
        _set("holdfast.processes.launcher", "KEEPER", folder / "keeper.py")
        _set("holdfast.processes.keeper_fork_client", "SERVER", folder / "keeper_fork_server.py")

    return change


def _write(path: Path, text: str) -> None:
    """Write a whole file at once: other processes of the same test may be starting it."""
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _set(module: str, name: str, path: Path) -> None:
    assert hasattr(importlib.import_module(module), name)
    setattr(importlib.import_module(module), name, str(path))


def _replace_statements(file: str, text: str) -> Callable[[], None]:
    """Return the change of the parsed statements, which every cursor shares."""
    from holdfast.store.sqlite.engine.statements import parse_statements, statements

    new, present = parse_statements(text), statements(Path(file).stem)

    def change() -> None:
        present.clear()
        present.update(new)

    return change


def _replace_functions(file: str, text: str) -> Iterator[Callable[[], None]]:
    """Yield one change for each function of the module whose body differs."""
    path = SOURCE / file
    module = importlib.import_module("holdfast." + file.removesuffix(".py").replace("/", "."))
    codes = dict(_codes(compile(text, str(path), "exec", dont_inherit=True)))
    for name in changed_functions(file, path.read_text(encoding="utf-8"), text):
        function, code = _find(module, name), codes[name]
        if function.__code__.co_freevars != code.co_freevars:
            raise ValueError(f"{file}: {name} has other free variables than before")
        known = vars(module).keys() | vars(builtins).keys()
        if unknown := {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"} - known:
            raise ValueError(f"{file}: {name} uses {', '.join(unknown)}, which its module does not have")
        yield _replacement(function, code)


def _replacement(function: FunctionType, code: CodeType) -> Callable[[], None]:
    def change() -> None:
        function.__code__ = code

    return change


def changed_functions(file: str, before: str, after: str) -> list[str]:
    """Return the qualified names of the functions whose bodies differ. Raise ValueError if anything else does."""
    old, new = ast.parse(before), ast.parse(after)
    old_bodies, new_bodies = list(_take_bodies(old.body)), list(_take_bodies(new.body))
    if ast.dump(old) != ast.dump(new):
        raise ValueError(f"{file}: a mutant may edit only the bodies of functions and methods")
    names = [name for name, _body in new_bodies]
    changed = [name for name, *both in zip(names, old_bodies, new_bodies, strict=True) if both[0] != both[1]]
    if twice := [name for name in changed if names.count(name) > 1]:
        raise ValueError(f"{file}: there are several functions {twice[0]}")
    return changed


def _take_bodies(statements: Sequence[ast.stmt], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the body of each function, and empty it: what is left of the tree is compared as a whole."""
    for node in statements:
        if isinstance(node, ast.ClassDef):
            yield from _take_bodies(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{node.name}", "\n".join(map(ast.dump, node.body))
            node.body = []


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Yield the code of every function and method by its qualified name."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


def _find(module: ModuleType, name: str) -> FunctionType:
    """Return the plain function behind static and class methods, properties, caches and other wrappers."""
    found: Any = module
    for part in name.split("."):
        found = vars(found)[part]
    while not isinstance(found, FunctionType) or hasattr(found, "__wrapped__"):
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, staticmethod | classmethod):
            found = found.__func__
        else:
            found = found.__wrapped__
    return found
