"""Classification of a provider's error: by HTTP status, error type or code, then the text of the error.

Only for texts from an error field of a CLI. Text of a model must never be passed to it.
"""

from __future__ import annotations

import re

from holdfast.core.agents.events import AgentTrouble

MOST_TEXT = 8192

# Types and codes of errors, as providers write them.
_BY_CODE: dict[str, AgentTrouble] = {
    "quota_exceeded": AgentTrouble.USAGE_LIMIT,
    "usage_not_included": AgentTrouble.USAGE_LIMIT,
    "billing_error": AgentTrouble.BILLING,
    "insufficient_quota": AgentTrouble.BILLING,
    "billing_hard_limit_reached": AgentTrouble.BILLING,
    "billing_not_active": AgentTrouble.BILLING,
    "arrearage": AgentTrouble.BILLING,
    "creditserror": AgentTrouble.BILLING,
    "payment_required": AgentTrouble.BILLING,
    "authentication_error": AgentTrouble.AUTH,
    "authentication_failed": AgentTrouble.AUTH,
    "authentication": AgentTrouble.AUTH,
    "invalid_api_key": AgentTrouble.AUTH,
    "api_key_invalid": AgentTrouble.AUTH,
    "permission_error": AgentTrouble.AUTH,
    "permission_denied": AgentTrouble.AUTH,
    "unauthenticated": AgentTrouble.AUTH,
    "unauthorized": AgentTrouble.AUTH,
    "oauth_org_not_allowed": AgentTrouble.AUTH,
    "account_on_hold": AgentTrouble.AUTH,
    "verification_required": AgentTrouble.AUTH,
    "cloud_credential_error": AgentTrouble.AUTH,
    "provider_credentials": AgentTrouble.AUTH,
    "api_key_auth_disabled": AgentTrouble.AUTH,
    "org_disabled_credential": AgentTrouble.AUTH,
    "stored_login_refused": AgentTrouble.AUTH,
    "invalid_credential_header": AgentTrouble.AUTH,
    "context_length_exceeded": AgentTrouble.CONTEXT,
    "contextoverflowerror": AgentTrouble.CONTEXT,
    "prompt_too_long": AgentTrouble.CONTEXT,
    "request_too_large": AgentTrouble.CONTEXT,
    "model_max_prompt_tokens_exceeded": AgentTrouble.CONTEXT,
    "rate_limit": AgentTrouble.RATE_LIMIT,
    "rate_limit_error": AgentTrouble.RATE_LIMIT,
    "rate_limit_exceeded": AgentTrouble.RATE_LIMIT,
    "rate_limited": AgentTrouble.RATE_LIMIT,
    "resource_exhausted": AgentTrouble.RATE_LIMIT,
    "too_many_requests": AgentTrouble.RATE_LIMIT,
    "overloaded": AgentTrouble.OVERLOADED,
    "overloaded_error": AgentTrouble.OVERLOADED,
    "engine_overloaded": AgentTrouble.OVERLOADED,
    "model_capacity_exhausted": AgentTrouble.OVERLOADED,
    "server_error": AgentTrouble.OVERLOADED,
    "api_error": AgentTrouble.OVERLOADED,
    "internal_server_error": AgentTrouble.OVERLOADED,
    "internal": AgentTrouble.OVERLOADED,
    "unavailable": AgentTrouble.OVERLOADED,
    "service_unavailable": AgentTrouble.OVERLOADED,
    "timeout_error": AgentTrouble.NETWORK,
    "connection_failed": AgentTrouble.NETWORK,
    "connection_error": AgentTrouble.NETWORK,
    "connection_timeout": AgentTrouble.NETWORK,
    "request_timeout": AgentTrouble.NETWORK,
    "network_error": AgentTrouble.NETWORK,
}

# An HTTP status in prose. Not every number is one: an error may mention 500 lines.
_NUMBERED = r"(?:^|status|error|code|https?|returned|[(\[{{:=])\W{{0,4}}(?:{})\b(?! (?:lines|files|bytes|tokens|ms)\b)"

