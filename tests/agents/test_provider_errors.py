"""What a provider's error is, from status, code and text: texts that the CLIs and providers really have."""

from __future__ import annotations

import pytest

from holdfast.agents.common.provider_errors import classify_error
from holdfast.core.agents.events import AgentTrouble

T = AgentTrouble
LIMIT = {"status": 429, "code": "rate_limit"}
BAD = {"status": 400, "code": "invalid_request_error"}

ROWS: list[tuple[str, dict[str, object], AgentTrouble]] = [
    ("You've hit your 5-hour limit · resets 10:54pm (UTC)", LIMIT, T.USAGE_LIMIT),
    ("You've hit your org's monthly spend limit · resets Dec 1", LIMIT, T.USAGE_LIMIT),
    ("You've hit your Sonnet 4.5 limit · resets 3pm", LIMIT, T.USAGE_LIMIT),
    ("You're out of extra usage · resets 3pm (Europe/London)", LIMIT, T.USAGE_LIMIT),
    ("You've reached your weekly rate limit. Please wait for your limit to reset on May 5", LIMIT, T.USAGE_LIMIT),
    ("Limit reached · resets 5pm", {}, T.USAGE_LIMIT),
    ("You have exhausted your capacity on this model. Your quota will reset after 20h18m32s.", LIMIT, T.USAGE_LIMIT),
    ("You have reached your specified API usage limits. You will regain access on 2026-12-01", BAD, T.USAGE_LIMIT),
    ("hour allocated quota exceeded", LIMIT, T.USAGE_LIMIT),
    ("Free usage exceeded", {"status": 429, "code": "FreeUsageLimitError"}, T.USAGE_LIMIT),
    ("x", {"status": 429, "code": "usage-limit-exceeded"}, T.USAGE_LIMIT),
    ("You have no quota", {"status": 402, "code": "quota_exceeded"}, T.USAGE_LIMIT),
    ("x", {"status": 401, "code": "CreditsError"}, T.BILLING),
    ("You're out of usage credits", LIMIT, T.BILLING),
    ("Your org is out of usage · add funds to continue", LIMIT, T.BILLING),
    ("Fable 5 requires usage credits", LIMIT, T.BILLING),
    ("Your seat type doesn’t include usage credits", LIMIT, T.BILLING),
    ("Access denied, please make sure your account is in good standing.", BAD, T.BILLING),
    ("Number of concurrent connections has exceeded your rate limit", LIMIT, T.RATE_LIMIT),
    (
        "You have exceeded your token rate limit of your current pricing tier. Retry after 60 seconds",
        LIMIT,
        T.RATE_LIMIT,
    ),
    ("You've hit your rate limit", {"status": 429}, T.RATE_LIMIT),
    ("Rate limit reached for m on requests per day (RPD): Limit 200. Please try again in 7m12s.", LIMIT, T.RATE_LIMIT),
    ("exceeded retry limit, last status: 429 Too Many Requests", {}, T.RATE_LIMIT),
    ("Your ANTHROPIC_API_KEY belongs to a disabled organization", BAD, T.AUTH),
    ("This credential is only authorized for use with Claude Code", BAD, T.AUTH),
    ("The key is not valid; see Plans & Billing", {"status": 401}, T.AUTH),
    ("No capacity available for model m", {"status": 429, "code": "MODEL_CAPACITY_EXHAUSTED"}, T.OVERLOADED),
    ("The server is overloaded, limit reached", {"status": 503}, T.OVERLOADED),
    ("Last error: 529 (Request ID x)", {}, T.OVERLOADED),
    ("This model's maximum prompt length is 131072 but the request contains 150000 tokens.", BAD, T.CONTEXT),
    ("prompt token count of 210000 exceeds the limit of 128000", BAD, T.CONTEXT),
    ("Range of input length should be [1, 98304]", BAD, T.CONTEXT),
    ("Model request exceeds the endpoint request-body limit (HTTP 413)", {}, T.CONTEXT),
    ("The socket connection was closed unexpectedly", {}, T.NETWORK),
    ("Network is unreachable (os error 101)", {}, T.NETWORK),
    ("peer closed connection without sending complete message body (incomplete chunked read)", {}, T.NETWORK),
    ("Temporary failure in name resolution", {}, T.NETWORK),
    ("The connection was interrupted", {}, T.NETWORK),
    ("dns error: failed to lookup address information", {}, T.NETWORK),
    ("unable to get local issuer certificate", {}, T.NETWORK),
    ("terminated", {}, T.NETWORK),
    (
        "API Error: API returned an empty or malformed response (HTTP 200) — check for a proxy or gateway",
        {"code": "unknown"},
        T.NETWORK,
    ),
    ("Incomplete JSON segment at the end", {}, T.NETWORK),
    ("Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON", {}, T.NETWORK),
    ("<html><body>Login required: unauthorized, limit 429</body></html>", {"status": 200}, T.NETWORK),  # a portal's
    ("<html><title>502 Bad Gateway</title></html>", {}, T.OVERLOADED),
    ("<html>Forbidden</html>", {"status": 403}, T.AUTH),
    ("<html></html>", {"status": 503}, T.OVERLOADED),
    ("EACCES: permission denied, mkdir '/x'", {}, T.OTHER),  # of a file, no login
    ("Permission denied (os error 13)", {}, T.OTHER),
    ("the file has 500 lines, and another one 429 more", {}, T.OTHER),
    ("The model `m` does not exist or you do not have access to it.", {"status": 404}, T.OTHER),
]


@pytest.mark.parametrize(("text", "told", "trouble"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_the_trouble_of_an_error(text: str, told: dict[str, object], trouble: AgentTrouble) -> None:
    """Facts: a plan's limit comes as a 429 like a full minute does; only the text tells them apart."""
    status, code = told.get("status"), told.get("code", "")
    assert isinstance(status, int | None)
    assert classify_error(status=status, code=str(code), text=text) is trouble
