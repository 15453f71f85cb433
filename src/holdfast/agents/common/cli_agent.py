"""The base of the adapters for real CLIs. Each adapter is one module with data, `build` and `parse`, and no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from holdfast.agents.port import Account, AgentCommand, EndedRun, HostFacts, Permission, Stream, WorkOrder
from holdfast.agents.port import Capabilities as Capabilities  # adapters import it from here
from holdfast.base.dataclass import dataclass
from holdfast.base.text import one_line
from holdfast.core.agents.digest import RunDigest
from holdfast.core.agents.events import AgentEvent, RawLine, ToolRefused
from holdfast.core.health.signs import Sign, SignKind, signs_from_events
from holdfast.core.runs.outcome import Verdict

LONGEST = 16 * 1024 * 1024  # characters of one line that are still read as JSON

CONTINUE = (
    "You were interrupted and are now continued in the same session and the same directory. "
    "Look at what is already done (git status, git log, your own notes above), then continue until the task is "
    "complete."
)
SENT_BACK = (
    "Your work in this session was reviewed and is not accepted yet. You are continued in the same directory. "
    "The findings are in the task below: fix them, then continue until the task is complete."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """The files that show a CLI's own login without contacting a server. `{config}` is its configuration directory."""

    config_variable: str = ""  # variable with the configuration directory …
    config_directory: str = ""  # … or its default (`~` is the user's home)
    files: Sequence[str] = ()  # if any of them exists: logged in
    variables: Sequence[str] = ()  # if any of them is set: logged in
    keys_of_address: Sequence[str] = ()  # the same, for an account with a `base_url`
    command: str = ""  # what a person types to log in


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositoryTrust:
    """The CLI's own trust in repositories. Without it, the CLI ignores rules that a repository has."""

    rules: str  # file of the repository
    has_rules: Callable[[str], bool]  # of the text of that file
    file: str  # `{config}` is the configuration directory of an account …
    default_file: str  # … and this is the file of the user's own login
    is_trusted: Callable[[str, str], bool]  # of the text of that file, and the path of the repository
    remedy: str  # what a person does about it


