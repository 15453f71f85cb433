"""What a run's row keeps of its agent's reports, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from holdfast.core.model import Claim, Event, Heard, Instant, Level, Report, ReportKind, Run
from holdfast.store.port.transaction import AgentNews
from holdfast.store.sqlite.rows import decode, encode_words

_SAID = {ReportKind.COMPLETE: "it is complete", ReportKind.FAIL: "it failed"}


def claim_that_stands(run: Run, news: AgentNews, now: Instant) -> Claim | None:
    """The first one, for ever."""
    if run.claim is not None or not news.claims:
        return run.claim
    first = news.claims[0]
    return Claim(kind=first.kind, message=first.message, at=now)


def contradiction(claim: Claim | None, news: AgentNews) -> Report | None:
    """A result that says something else than the one that stands. The same word again is no news."""
    return next((other for other in news.claims if claim is not None and other.kind is not claim.kind), None)


def heard(run: Run, claim: Claim | None, news: AgentNews) -> Heard:
    return replace(
        run.heard,
        offset=news.offset,
        refused=run.heard.refused + news.refused,
        contradicted=run.heard.contradicted or contradiction(claim, news) is not None,
    )


def written(heard: Heard, news: AgentNews, before: str | None, now: Instant) -> str:
    """The column `reports`: how far we are, and the newest progress for `show` and `why`."""
    progress = decode(before).get("progress") if before else None
    if news.progress is not None:
        progress = {"message": news.progress.message, "percent": news.progress.percent, "at": now.wall}
    return encode_words(
        {
            "offset": heard.offset,
            "refused": heard.refused,
            "contradicted": heard.contradicted,
            "progress": progress,
        }
    )


def written_claim(claim: Claim | None) -> str | None:
    if claim is None:
        return None
    return encode_words(
        {
            "kind": str(claim.kind),
            "message": claim.message,
            "at": claim.at.wall,
            "boottime": claim.at.boottime,
            "boot_id": claim.at.boot_id,
        }
    )


def reason_for_people(run: Run, claim: Claim | None, news: AgentNews) -> str | None:
    """What the running task's row says from now on; None: nothing new."""
    if claim is not None:
        return said(claim) if run.claim is None else None
    return f"its agent is at {news.progress}" if news.progress is not None else None


def said(claim: Claim | Report) -> str:
    return f"its agent reported that {_SAID[claim.kind]}{': ' if claim.message else ''}{claim.message}"


def events_of(run: Run, claim: Claim | None, news: AgentNews) -> Iterator[Event]:
    def told(kind: str, message: str, level: Level = Level.INFO, **more: Any) -> Event:
        message = f"Run {run.id}: {message}."
        return Event(
            kind=kind, message=message, level=level, component="agent", task_id=run.task_id, run_id=run.id, **more
        )

    if news.refused and not run.heard.refused:
        yield told(
            "agent.reports-refused",
            f"something in its channel is no report of this run and is ignored ({news.refused_why})",
            Level.WARNING,
            reason=news.refused_why,
            data={"refused": news.refused},
        )
    if news.progress is not None:
        progress = {"message": news.progress.message, "percent": news.progress.percent}
        yield told("agent.progress", f"{news.progress}", data=progress)
    if claim is not None and run.claim is None:
        data = {"kind": str(claim.kind), "message": claim.message, "counts": True}
        yield told("agent.claimed", said(claim), reason=str(claim.kind), data=data)
    other = contradiction(claim, news)
    if claim is not None and other is not None and not run.heard.contradicted:
        data = {"kind": str(other.kind), "message": other.message, "counts": False}
        words = f"{said(other)}, after it had reported that {_SAID[claim.kind]}; the first word counts"
        yield told("agent.claimed", words, Level.WARNING, reason=str(other.kind), data=data)
