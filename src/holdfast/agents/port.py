"""What an agent adapter is: it builds a command, reads events and judges an ending. It does no I/O of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from holdfast.core.agents.events import Stream as Stream  # adapters import it from here

if TYPE_CHECKING:  # a command that only asks whether a task can be accepted has to start fast
    from holdfast.core.agents.events import AgentEvent
    from holdfast.core.health.signs import Sign, SignReader
    from holdfast.core.runs.outcome import ProcessEnd, Verdict

DEFAULT_ACCOUNT = "default"  # the user's own login


class Permission(StrEnum):
    """What an agent may do without being asked. The user's choice; unattended there is nobody to ask."""

    READ = "read"  # look, and change nothing
    EDIT = "edit"  # change files of its workspace; what the CLI would ask for is refused
    FULL = "full"  # anything that its user may do, without a question


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A login of an agent's CLI. The default one is what the CLI finds by itself."""

    name: str = DEFAULT_ACCOUNT
    config_dir: str | None = None  # where the CLI keeps login and sessions; None: its own place
    base_url: str | None = None  # of the provider's API: a gateway, a proxy, a rehearsal
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # secrets: for the agent's process, nothing else

    @property
    def is_default(self) -> bool:
        return self.name == DEFAULT_ACCOUNT


USERS_OWN = Account()


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What the CLI can do for us."""

    preassigned_session: bool = False  # we choose the id of a new session
    resume: bool = True
    cost: bool = False  # it tells money, not only tokens
    tokens: bool = True
    reset_time: bool = False  # a usage limit comes with its end
    budget: bool = False  # it stops by itself at an amount of money
    turns: bool = False  # it stops by itself after so many turns
    session_usage: bool = False  # what it tells of tokens is the sum of its session, earlier runs of it included


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Where the agent will run: some CLIs refuse some modes in some places."""

    is_root: bool = False
    is_sandboxed: bool = False  # in a container, or on a machine that its user called a throw-away
    has_namespaces: bool = True  # a CLI can build a sandbox of its own there


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkOrder:
    """What one run is to do."""

    prompt: str
    run_number: int
    session_id: str | None  # the session to continue; None: a new one
    options: Mapping[str, object]
    new_session: str = ""  # the id for a new session, where the CLI lets us choose it
    account: Account = USERS_OWN
    surroundings: Surroundings = field(default_factory=Surroundings)
    inherited: Mapping[str, str] = field(default_factory=dict)  # the environment that it will have, but for our own
    files_directory: str = ""  # where `Command.files` will be; in a container too
    directory: str = ""  # where it works, with no link in it; empty: not known
    hand_over: str | None = None  # what it is told instead of the prompt: it takes over from another agent
    is_sent_back: bool = False  # what it did before was looked at, and the prompt says what is to be mended
    left_directory: str = ""  # where the CLI may leave what `AgentAdapter.leaves` names; in a container too


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """How to start the agent. The prompt goes by standard input: arguments are limited and visible to everybody."""

    argv: Sequence[str]
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # name → text: private to the run, there before it starts
    told: str = ""  # the prompt in it, where that is not the task's own: kept for people


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What there is to judge a run by."""

    end: ProcessEnd
    output: Iterable[str]  # lines of standard output, however many
    error_tail: str  # for people
    at: float  # wall time of the end
    zone: str | None = None  # the agent's time zone, if its environment named one
    session_id: str | None = None  # the session that it continued
    new_session: str = ""  # or the id that it was to give to a new one
    errors: Iterable[str] = ()  # lines of standard error, however many
    left: Mapping[str, str] = field(default_factory=dict)  # name → text, of what `AgentAdapter.leaves` names


class AgentAdapter(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def reads_events(self) -> bool:
        """False: its output is only bytes to us, and `signs` is never asked."""
        ...

    @property
    def reads_errors(self) -> bool:
        """True: some of its events stand only on standard error. Asked only of who `reads_events`."""
        ...

    @property
    def leaves(self) -> Iterable[str]:
        """Names of files in `WorkOrder.left_directory` that say more about its end than its output does."""
        ...

    @property
    def passes(self) -> Sequence[str]:
        """Variables of the user's environment (patterns) that its own login needs."""
        ...

    @property
    def litter(self) -> Sequence[str]:
        """Patterns of files that it leaves in its workspace and that belong on no branch."""
        ...

    @property
    def quiet_answers(self) -> float:
        """Seconds of silence that an honest answer of its model may take; 0: it tells an answer piece by piece."""
        ...

    def provider(self, options: Mapping[str, object]) -> str:
        """Who answers its model's requests; when that does not answer, all its tasks wait. Empty: nobody."""
        ...

    def problem(self, options: Mapping[str, object], surroundings: Surroundings) -> str | None:
        """Why a task with these options cannot be accepted, or None."""
        ...

    def build(self, order: WorkOrder) -> Command: ...

    def parse(self, line: str, stream: Stream) -> Sequence[AgentEvent]:
        """What one line says. Pure, without memory; never raises, whatever the line is."""
        ...

    def signs(self, line: str, stream: Stream) -> Sequence[Sign]:
        """What one line of its output says about its health. Pure, and cheap: every line comes here."""
        ...

    def judge(self, ended: Ended) -> Verdict:
        """What the agent's own words say about an ending. Names its positive evidence of success."""
        ...


def sign_reader(adapter: AgentAdapter) -> SignReader | None:
    """How this agent's health is read from what it writes; None: not at all."""
    from holdfast.core.health.signs import SignReader

    return SignReader(adapter.signs, reads_errors=adapter.reads_errors) if adapter.reads_events else None
