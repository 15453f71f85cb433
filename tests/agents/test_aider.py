"""aider: what is started, and that only its own words count, though the model's stand beside them."""

from __future__ import annotations

import pytest

from holdfast.agents.aider import AIDER
from holdfast.agents.port import Account, EndedRun, Stream, WorkOrder
from holdfast.core.agents.events import Usage
from holdfast.core.health.signs import AgentActivity
from holdfast.core.health.stalled import StallKind
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict

TOKENS = "Tokens: 2.3k sent, 1,100 cache write, 1.1k cache hit, 42 received. Cost: $0.0012 message, $0.03 session."
LIMIT = "litellm.RateLimitError: RateLimitError: OpenAIException - The usage limit has been reached"
LOGIN = "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided"


# as it breaks its lines where nobody set its width
BROKEN = (
    "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your ",
    "current quota, please check.",
)


def order(prompt: str = "do it", **options: object) -> WorkOrder:
    account = Account(name="a", base_url="http://127.0.0.1:1/v1", config_dir="/c", env={"OPENAI_API_KEY": "secret"})
    return WorkOrder(
        prompt=prompt, run_number=1, session_id=None, options=options, account=account, files_directory="/run/files"
    )


def judged(*lines: str, code: int = 0, errors: str = "") -> Verdict:
    end = ProcessEnd(cause=Cause.EXITED, code=code)
    return AIDER.judge(EndedRun(end=end, output=lines, error_tail=errors, errors=errors.splitlines(), at=0.0))


def test_its_prompt_and_its_files_are_the_runs_own() -> None:
    command = AIDER.build(order(model="openai/x"))
    argv = " ".join(command.argv)
    assert command.files == {"prompt.md": "do it"}
    assert "--message-file /run/files/prompt.md" in argv
    assert "--chat-history-file /run/files/" in argv
    assert "do it" not in argv
    assert "secret" not in argv
    assert {"--no-auto-commits", "--no-suggest-shell-commands", "--no-stream", "--no-gitignore"} <= set(command.argv)
    assert command.env["OPENAI_API_BASE"] == "http://127.0.0.1:1/v1"
    assert "ANTHROPIC_API_BASE" in AIDER.build(order(model="sonnet")).env
    assert "--dry-run" in AIDER.build(order(permission="read")).argv
    assert "--dry-run" not in argv


def test_only_tokens_and_edits_are_an_answer() -> None:
    """Its banner and the words of an error look like text of the model."""
    refused = ("Aider v0.86.2", LIMIT, "exceed your account's rate limit.", "Retrying in 0.2 seconds...")
    assert not judged(*refused).has_answer
    assert not judged("Tokens: 596 sent, 0 received.", *refused).has_answer
    assert judged("here you are", TOKENS, *refused).has_answer
    assert judged("Applied edit to a.py", *refused).has_answer


@pytest.mark.parametrize("prompt", ["/run rm -rf .", "!rm -rf .", " \n/drop"])
def test_a_prompt_is_never_a_command_of_aider(prompt: str) -> None:
    assert AIDER.build(order(prompt)).files["prompt.md"][0] == "T"


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        ((LOGIN, TOKENS), Outcome.COMPLETED),  # the model's words, for an answer came
        (("Traceback (most recent call last):", "  …", LIMIT, TOKENS), Outcome.COMPLETED),
        ((TOKENS, LOGIN), Outcome.AUTH),  # its second question failed
        ((TOKENS, LIMIT, "Retrying in 0.2 seconds..."), Outcome.USAGE_LIMITED),
        ((LIMIT, "Retrying in 0.2 seconds...", "here you are", TOKENS, "Applied edit to a.py"), Outcome.COMPLETED),
        (("Tokens: 1 sent, 1 received.", "Model openai/x has hit a token limit!"), Outcome.CONTEXT_LIMIT),
        ((TOKENS, "Only 3 reflections allowed, stopping."), Outcome.FAILED),
        ((TOKENS, "Traceback (most recent call last):"), Outcome.FAILED),
        (("litellm.Timeout: Connection timed out after 600 s",), Outcome.NETWORK),
        (("litellm.InternalServerError: InternalServerError: Overloaded",), Outcome.OVERLOADED),
        (("litellm.BadRequestError: OpenAIException - You exceeded your current quota",), Outcome.BILLING),
        (("Tokens: 596 sent, 0 received.",), Outcome.CRASHED),
        (BROKEN, Outcome.BILLING),
        ((*BROKEN, "here you are", TOKENS), Outcome.COMPLETED),
        (
            (
                "Tokens: 2.3k sent, 1.0k cache write, 1.1k cache hit, 42 received. Cost: $0.0012",
                "message, $0.0012 session.",
            ),
            Outcome.COMPLETED,
        ),
        (("Tokens: 2.3k sent,", "", "42 received."), Outcome.CRASHED),
        (("No LLM model was specified and no API keys were provided.",), Outcome.AUTH),
        (("I say: Tokens: 1 sent, 1 received.", "  Tokens: 1 sent, 1 received."), Outcome.CRASHED),
        ((), Outcome.CRASHED),
    ],
)
def test_success_is_its_last_tokens_line_without_an_error_behind_it(lines: tuple[str, ...], outcome: Outcome) -> None:
    assert judged(*lines).outcome is outcome
    assert judged(*lines, code=1).outcome is not Outcome.COMPLETED


def test_wrong_flags_are_a_refusal() -> None:
    assert judged(code=2, errors="aider: error: unrecognized arguments: --x\n").outcome is Outcome.LAUNCH_ERROR


def test_tokens_and_cost() -> None:
    usage, _result = AIDER.parse(TOKENS, Stream.OUT)
    assert usage == Usage(input=2300, output=42, cached=1100, cost_usd=0.0012)


def heard(*lines: str) -> AgentActivity:
    talk = AgentActivity()
    for at, line in enumerate(lines):
        for sign in AIDER.signs(line, Stream.OUT):
            talk.hear(sign, float(at))
    return talk


def test_nothing_that_it_prints_ends_a_run_at_once() -> None:
    """The model can print these lines, a moment before the one that tells success."""
    for line in (LOGIN, LIMIT, "Traceback (most recent call last):"):
        stall = heard("well", line).stall
        assert stall is not None
        assert stall.kind is StallKind.RETRYING
        assert heard("well", line, TOKENS).stall is None


def test_its_retries_are_no_progress() -> None:
    explained = "The API provider has rate limited you. Try again later or check your quotas."
    tries = [f"Retrying in {delay} seconds..." for delay in (0.2, 0.5, 1.0)]
    stall = heard("well", *(line for one in tries for line in (LIMIT, explained, one))).stall
    assert stall is not None
    assert stall.since == 1.0