@dataclass(frozen=True, kw_only=True, slots=True)
class CliAgent:
    """The adapter of one CLI, as data and pure functions. Implements AgentAdapter."""

    name: str
    title: str  # for people: "Claude Code"
    binary: str  # looked up in PATH, unless `<name>.binary` is set
    tested: tuple[str, str]  # the oldest and the newest version that were tested
    arguments: Callable[[WorkOrder], Sequence[str]]  # without the binary
    parse_line: Callable[[str, Stream], Sequence[AgentEvent]]
    install: str = ""  # the command that installs it
    environment: Callable[[WorkOrder], Mapping[str, str]] = lambda _order: {}
    files: Callable[[WorkOrder], Mapping[str, str]] = lambda _order: {}
    standard_input: Callable[[WorkOrder], str] = lambda order: full_prompt(order)
    refusal: Callable[[Mapping[str, object], HostFacts], str | None] = lambda _options, _surroundings: None
    own_arguments: Sequence[str] = ()  # options that `<name>.args` may not have: Holdfast sets them, or relies on them
    abbreviates: bool = False  # the CLI also accepts the beginning of an option's name
    runs_commands: bool = True  # False: the CLI never runs a command unattended, so none can be allowed
    trust: RepositoryTrust | None = None
    login_variables: Sequence[str] = ()
    capabilities: Capabilities = field(default_factory=Capabilities)
    login: Login = field(default_factory=Login)
    by_hand: Sequence[str] = ()  # arguments with which a person continues `{session}`; empty: impossible
    transcript: Callable[[str, str, str], str] | None = None  # (session, configuration, workspace) → path pattern
    own_edits: Mapping[str, str] = field(default_factory=dict)  # file → text that the CLI itself inserts into it
    litter: Sequence[str] = ()  # patterns of files that the CLI leaves in the workspace and that must not be committed
    join_lines: Callable[[Iterable[str]], Iterable[str]] = lambda lines: lines  # joins lines that the CLI wrapped
    is_banner: Callable[[str], bool] = lambda _line: (
        False
    )  # a line about the CLI itself, printed before the model's first answer
    plain_text: bool = False  # its own lines look like a model's text: no error of them ends a run at once
    reads_errors: bool = False  # some events appear only on standard error
    result_files: Mapping[str, Callable[[str], Sequence[AgentEvent]]] = field(default_factory=dict)  # file → its parser
    longest_quiet_answer: float = 0.0  # seconds of silence in a normal answer: the CLI prints it only when complete
    longest_quiet_retry: float = 0.0  # seconds for which the CLI retries in silence, which cannot be configured
    version_arguments: Sequence[str] = ("--version",)
    fresh_config: Mapping[str, str] = field(default_factory=dict)  # files (path → text) of a configuration
    # directory with which the CLI accepts a `base_url` without a login: for rehearsals and tests, which create one
    reads_events: bool = True
    provider_name: str = ""  # the provider of its models; empty: from the model's name (`openai/gpt-5`), else the agent

    def provider(self, options: Mapping[str, object]) -> str:
        model = str(options.get("model") or "")
        return self.provider_name or (model.partition("/")[0] if "/" in model else self.name)

    def problem(self, options: Mapping[str, object], surroundings: HostFacts) -> str | None:
        if options.get("max_turns") is not None and not self.capabilities.turns:
            return f"{self.title} cannot be given a number of turns (--max-turns)"
        if (refused := find_own_argument(self, options.get("args"))) is not None:
            return (
                f"the setting {self.name}.args may not have `{one_line(refused, 60)}`, because Holdfast sets it itself "
                f"or relies on it. Take it out; `holdfast config show {self.name}` lists what can be set instead"
            )
        if options.get("allow") and not self.runs_commands and permission_of(options) is Permission.EDIT:
            return (
                f"{self.title} runs no commands unattended, so it cannot use permissions.allow. Let Holdfast run them "
                "as the gate (--gate COMMAND), choose another agent, or add this task without the setting: "
                "HOLDFAST_PERMISSIONS_ALLOW= holdfast …"
            )
        return self.refusal(options, surroundings)

    def continue_by_hand(self, session: str, account: Account) -> Sequence[str]:
        """Return the command with which a person continues a session, in the account's configuration directory."""
        variable, place = self.login.config_variable, account.config_dir
        words = (word.replace("{session}", session) for word in self.by_hand)
        return (*(("env", f"{variable}={place}") if variable and place else ()), self.binary, *words)

    def build(self, order: WorkOrder) -> AgentCommand:
        program = str(order.options.get("binary") or self.binary)
        return AgentCommand(
            argv=[program, *_with_more(self.arguments(order), order.options.get("args"))],
            stdin=self.standard_input(order),
            env={**self.environment(order), **order.account.env},
            files=self.files(order),
            told=changed_prompt(order),
        )

    def parse(self, line: str, stream: Stream) -> Sequence[AgentEvent]:
        try:
            return self.parse_line(line, stream)
        except Exception:  # noqa: BLE001 - foreign output met a bug of ours: the line counts as not understood
            return (RawLine(text=line),)

    def signs(self, line: str, stream: Stream) -> Sequence[Sign]:
        found = signs_from_events(self.parse(line, stream))
        return [_soften_fatal_sign(sign) for sign in found] if self.plain_text else found

    def judge(self, ended: EndedRun) -> Verdict:
        digest = RunDigest(agent=self.name, prompt=ended.prompt, plain_text=self.plain_text)
        for line in self.join_lines(ended.output):
            for event in self.parse(line, Stream.OUT):
                digest.add(event)
        for line in ended.errors if self.reads_errors else ():
            for event in self.parse(line, Stream.ERR):
                digest.add_from_stderr(event)
        for name, read in self.result_files.items():
            for event in _read_left_file(read, ended.left.get(name, "")):
                digest.add_from_stderr(event)
        verdict = digest.verdict(ended.end, ended.error_tail, ended.at, ended.zone)
        if verdict.session_id is None and self.capabilities.preassigned_session and digest.has_events:
            # The session had the id that we chose. The run ended before the CLI printed the id.
            return replace(verdict, session_id=ended.session_id or ended.new_session or None)
        return verdict


def _read_left_file(read: Callable[[str], Sequence[AgentEvent]], text: str) -> Sequence[AgentEvent]:
    try:
        return read(text) if text else ()
    except Exception:  # noqa: BLE001 - a foreign file met a bug of ours: the file counts as empty
        return ()


def _soften_fatal_sign(sign: Sign) -> Sign:
    """Treat a fatal error as a retry, because it may be text of the model.

    The next output of the CLI decides. Without more output, the run counts as retrying.
    """
    return replace(sign, kind=SignKind.RETRY, is_hopeless=False) if sign.kind is SignKind.DOOMED else sign


def full_prompt(order: WorkOrder) -> str:
    """Return the full prompt: the task, a message to it, a request to continue, or the hand-over from another agent."""
    return changed_prompt(order) or order.prompt


def changed_prompt(order: WorkOrder) -> str:
    """Return the full prompt if it differs from the task's own prompt, else an empty text."""
    if order.session_id is not None:
        return order.reply or f"{SENT_BACK if order.is_sent_back else CONTINUE}\n\nThe task was:\n\n{order.prompt}"
    return order.hand_over or ""


