"""A reader for one file of settings: its values with their lines, and all of its mistakes at once.

A repository's file may come from anybody. Such a file is read completely or not at all, and reading it never takes
long.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.config.per_agent import SECTION as PER_AGENT
from holdfast.config.per_agent import full_key, read_overrides
from holdfast.config.problems import SettingProblem, find_key_lines
from holdfast.config.settings import SECTIONS, SETTINGS, Setting
from holdfast.config.tables import spending
from holdfast.config.tables.accounts import SECTION as ACCOUNTS
from holdfast.config.tables.accounts import Accounts, read_accounts, refuse_accounts_in_repository
from holdfast.config.tables.schedule_keys import find_checkout
from holdfast.config.tables.schedules import SECTION as SCHEDULES
from holdfast.config.tables.schedules import read_schedules
from holdfast.config.tables.workers import SECTION as WORKERS
from holdfast.config.tables.workers import Workers, read_workers
from holdfast.config.tables.workers import refuse_workers_in_repository as refuse_workers
from holdfast.config.values import WholeNumber, quote_wrong_value

if TYPE_CHECKING:  # every command imports this module and would pay for these imports
    from holdfast.core.schedules.schedule import Schedule
    from holdfast.core.workflows.draft import WorkflowDraft


LARGEST_FILE = 64 * 1024


def read_regular_file(path: str, largest: int = LARGEST_FILE) -> bytes:
    """Return the content of a regular file of at most `largest` bytes.

    A pipe or an endless device, perhaps behind a repository's symbolic link, must not hang the process.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(fd).st_mode
        if os.path.realpath(path) == os.devnull:
            return b""
        if not stat.S_ISREG(mode):
            what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise OSError(22, f"it is {what}")
        data = b""
        while len(data) <= largest and (block := os.read(fd, largest)):
            data += block
    finally:
        os.close(fd)
    if len(data) > largest:
        raise OSError(27, f"it is larger than {largest // 1024} KiB")
    return data


REPO_FILE = "holdfast.toml"
WORKFLOWS = "workflow"
_TABLES = {
    SCHEDULES: f"[[{SCHEDULES}]]",
    WORKERS: f"[[{WORKERS}]]",
    WORKFLOWS: f"[[{WORKFLOWS}.NAME.stage]]",
    ACCOUNTS: f"[{ACCOUNTS}.AGENT.NAME]",
    PER_AGENT: f"[{PER_AGENT}.AGENT]",
}
MOST_DOTS = 1000  # per line: tomllib takes quadratic time for `a.a.a.…`, and a clone's file must not hang us
MAX_KEY_PARTS = 8  # parts of a key; our longest has three
_POSITION = re.compile(r" ?\(at line (\d+), column (\d+)\)$")
_AT_END = " (at end of document)"


@dataclass(slots=True)
class Layer:
    """The settings of one source: a file, a variable of the environment, or the flags."""

    place: str
    exists: bool = True
    values: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)  # agent → key → value
    accounts: Accounts = field(default_factory=dict)
    label_budgets: spending.LabelBudgets = field(default_factory=dict)
    workers: Workers = ()
    schedules: tuple[Schedule, ...] = ()
    workflows: dict[str, WorkflowDraft] = field(default_factory=dict)
    outranked: dict[str, set[str]] = field(default_factory=dict)  # agent → keys whose earlier override stays
    trusted_tables: dict[str, Any] = field(default_factory=dict)  # other values of a repository's file that need trust
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[SettingProblem] = field(default_factory=list)

    def add_problem(self, key: str, text: str) -> None:
        self.problems.append(SettingProblem(self.place, self.lines.get(key), text))

    def add_entry_problem(self, key: str, text: str) -> None:
        """Record a problem at the line of the key, else of its entry (such as a worker), else of the list of entries:
        the first line that is known."""
        known = (key, key.partition(".")[0], key.partition("[")[0])
        self.add_problem(next((place for place in known if place in self.lines), key), text)

    def add_nested_problem(self, key: str, text: str) -> None:
        """Record a problem at the line of the key, or of the innermost table around the key that has a known line."""
        place = key
        while place and place not in self.lines:
            array, bracket, number = place.rpartition("[")
            place = array if bracket and number[:-1].isdigit() else place.rpartition(".")[0]
        self.add_problem(place, text)

    @property
    def needs_trust(self) -> dict[str, Any]:
        """Return the values that could run commands or show secrets: full key → value."""
        from holdfast.config.trust import dangerous_values

        return dangerous_values(self.values) | self.trusted_tables

    def take(self, key: str, value: object) -> None:
        """Parse and store a value, or record why it is wrong."""
        try:
            self.values[key] = SETTINGS[key].read(value)
        except ValueError as error:
            self.add_problem(key, f"{key}: {error}")

    def take_written(self, key: str, value: object) -> None:
        """Parse and store a value of a file. A number in quotes is a mistake here, but not in a variable, which has
        only text."""
        if isinstance(value, str) and isinstance(SETTINGS[key].parse, WholeNumber):
            text = quote_wrong_value(value)
            self.add_problem(key, f"{key}: '{text}' is not a whole number but text; write the number without quotes")
        else:
            self.take(key, value)

    def parse_overrides(self, tables: object) -> None:
        """Parse and store the values of the per-agent tables, or record why a value is wrong."""
        for found in read_overrides(tables, self.add_problem):
            key = full_key(found.agent, found.key)
            try:
                value = SETTINGS[found.key].read(found.value)
            except ValueError as error:
                self.add_problem(key, f"{key}: {error}")
            else:
                self.overrides.setdefault(found.agent, {})[found.key] = value