# The first match decides. A limit of the plan is often sent as a rate limit, so it comes first.
_BY_TEXT: tuple[tuple[AgentTrouble, re.Pattern[str]], ...] = tuple(
    (trouble, re.compile(pattern, re.IGNORECASE))
    for trouble, pattern in (
        (
            AgentTrouble.USAGE_LIMIT,
            r"(?:hit|reached|exceeded) your (?:(?!rate )\S{0,40}\w ){0,5}limit"
            r"|(?:hit|reached|exceeded) your (?:daily|weekly|monthly) "
            r"|(?:usage|session|weekly|daily|monthly|5-hour|plan) limit (?:has been )?(?:reached|exceeded|hit)"
            r"|(?<!rate )limit reached\W{1,5}resets\b|out of (?:\w+ )?(?:usage|credits)\b[^.\n]{0,40}\bresets\b"
            r"|usage_limit_reached|exhausted your (?:\w+ ){0,3}(?:quota|capacity)|quota will reset"
            r"|(?:daily|weekly|monthly) (?:\w+ )?quota|hour allocated quota|quota[^.]{0,40}per day|PerDay",
        ),
        (
            AgentTrouble.BILLING,
            r"credit balance|insufficient[_ ](?:quota|funds|credit|balance)|billing|payment required"
            r"|out of (?:\w+ )?(?:credits|usage)\b|requires usage credits|doesn't include (?:extra )?usage|add funds"
            r"|account is in good standing|free (?:allocated quota|tier of the model has been)"
            r"|quota exceeded\. check your plan|exceeded your current quota",
        ),
        (
            AgentTrouble.AUTH,
            r"invalid (?:x-)?api[- _]?key|api[- _]key not valid|api_key_invalid|incorrect api key|authentication"
            r"|unauthori[sz]ed|not logged in|log ?in (?:again|first)|please (?:run|use) \S*login"
            r"|token (?:has )?expired|expired token|disabled organization|organization (?:has been|is) disabled"
            r"|invalid (?:bearer |oauth )?token|oauth token|credential is only authorized|forbidden"
            r"|(?<!EACCES: )permission[_ ]denied(?! \(os error)",  # both exclusions are errors of files
        ),
        (
            AgentTrouble.CONTEXT,
            r"context[_ ](?:length|limit)|context window|conversation is too long"
            r"|prompt is too long|maximum context|input token count|too many tokens"
            r"|(?<!output )token limit|maximum prompt length|prompt token count|range of input length"
            r"|maximum number of tokens|input (?:is )?too long|request too large|request-body limit",
        ),
        (
            AgentTrouble.RATE_LIMIT,
            r"rate[- _]?limit|too many requests|resource[_ ]exhausted|" + _NUMBERED.format("429"),
        ),
        (
            AgentTrouble.OVERLOADED,
            r"overloaded|internal server error|service unavailable|bad gateway|gateway time-?out"
            r"|server (?:had an )?error|high demand|capacity|" + _NUMBERED.format("500|502|503|504|529"),
        ),
        (
            AgentTrouble.NETWORK,
            r"ECONN\w+|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EPIPE|UND_ERR_\w+"
            r"|connection (?:was )?(?:error|refused|reset|closed|lost|interrupted|terminated|failed)|fetch failed"
            r"|other side closed|peer closed|closed unexpectedly|incomplete (?:chunked )?read|broken pipe|handshake"
            r"|network is unreachable|no route to host|name resolution|name or service not known|getaddrinfo"
            r"|waiting for network|could not connect|cannot connect|unable to connect|failed to connect|network error"
            r"|socket hang up|socket disconnected|stream disconnected|stream (?:ended|closed|error)"
            r"|without a finish reason|premature(?:ly)? close"
            r"|timed? ?out|error sending request|(?:^|: )terminated\b|connection aborted|server disconnected"
            r"|error (?:decoding|reading) (?:a |the )?(?:response )?body|unexpected EOF"
            r"|dns error|lookup address|certificate"
            r"|(?:empty|malformed) response|incomplete json|invalid json response|unexpected token '?<",
        ),
    )
)


_PAGE = re.compile(r"<!doctype html|<html\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\b(?:https?|wss?)://\S+")  # numbers and words in an address are not part of the error


def classify_error(*, status: int | None = None, code: str = "", text: str = "") -> AgentTrouble:
    """Return the trouble that an error means, from the most specific of its code, text and status."""
    said = _ADDRESS.sub("", text[:MOST_TEXT]).replace("’", "'")
    by_text = next((trouble for trouble, pattern in _BY_TEXT if pattern.search(said)), None)
    if (status is None or status < 300) and by_text is not AgentTrouble.OVERLOADED and _PAGE.search(said):
        return AgentTrouble.NETWORK  # the page of a proxy or a captive portal, whatever is written on it
    by_code = _by_code(code.strip().lower().replace("-", "_").replace(" ", "_"))
    # Providers use the same status and code for a full minute and a spent plan. Only the text distinguishes them.
    specific = {AgentTrouble.USAGE_LIMIT, AgentTrouble.BILLING, AgentTrouble.CONTEXT}
    if by_code in specific:
        return by_code
    if by_text in specific and (status is None or 400 <= status < 500) and status != 401:
        return by_text
    if by_code is not None:
        return by_code
    by_status = classify_status(status)
    return by_status or by_text or AgentTrouble.OTHER


def _by_code(code: str) -> AgentTrouble | None:
    if "usagelimit" in code.replace("_", ""):  # usage_limit_reached, FreeUsageLimitError and future names
        return AgentTrouble.USAGE_LIMIT
    return _BY_CODE.get(code)


def classify_status(status: int | None) -> AgentTrouble | None:
    match status:
        case None:
            return None
        case 401 | 403:
            return AgentTrouble.AUTH
        case 402:
            return AgentTrouble.BILLING
        case 408:
            return AgentTrouble.NETWORK
        case 413:
            return AgentTrouble.CONTEXT
        case 429:
            return AgentTrouble.RATE_LIMIT
        case _ if status >= 500:
            return AgentTrouble.OVERLOADED
        case _:
            return None
