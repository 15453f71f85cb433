"""The base of the adapters for real CLIs. Each adapter is one module with data, `build` and `parse`, and no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.agents.port import Account, Command, Ended, Permission, Stream, Surroundings, WorkOrder
from holdfast.agents.port import Capabilities as Capabilities  # adapters import it from here
from holdfast.core.agents.digest import Digest
from holdfast.core.agents.events import AgentEvent, Raw
from holdfast.core.health.signs import Sign, SignKind, signs_of
from holdfast.core.runs.outcome import Verdict

LONGEST = 16 * 1024 * 1024  # characters of one line that are still read as JSON

CONTINUE = (
    "You were interrupted and are now continued in the same session and the same directory. "
    "Look at what is already done (git status, git log, your own notes above), then go on until the task is complete."
)
SENT_BACK = (
    "Your work in this session was reviewed and is not accepted yet. You are continued in the same directory. "
    "The findings are in the task below: fix them, then go on until the task is complete."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """Where the CLI's own login can be seen without contacting a server. `{config}` is its configuration directory."""

    config_variable: str = ""  # variable with the configuration directory …
    config_directory: str = ""  # … or its default (`~` is the user's home)
    files: Sequence[str] = ()  # if any of them exists: logged in
    variables: Sequence[str] = ()  # if any of them is set: logged in
    keys_of_address: Sequence[str] = ()  # the same, for an account with a `base_url`
    command: str = ""  # what a person types to log in


@dataclass(frozen=True, kw_only=True, slots=True)
class CliAgent:
    """The adapter of one CLI, as data and pure functions. Implements AgentAdapter."""

    name: str
    title: str  # for people: "Claude Code"
    binary: str  # looked up in PATH, unless `<name>.binary` is set
    tested: tuple[str, str]  # the oldest and the newest version that were tested
    arguments: Callable[[WorkOrder], Sequence[str]]  # without the binary
    parse_line: Callable[[str, Stream], Sequence[AgentEvent]]
    environment: Callable[[WorkOrder], Mapping[str, str]] = lambda _order: {}
    files: Callable[[WorkOrder], Mapping[str, str]] = lambda _order: {}
    standard_input: Callable[[WorkOrder], str] = lambda order: instructions(order)
    refusal: Callable[[Mapping[str, object], Surroundings], str | None] = lambda _options, _surroundings: None
    passes: Sequence[str] = ()
    capabilities: Capabilities = field(default_factory=Capabilities)
    login: Login = field(default_factory=Login)
    by_hand: Sequence[str] = ()  # arguments with which a person continues `{session}`; empty: impossible
    transcript: Callable[[str, str, str], str] | None = None  # (session, configuration, workspace) → path pattern
    litter: Sequence[str] = ()  # patterns of files that the CLI leaves in the workspace and that must not be committed
    rejoin: Callable[[Iterable[str]], Iterable[str]] = lambda lines: lines  # joins lines that the CLI wrapped
    is_banner: Callable[[str], bool] = lambda _line: (
        False
    )  # a line about the CLI itself, printed before the model's first answer
    plain_text: bool = False  # errors look like a model's text: none of them ends a run at once
    reads_errors: bool = False  # some events appear only on standard error
    leaves: Mapping[str, Callable[[str], Sequence[AgentEvent]]] = field(default_factory=dict)  # file → its parser
    quiet_answers: float = 0.0  # seconds of silence in a normal answer: the CLI prints it only when complete
    quiet_retries: float = 0.0  # seconds for which the CLI retries in silence, which cannot be configured
    version_arguments: Sequence[str] = ("--version",)
    fresh_config: Mapping[str, str] = field(default_factory=dict)  # files (path → text) of a configuration
    # directory with which the CLI accepts a `base_url` without a login: for rehearsals and tests, which create one
    reads_events: bool = True
    served_by: str = ""  # the provider of its models; empty: from the model's name (`openai/gpt-5`), else the agent

    def provider(self, options: Mapping[str, object]) -> str:
        model = str(options.get("model") or "")
        return self.served_by or (model.partition("/")[0] if "/" in model else self.name)

    def problem(self, options: Mapping[str, object], surroundings: Surroundings) -> str | None:
        if options.get("max_turns") is not None and not self.capabilities.turns:
            return f"{self.title} cannot be given a number of turns (--max-turns)"
        return self.refusal(options, surroundings)

    def continue_by_hand(self, session: str, account: Account) -> Sequence[str]:
        """Return the command with which a person continues a session, in the account's configuration directory."""
        variable, place = self.login.config_variable, account.config_dir
        words = (word.replace("{session}", session) for word in self.by_hand)
        return (*(("env", f"{variable}={place}") if variable and place else ()), self.binary, *words)

    def build(self, order: WorkOrder) -> Command:
        program = str(order.options.get("binary") or self.binary)
        return Command(
            argv=[program, *self.arguments(order)],
            stdin=self.standard_input(order),
            env={**self.environment(order), **order.account.env},
            files=self.files(order),
            told=told(order),
        )

    def parse(self, line: str, stream: Stream) -> Sequence[AgentEvent]:
        try:
            return self.parse_line(line, stream)
        except Exception:  # noqa: BLE001 - foreign output met a bug of ours: the line counts as not understood
            return (Raw(text=line),)

    def signs(self, line: str, stream: Stream) -> Sequence[Sign]:
        found = signs_of(self.parse(line, stream))
        return [_in_doubt(sign) for sign in found] if self.plain_text else found

    def judge(self, ended: Ended) -> Verdict:
        digest = Digest()
        for line in self.rejoin(ended.output):
            for event in self.parse(line, Stream.OUT):
                digest.add(event)
        for line in ended.errors if self.reads_errors else ():
            for event in self.parse(line, Stream.ERR):
                digest.add_aside(event)
        for name, read in self.leaves.items():
            for event in _said(read, ended.left.get(name, "")):
                digest.add_aside(event)
        verdict = digest.verdict(ended.end, ended.error_tail, ended.at, ended.zone)
        if verdict.session_id is None and self.capabilities.preassigned_session and digest.said_something:
            # The session had the id that we chose. The run ended before the CLI printed the id.
            return replace(verdict, session_id=ended.session_id or ended.new_session or None)
        return verdict


