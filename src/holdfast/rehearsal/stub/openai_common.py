"""The common part of OpenAI's two protocols: their errors and the usage headers of a ChatGPT plan."""

from __future__ import annotations

from holdfast.rehearsal.stub.messages import Json, ProviderError, ProviderFailure

INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS = 100, 30, 42
_WARNED_WINDOW = 4 * 3600


def problem(failure: ProviderFailure, *, too_long: str, now: int) -> ProviderError:
    retry = {"retry-after": str(failure.seconds)}
    if failure.kind == "usage-limit":
        reset = now + failure.seconds
        body = {
            "type": "usage_limit_reached",
            "message": "The usage limit has been reached",
            "plan_type": "plus",
            "resets_at": reset,
            "resets_in_seconds": failure.seconds,
        }
        return ProviderError(status=429, body={"error": body}, headers=_windows(100, reset))
    table: dict[str, tuple[int, str, str | None, str]] = {
        "401": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided: dummy."),
        "429": (
            429,
            "requests",
            "rate_limit_exceeded",
            "Rate limit reached for stub-model in organization org-stub on requests per min (RPM): Limit 3, Used 3, "
            f"Requested 1. Please try again in {failure.seconds}s.",
        ),
        "credit": (429, "insufficient_quota", "insufficient_quota", QUOTA),
        "500": (500, "server_error", None, "The server had an error while processing your request. Sorry about that!"),
        "503": (503, "server_error", "server_is_overloaded", "Our servers are currently overloaded. Please try again."),
        "529": (529, "server_error", "server_is_overloaded", "Overloaded"),
        "context-too-long": (400, "invalid_request_error", "context_length_exceeded", too_long),
    }
    status, kind, code, message = table[failure.kind]
    return ProviderError(status=status, body=error(kind, code, message), headers=retry if failure.kind == "429" else {})


QUOTA = "You exceeded your current quota, please check your plan and billing details."


def error(kind: str, code: str | None, message: str) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def headers(*, warning: bool, now: int) -> dict[str, str]:
    return {"x-request-id": "req_stub"} | (_windows(93, now + _WARNED_WINDOW) if warning else {})


def _windows(percent: int, reset: int) -> dict[str, str]:
    return {
        "x-codex-primary-used-percent": str(percent),
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": str(reset),
    }
