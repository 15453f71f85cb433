"""The interface of an agent adapter: build a command, read events, judge an ending. Adapters do no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from holdfast.base.dataclass import dataclass
from holdfast.core.agents.stream import Stream as Stream

if TYPE_CHECKING:  # a command that only checks whether a task can be accepted has to start fast
    from holdfast.core.agents.events import AgentEvent
    from holdfast.core.health.signs import Sign, SignReader
    from holdfast.core.runs.outcome import ProcessEnd, Verdict

DEFAULT_ACCOUNT = "default"  # the user's own login


class Permission(StrEnum):
    """The actions that an agent may take without asking. The user chooses them in advance, because no person watches
    the run."""

    READ = "read"  # read, and change nothing
    EDIT = "edit"  # change files of its workspace; whatever the CLI would ask about is refused
    FULL = "full"  # anything that the user may do


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A login of an agent's CLI. The default account is the login that the CLI finds by itself."""

    name: str = DEFAULT_ACCOUNT
    config_dir: str | None = None  # where the CLI keeps login and sessions; None: its default directory
    base_url: str | None = None  # address of the provider's API: a gateway, a proxy, a rehearsal
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets: only for the agent's process

    @property
    def is_default(self) -> bool:
        return self.name == DEFAULT_ACCOUNT


OWN_LOGIN = Account()
NO_EDITS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """The features of a CLI that Holdfast can use."""

    preassigned_session: bool = False  # Holdfast chooses the id of a new session
    resume: bool = True
    cost: bool = False  # the CLI reports money, not only tokens
    tokens: bool = True
    reset_time: bool = False  # a usage limit is reported with its reset time
    budget: bool = False  # the CLI stops by itself at an amount of money
    turns: bool = False  # the CLI stops by itself after a number of turns
    session_usage: bool = False  # reported tokens are the sum of the session, earlier runs included


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """Facts about the place where the agent will run. Some CLIs refuse some modes in some places."""

    is_root: bool = False
    is_sandboxed: bool = False  # in a container, or on a machine that the user declared disposable
    has_namespaces: bool = True  # user namespaces are available, so a CLI can build its own sandbox


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkOrder:
    """The order for one run: its prompt, session, options and account."""

    prompt: str
    run_number: int
    session_id: str | None  # the session to continue; None: a new one
    options: Mapping[str, object]
    new_session: str = ""  # the id for a new session, if the CLI lets Holdfast choose it
    account: Account = OWN_LOGIN
    surroundings: HostFacts = field(default_factory=HostFacts)
    inherited_environment: Mapping[str, str] = field(
        default_factory=dict
    )  # the environment of the run, without the variables that Holdfast adds
    files_directory: str = ""  # path of `Command.files`, also valid in a container
    directory: str = ""  # the working directory, without symbolic links; empty: not known
    hand_over: str | None = None  # replaces the prompt: this agent takes over from another one
    is_sent_back: bool = False  # earlier work was reviewed, and the prompt lists what to fix
    reply: str = ""  # a person's message: the whole prompt where the session continues
    result_directory: str = ""  # path for the files of `AgentAdapter.leaves`, also valid in a container


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentCommand:
    """The command that starts the agent.

    The prompt goes by standard input, because arguments are limited in size and visible to every user.
    """

    argv: Sequence[str]
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # name → text: written before the start, private to the run
    told: str = ""  # the prompt, if it is not the task's own: recorded for people


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRun:
    """The evidence for judging how a run ended."""

    end: ProcessEnd
    output: Iterable[str]  # lines of standard output, of any number
    error_tail: str  # end of standard error, for people
    at: float  # wall time of the end
    zone: str | None = None  # the agent's time zone, if its environment has one
    prompt: str = ""  # of the task
    session_id: str | None = None  # the session that the run continued
    new_session: str = ""  # or the id for a new session
    errors: Iterable[str] = ()  # lines of standard error, of any number
    left: Mapping[str, str] = field(default_factory=dict)  # name → text of the files of `AgentAdapter.leaves`


class AgentAdapter(Protocol):
    """One kind of agent: a CLI, any command, or the scripted agent."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def reads_events(self) -> bool:
        """True: the adapter parses the agent's output. False: `signs` is never called."""
        ...

    @property
    def reads_errors(self) -> bool:
        """True: some events appear only on standard error. Used only if `reads_events` is true."""
        ...

    @property
    def result_files(self) -> Iterable[str]:
        """Names of files in `WorkOrder.left_directory` that hold more about the end of a run than the output does."""
        ...

    @property
    def login_variables(self) -> Sequence[str]:
        """Variables of the user's environment (patterns) that the CLI's own login needs."""
        ...

    @property
    def litter(self) -> Sequence[str]:
        """Patterns of files that the agent leaves in its workspace and that must not be committed."""
        ...

    @property
    def own_edits(self) -> Mapping[str, str]:
        """File of the workspace → text that the CLI itself inserts there. A change that is only this text is not the
        agent's work."""
        ...

    @property
    def longest_quiet_answer(self) -> float:
        """Seconds of silence that a normal answer of the model may take. 0: the CLI streams answers in pieces."""
        ...

    def provider(self, options: Mapping[str, object]) -> str:
        """Return the provider that answers the model's requests. Empty: unknown.

        While a provider does not answer, all tasks of that provider wait.
        """
        ...

    def problem(self, options: Mapping[str, object], surroundings: HostFacts) -> str | None:
        """Return why a task with these options cannot be accepted, or None."""
        ...

    def build(self, order: WorkOrder) -> AgentCommand: ...

    def parse(self, line: str, stream: Stream) -> Sequence[AgentEvent]:
        """Return the events of one line. Pure and stateless. Never raises, whatever the line holds."""
        ...

    def signs(self, line: str, stream: Stream) -> Sequence[Sign]:
        """Return the signs of health in one line of output. Pure and cheap, because every line is passed to it."""
        ...

    def judge(self, ended: EndedRun) -> Verdict:
        """Return the verdict on a run from the agent's own output. Success needs positive evidence, which is named."""
        ...


def sign_reader(adapter: AgentAdapter) -> SignReader | None:
    """Return the reader of health signs for this agent, or None if its output is not parsed."""
    from holdfast.core.health.signs import SignReader

    return SignReader(adapter.signs, reads_errors=adapter.reads_errors) if adapter.reads_events else None