def user_file_path() -> str:
    """Return the path of the user's file: $HOLDFAST_CONFIG, else the file in the XDG configuration directory."""
    chosen = os.environ.get("HOLDFAST_CONFIG")
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "holdfast", "config.toml")


def repo_file_path(repo: str) -> str:
    return os.path.join(repo, REPO_FILE)


def read_settings_file(path: str, *, of_repository: bool, schedules: bool = True) -> Layer:
    """Read the settings in a file. A missing file is an empty layer. Mistakes are in the layer's `problems`.

    Without `schedules`, the schedules and workflows of the file are skipped. Reading them imports the modules that
    compute with times, and opens more files.
    """
    layer = Layer(path)
    try:
        data = read_regular_file(path)
    except (FileNotFoundError, NotADirectoryError):
        layer.exists = False
        return layer
    except OSError as error:
        layer.problems.append(SettingProblem(path, None, f"cannot be read: {error.strerror or error}"))
        return layer
    document = _document(data, layer)
    if PER_AGENT in document:
        layer.parse_overrides(document.pop(PER_AGENT))
    if ACCOUNTS in document:
        tables = document.pop(ACCOUNTS)
        if of_repository:
            refuse_accounts_in_repository(layer.add_problem, user_file_path())
        else:
            layer.accounts = read_accounts(tables, layer.add_problem)
    _take_label_budgets(document, layer, of_repository=of_repository)
    if WORKERS in document:
        tables = document.pop(WORKERS)
        if of_repository:
            refuse_workers(layer.add_problem, user_file_path())
        else:
            layer.workers = read_workers(tables, layer.accounts, layer.add_entry_problem)
    if not schedules:
        document.pop(SCHEDULES, None)
        document.pop(WORKFLOWS, None)
    _take_schedules(document, layer, of_repository=of_repository)
    _take_workflows(document, layer, of_repository=of_repository)
    for key, value in _flatten(document, layer):
        setting = SETTINGS[key]
        if of_repository and not setting.may_be_in_repository:
            layer.add_problem(key, _explain_user_only(key, setting))
        elif isinstance(value, dict) and not _wants_table(setting):
            layer.add_problem(key, f"'{key}' is a table here, but {setting.describe().replace('`', '')} is expected")
        else:
            layer.take_written(key, value)
    return layer


def may_contain(path: str, word: str) -> bool:
    """True if a file that cannot be parsed may contain `word`, even if the file cannot be read."""
    try:
        return word.encode() in read_regular_file(path)
    except OSError:
        return True


def _take_label_budgets(document: dict[str, Any], layer: Layer, *, of_repository: bool) -> None:
    section = document.get(spending.SECTION)
    if not isinstance(section, dict) or spending.TABLE not in section:
        return
    tables = section.pop(spending.TABLE)
    if of_repository:
        spending.refuse_label_caps_in_repository(layer.add_problem, user_file_path())
    else:
        layer.label_budgets = spending.read_label_budgets(tables, layer.add_problem)


def _take_schedules(document: dict[str, Any], layer: Layer, *, of_repository: bool) -> None:
    if SCHEDULES in document:
        repo = find_checkout(os.path.dirname(layer.place)) if of_repository else None
        tables = document.pop(SCHEDULES)
        layer.schedules = read_schedules(tables, layer.place, layer.lines, layer.add_entry_problem, repo)


def _take_workflows(document: dict[str, Any], layer: Layer, *, of_repository: bool) -> None:
    if WORKFLOWS not in document:
        return
    from holdfast.config.tables.workflows import read_workflows, workflow_values_needing_trust

    layer.workflows = read_workflows(document.pop(WORKFLOWS), layer, of_repository=of_repository)
    if of_repository:
        layer.trusted_tables |= workflow_values_needing_trust(layer.workflows)


