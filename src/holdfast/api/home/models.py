"""Read models of the home: events, requests of operators, repositories, trust, and findings of a sweep.

Each model is a TypedDict: a plain dict at run time, with the field names of docs/reference/json.md. Modules import
this file for type checks only, so that `holdfast ps` does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from holdfast.api.tasks.models import JsonObject


class RepoRow(TypedDict):
    id: str
    path: str
    common_dir: str


class TrustRow(TypedDict):
    repo: str
    state: str
    keys: list[str] | None
    by: str | None
    at: float | None


class SweepFinding(TypedDict):
    """Something that a sweep would change, or would not touch."""

    text: str
    what: str
    where: str
    why: str
    action: str
    foreign: bool


class EventRow(TypedDict):
    seq: int
    at: float
    level: str
    component: str
    kind: str
    task: str | None
    run: str | None
    message: str
    reason: str | None
    data: JsonObject


class RequestRow(TypedDict):
    """An operator's request. The last two fields exist only if the request was read by its id."""

    id: int
    kind: str
    task: str | None
    by: str
    at: float
    why: str
    answered_at: NotRequired[float | None]
    answer: NotRequired[str | None]


class AgentLoginRow(TypedDict):
    account: str
    is_seen: bool | None
    text: str


class AgentCliRow(TypedDict):
    agent: str
    is_default: bool
    binary: str
    path: str | None
    version: str | None
    tested: list[str]
    logins: list[AgentLoginRow]
