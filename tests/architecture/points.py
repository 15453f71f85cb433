"""Reads our source: which functions have outside effects, and which crash points stand in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import holdfast
from holdfast.store.sqlite.engine.statements import statements

SOURCE = Path(holdfast.__file__).parent

# Calls that change something outside our own memory.
RAW = {
    "os.rename", "os.replace", "os.renames", "os.unlink", "os.remove", "os.rmdir", "os.removedirs", "os.mkdir",
    "os.makedirs", "os.link", "os.symlink", "os.truncate", "os.ftruncate", "os.chmod", "os.fchmod", "os.chown",
    "os.mkfifo", "os.mknod", "os.fsync", "os.fdatasync", "os.pwrite", "os.sendfile", "os.copy_file_range", "os.utime",
    "os.posix_fallocate", "os.kill", "os.killpg", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.popen",
    "os.execvp", "os.execvpe", "os.execv", "os.execve", "os.setxattr",
    "signal.pidfd_send_signal", "signal.pthread_kill",
    "shutil.rmtree", "shutil.copytree", "shutil.copyfile", "shutil.copy", "shutil.copy2", "shutil.move", "shutil.chown",
    "subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
    "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell",
    "tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.NamedTemporaryFile", "tempfile.TemporaryDirectory",
    "apsw.Connection",
}  # fmt: skip
WRITING_MODES = set("wax+")
RUNS_STATEMENTS = {"row", "rows", "value", "tuples", "put"}
POINTS = {
    "faults.tx": "tx.",
    "faults.effect": "",
    "faults.passed": "",
    "fault_point": "",
    "keeper.fault_point": "",
    "self._point": "",
}


@dataclass
class Function:
    file: str
    name: str
    effects: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)


def writing_statements() -> set[str]:
    """Names of statements that write, in whichever file they stand; `change` writes by its nature."""
    found, reading = set(), set()
    for path in (SOURCE / "store/sqlite/queries").glob("*.sql"):
        for name, text in statements(path.stem).items():
            words = {word.strip("();,").upper() for word in text.split()}
            if words & {"INSERT", "UPDATE", "DELETE"}:
                found.add(name)
            else:
                reading.add(name)
    return found - reading


WRITING = writing_statements()


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def literal(call: ast.Call, position: int = 0) -> str | None:
    if len(call.args) > position and isinstance(call.args[position], ast.Constant):
        return str(call.args[position].value)  # type: ignore[attr-defined]  # a constant, just checked
    return None


def effect_of(call: ast.Call) -> str | None:
    """What this call changes, or None."""
    name = dotted(call.func)
    if name in RAW:
        return name
    if name == "os.open" and any(isinstance(part, ast.Attribute) and part.attr == "O_CREAT" for part in ast.walk(call)):
        return "os.open(O_CREAT)"
    if name == "open" and WRITING_MODES & set(literal(call, 1) or _mode(call)):
        return "open for writing"
    last = name.rsplit(".", 1)[-1]
    if last == "execute" and literal(call) == "COMMIT":
        return "COMMIT"
    if last == "change" or (last in RUNS_STATEMENTS and literal(call) in WRITING):
        return f"statement {literal(call)}"
    return None


def _mode(call: ast.Call) -> str:
    modes = [word.value.value for word in call.keywords if word.arg == "mode" and isinstance(word.value, ast.Constant)]
    return str(modes[0]) if modes else ""


def functions(path: Path) -> Iterator[Function]:
    """Top-level functions and methods; what is nested in one belongs to it."""
    file = str(path.relative_to(SOURCE))

    def below(body: list[ast.stmt], prefix: str) -> Iterator[Function]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from below(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield read(node, f"{prefix}{node.name}")
            elif not isinstance(node, ast.If):
                yield read(node, "<module>")

    def read(node: ast.stmt, name: str) -> Function:
        found = Function(file, name)
        for call in (part for part in ast.walk(node) if isinstance(part, ast.Call)):
            target = dotted(call.func)
            if target in POINTS:
                point = literal(call)
                assert point is not None, (
                    f"{file}:{call.lineno}: a point's name is written out, so that it can be found"
                )
                found.points.append(POINTS[target] + point)
            elif (effect := effect_of(call)) is not None:
                found.effects.append(f"{file}:{call.lineno} {name}: {effect}")
        return found

    yield from below(ast.parse(path.read_text()).body, "")


@cache
def everything() -> list[Function]:
    """Return all product code. `rehearsal` plays agents and providers, so its effects are not ours."""
    paths = [path for path in SOURCE.rglob("*.py") if "rehearsal" not in path.parts]
    return [function for path in sorted(paths) for function in functions(path)]


def points_in_source() -> set[str]:
    return {point for function in everything() for point in function.points}