def _document(data: bytes, layer: Layer) -> dict[str, Any]:
    """Return the parsed file. If the file is not TOML, record a problem and return an empty document."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        layer.problems.append(SettingProblem(layer.place, line, "cannot be read: it is not UTF-8 text"))
        return {}
    for number, row in enumerate(text.split("\n"), start=1):
        if row.count(".") > MOST_DOTS:
            layer.problems.append(SettingProblem(layer.place, number, "cannot be read: it is nested too deeply"))
            return {}
    try:
        document = tomllib.loads(text)
    except RecursionError:
        layer.problems.append(SettingProblem(layer.place, None, "cannot be read: it is nested too deeply"))
        return {}
    except ValueError as error:
        layer.problems.append(_syntax_problem(layer.place, text, str(error)))
        return {}
    layer.lines = _lines(text)
    return document


def _syntax_problem(place: str, text: str, message: str) -> SettingProblem:
    position = _POSITION.search(message)
    if position is not None:
        words = f"{message[: position.start()]} (column {position.group(2)})"
        return SettingProblem(place, int(position.group(1)), f"cannot be read as TOML: {words}")
    at_end = message.endswith(_AT_END)
    line = text.rstrip("\n").count("\n") + 1 if at_end else None
    return SettingProblem(place, line, f"cannot be read as TOML: {message.removesuffix(_AT_END)}")


def _lines(text: str) -> dict[str, int]:
    try:
        return {".".join(path): line for path, line in reversed(find_key_lines(text, numbered=True).items())}
    except (
        ValueError,
        IndexError,
        RecursionError,
    ):  # tomllib accepts more TOML than `lines_of`: then errors have no line
        return {}


def _flatten(document: Mapping[str, Any], layer: Layer, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the known keys of a document with their values. Record every other key as a problem."""
    for name, value in document.items():
        key = f"{prefix}{name}"
        if key in SETTINGS:
            yield key, value
        elif key not in SECTIONS:
            yield from _report_unknown_keys(key, value, layer)
        elif isinstance(value, dict):
            yield from _flatten(value, layer, f"{key}.")
        else:
            example = next(known for known in SETTINGS if known.startswith(f"{key}."))
            layer.add_problem(key, f"'{key}' is a section of settings, such as '{example}', and cannot be set itself")


def _report_unknown_keys(key: str, value: object, layer: Layer) -> Iterator[tuple[str, Any]]:
    """Record a problem for an unknown key, or one for each key of an unknown table, each with its own suggestion."""
    table = _suggest_table(key) if isinstance(value, dict | list) else None
    if table is not None:
        layer.add_problem(key, f"there is no section '{quote_wrong_value(key)}'; did you mean {table}?")
        return
    if isinstance(value, dict) and value and key.count(".") < MAX_KEY_PARTS:
        for name, inner in value.items():
            yield from _report_unknown_keys(f"{key}.{name}", inner, layer)
        return
    what = "section" if isinstance(value, dict) else "setting"
    layer.add_problem(key, f"there is no {what} '{quote_wrong_value(key)}'{suggest_setting(key, what)}")


def _suggest_table(key: str) -> str | None:
    """Return the header of the table that was probably meant, such as `[[worker]]`, or None."""
    import difflib

    close = difflib.get_close_matches(key, _TABLES, n=1, cutoff=0.8)
    return _TABLES[close[0]] if close else None


# Words of other tools for a setting → its key. Their letters would lead to another setting.
_OTHER_WORDS = {
    **dict.fromkeys(("retries", "tries", "max_retries"), "retry.max"),
    **dict.fromkeys(("timeout", "max_runtime", "time_limit"), "health.max_runtime"),
    **dict.fromkeys(("gate", "gates", "check", "test", "tests"), "gate.command"),
    **dict.fromkeys(("concurrency", "parallel", "slots", "jobs"), "agents"),
    **dict.fromkeys(("slack", "ntfy", "mail"), "notify.urls"),
    "model": "claude.model",
    "workspace": "workspace.strategy",
}


def suggest_setting(key: str, what: str = "setting") -> str:
    """Return the end of a message that suggests the key that was probably meant, or an empty text."""
    import difflib

    if what == "setting" and key.lower() in _OTHER_WORDS:
        return f"; did you mean '{_OTHER_WORDS[key.lower()]}'?"
    known = list(SETTINGS) if what == "setting" else sorted(SECTIONS)
    same_end = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
    close = difflib.get_close_matches(key, known, n=1) or same_end[:1]
    return f"; did you mean '{close[0]}'?" if close else ""


def _wants_table(setting: Setting) -> bool:
    return isinstance(setting.default, dict)


def _explain_user_only(key: str, setting: Setting) -> str:
    return f"'{key}' {setting.user_only}, so it is not read from a repository's file. Put it into {user_file_path()}"