def _said(read: Callable[[str], Sequence[AgentEvent]], text: str) -> Sequence[AgentEvent]:
    try:
        return read(text) if text else ()
    except Exception:  # noqa: BLE001 - a foreign file met a bug of ours: the file counts as empty
        return ()


def _in_doubt(sign: Sign) -> Sign:
    """Treat a fatal error as a retry, because it may be text of the model.

    The next output of the CLI decides. Without more output, the run counts as retrying.
    """
    return replace(sign, kind=SignKind.RETRY, is_hopeless=False) if sign.kind is SignKind.DOOMED else sign


def instructions(order: WorkOrder) -> str:
    """Return the full prompt: the task, a request to continue, or the hand-over from another agent."""
    return told(order) or order.prompt


def told(order: WorkOrder) -> str:
    """Return the full prompt if it differs from the task's own prompt, else an empty text."""
    if order.session_id is not None:
        return f"{SENT_BACK if order.is_sent_back else CONTINUE}\n\nThe task was:\n\n{order.prompt}"
    return order.hand_over or ""


def permission(order: WorkOrder) -> Permission:
    return permission_of(order.options)


def permission_of(options: Mapping[str, object]) -> Permission:
    return Permission(str(options.get("permission") or Permission.EDIT))


def option(order: WorkOrder, name: str) -> str | None:
    """Return an option of the task as a command-line argument, or None if it is not given."""
    value = order.options.get(name)
    return None if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)


# -- reading lines of JSON ---------------------------------------------------------------------------------------------


def json_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object on this line, or None if the line is other text, cut off, too deep or too long."""
    if len(line) > LONGEST or line[:64].lstrip()[:1] != "{":
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def table(value: object) -> dict[str, Any]:
    """Return a field that should be an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def tables(value: object) -> Iterator[dict[str, Any]]:
    """Yield the objects of a field that should be a list of objects."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item


def words(value: object) -> str:
    """Return a field that should be text, else an empty text."""
    return value if isinstance(value, str) else ""


def whole(value: object) -> int:
    """Return a field that should be a count, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def amount(value: object) -> float | None:
    """Return a field that should be a number of seconds or dollars, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2**53 else None


def status_of(value: object) -> int | None:
    """Return a field that should be an HTTP status, else None."""
    if isinstance(value, str) and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600 else None


_TELLING = ("command", "file_path", "absolute_path", "path", "dir_path", "notebook_path", "pattern", "query", "url")


def tool_input(value: object) -> str:
    """Return a tool's input for people: its command, its file or its search pattern, else all of it."""
    found = next((words(table(value).get(key)) for key in _TELLING if words(table(value).get(key))), "")
    return found or compact(value)


def compact(value: object) -> str:
    """Return a tool's input for people, on one line."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError, TypeError):
        return ""