def order_permission(order: WorkOrder) -> Permission:
    return permission_of(order.options)


def permission_of(options: Mapping[str, object]) -> Permission:
    return Permission(str(options.get("permission") or Permission.EDIT))


def allowed_commands(order: WorkOrder) -> Sequence[str]:
    """Return the commands that the agent may run without asking. Only the mode `edit` has any."""
    found = order.options.get("allow")
    return [str(command) for command in found] if isinstance(found, list) and _is_edit(order) else []


def _is_edit(order: WorkOrder) -> bool:
    return order_permission(order) is Permission.EDIT


def _with_more(arguments: Sequence[str], more: object) -> list[str]:
    """Return the adapter's arguments, followed by those of the user. A last `-` (read standard input) stays the last
    one."""
    extra = [str(word) for word in more] if isinstance(more, list) else []
    return [*arguments[:-1], *extra, "-"] if arguments and arguments[-1] == "-" else [*arguments, *extra]


def find_own_argument(agent: CliAgent, more: object) -> str | None:
    """Return the first of the user's arguments that the adapter reserves for itself, or None.

    The first one has to be an option: another word would be a prompt or a command of the CLI.
    """
    extra = [str(word) for word in more] if isinstance(more, list) else []
    if extra and not extra[0].startswith("-"):
        return extra[0]
    return next((word for word in extra if _is_own_argument(agent, word)), None)


def _is_own_argument(agent: CliAgent, word: str) -> bool:
    if word in ("-", "--"):
        return True
    name, _, value = word.partition("=")
    if _is_own_setting(agent, word if value and not word.startswith("-") else value):
        return True
    if word.startswith("--"):
        same = _plain_name(name)
        names = [_plain_name(own) for own in agent.own_arguments if own.startswith("--")]
        return same in names or (agent.abbreviates and any(own.startswith(same) for own in names))
    if not word.startswith("-") or not word[1].isalpha():
        return False  # the value of the option before it
    letters = {own[1] for own in agent.own_arguments if len(own) == 2}
    return bool(letters & ({word[1]} if value else set(word[1:])))


def _is_own_setting(agent: CliAgent, text: str) -> bool:
    """True for `key=value` if the adapter sets this key of the CLI's configuration itself."""
    key, equals, _ = text.partition("=")
    return bool(equals) and f"{key.strip()}=" in agent.own_arguments


def _plain_name(option: str) -> str:
    """Return the name of an option as parsers compare it: `--outputFormat` is `--output-format`."""
    return option.lower().removeprefix("--").removeprefix("no-").replace("-", "").replace("_", "")


def format_option(order: WorkOrder, name: str) -> str | None:
    """Return an option of the task as a command-line argument, or None if it is not given."""
    value = order.options.get(name)
    return None if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)


# -- reading lines of JSON ---------------------------------------------------------------------------------------------


def parse_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object on this line, or None if the line is other text, cut off, too deep or too long."""
    if len(line) > LONGEST or line[:64].lstrip()[:1] != "{":
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def as_object(value: object) -> dict[str, Any]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> Iterator[dict[str, Any]]:
    """Yield the objects in the value if it is a list, else nothing."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item


def words(value: object) -> str:
    """Return the value if it is text, else an empty text."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return the value if it is a count, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def as_turns(value: object) -> int | None:
    """Return the value as a number of turns. None: the CLI did not report it, which is not the same as 0."""
    return as_count(value) if isinstance(value, int) else None


def as_number(value: object) -> float | None:
    """Return the value if it is a number (of seconds or dollars, for example), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2**53 else None


def as_http_status(value: object) -> int | None:
    """Return the value as an HTTP status, or None if it is not one."""
    if isinstance(value, str) and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600 else None


_TELLING = ("command", "file_path", "absolute_path", "path", "dir_path", "notebook_path", "pattern", "query", "url")


def format_tool_input(value: object) -> str:
    """Return a tool's input for people: its command, its file or its search pattern, else all of it."""
    found = next((words(as_object(value).get(key)) for key in _TELLING if words(as_object(value).get(key))), "")
    return found or format_one_line(value)


def refused_tools(result: dict[str, Any]) -> Iterator[ToolRefused]:
    """Yield the tool calls that Claude Code, or a CLI with the same events, lists as refused in its last event."""
    for denial in as_objects(result.get("permission_denials")):
        yield ToolRefused(name=words(denial.get("tool_name")), input=format_tool_input(denial.get("tool_input")))


def format_one_line(value: object) -> str:
    """Return a tool's input for people, on one line."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError, TypeError):
        return ""
