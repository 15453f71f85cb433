"""Is a living agent at work? The table, and what must hold for every run (R-TERM-04, R-TERM-07)."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.agents.events import AgentEvent, AgentFailure, AgentResult, AgentText, AgentTrouble, Retry, Usage
from holdfast.core.health.diagnosis import (
    LOOK_TWICE,
    STOP_WHY,
    Condition,
    RunFacts,
    TreeFacts,
    cpu_window,
    diagnose,
    format_seconds,
)
from holdfast.core.health.signs import REMEMBERED, AgentActivity, OpenTool, Sign, SignKind, signs_from_events
from holdfast.core.health.stalled import AT_WORK, CpuTrail, Stall, StallKind
from holdfast.core.task_settings import HealthRules

QUIET_SHARE = 0.01
RULES = HealthRules()  # stuck after 300 s, tool_silence 2700 s, start-up 300 s, 50 steps
ALIVE, STUCK, LOOPING, STARTUP, DOOMED = Condition
RETRYING, FATAL, HOPELESS = StallKind
NOW = 10_000.0


def events(**facts: object) -> RunFacts:
    """An agent whose events we read, started an hour ago."""
    given = {"now": NOW, "started_at": NOW - 3600, "watched_since": NOW - 3600, "reads_events": True, **facts}
    return RunFacts(**given)  # type: ignore[arg-type]  # the table's own words


def plain(**facts: object) -> RunFacts:
    """An agent without events."""
    return events(reads_events=False, **facts)


def tool(*, deadline: float | None = None) -> tuple[OpenTool, ...]:
    return (OpenTool(name="make", opened_at=NOW - 400, deadline_at=deadline),)


def tree(*, quiet: float = 400.0, child: float | None = None, looked: float = 0.0) -> TreeFacts:
    """Quiet for so long; its newest child so long ago."""
    return TreeFacts(
        looked_at=NOW - looked,
        members=2,
        child_at=None if child is None else NOW - child,
        quiet_since=NOW - quiet,
        share=0.002,
        span=quiet,
    )


def trouble(kind: StallKind, ago: float, next_try: float | None = None, **facts: object) -> RunFacts:
    """It just wrote something, and that is what stands in its way."""
    stall = Stall(kind=kind, words="no", since=NOW - ago, next_try=None if next_try is None else NOW + next_try)
    return events(**{"output_at": NOW, "stall": stall, **facts})


TABLE = [
    ("it just wrote something", events(output_at=NOW), RULES, ALIVE),
    ("silent, but not for long enough", events(output_at=NOW - 299), RULES, ALIVE),
    ("silent for long enough", events(output_at=NOW - 300), RULES, STUCK),
    ("an idle Node process burns a little CPU", events(output_at=NOW - 300, tree=tree(quiet=0)), RULES, STUCK),
    ("silent, but its heart beats", events(output_at=NOW - 3000, heartbeat_at=NOW - 10), RULES, ALIVE),
    ("a heartbeat and then nothing", events(heartbeat_at=NOW - 300), RULES, STUCK),
    ("a tool is open and nobody looked at its processes", events(output_at=NOW - 400, tools=tool()), RULES, ALIVE),
    ("a tool is open and works", events(output_at=NOW - 400, tools=tool(), tree=tree(quiet=20)), RULES, ALIVE),
    ("a tool is open and quiet", events(output_at=NOW - 400, tools=tool(), tree=tree()), RULES, STUCK),
    (
        "quiet when somebody looked, long ago",
        events(output_at=NOW - 900, tools=tool(), tree=tree(quiet=900, looked=700)),
        RULES,
        ALIVE,
    ),
    ("a tool that starts processes", events(output_at=NOW - 400, tools=tool(), tree=tree(child=5)), RULES, ALIVE),
    (
        "a tool whose newest process is old",
        events(output_at=NOW - 400, tools=tool(), tree=tree(child=300)),
        RULES,
        STUCK,
    ),
    (
        "a sleeping tool before its deadline",
        events(output_at=NOW - 900, tools=tool(deadline=NOW + 1), tree=tree(quiet=900)),
        RULES,
        ALIVE,
    ),
    (
        "just after its deadline",
        events(output_at=NOW - 900, tools=tool(deadline=NOW - 1), tree=tree(quiet=900)),
        RULES,
        ALIVE,
    ),
    (
        "long after its deadline",
        events(output_at=NOW - 900, tools=tool(deadline=NOW - 300), tree=tree(quiet=900)),
        RULES,
        STUCK,
    ),
    (
        "busy for longer than a tool may be",
        events(output_at=NOW - 2700, tools=tool(), tree=tree(quiet=0)),
        RULES,
        STUCK,
    ),
    (
        "a deadline beyond what a tool may take",
        events(output_at=NOW - 2700, tools=tool(deadline=NOW + 99)),
        RULES,
        STUCK,
    ),
    ("no events: silent and quiet", plain(output_at=NOW - 400, tree=tree()), RULES, STUCK),
    ("no events: silent but at work", plain(output_at=NOW - 400, tree=tree(quiet=1)), RULES, ALIVE),
    ("no events: at work for very long", plain(output_at=NOW - 2700, tree=tree(quiet=1)), RULES, STUCK),
    (
        "no events, patience beyond tool_silence",
        plain(output_at=NOW - 2800, tree=tree(quiet=2800)),
        replace(RULES, stuck_after=3000.0),
        ALIVE,
    ),
    ("never any output", events(started_at=NOW - 300, watched_since=NOW - 300), RULES, STARTUP),
    ("not yet any output", events(started_at=NOW - 299, watched_since=NOW - 299), RULES, ALIVE),
    ("never any output, but a heartbeat", events(heartbeat_at=NOW - 1), RULES, ALIVE),
    (
        "no events, never any output, quiet",
        plain(started_at=NOW - 301, watched_since=NOW - 301, tree=tree(quiet=301)),
        RULES,
        STARTUP,
    ),
    (
        "no events, never any output, at work",
        plain(started_at=NOW - 301, watched_since=NOW - 301, tree=tree(quiet=5)),
        RULES,
        ALIVE,
    ),
    ("start-up is off: silence from the start counts", events(), replace(RULES, startup_timeout=math.inf), STUCK),
    ("the same again and again", events(output_at=NOW, steps=50), RULES, LOOPING),
    ("nearly", events(output_at=NOW, steps=49), RULES, ALIVE),
    ("looping is off", events(output_at=NOW, steps=9999), replace(RULES, loop_steps=0), ALIVE),
    ("stuck is off", events(output_at=1.0), replace(RULES, stuck_after=math.inf), ALIVE),
    ("stuck is off by a zero", events(output_at=1.0), replace(RULES, stuck_after=0.0), ALIVE),
    ("all is off", events(), replace(RULES, stuck_after=math.inf, startup_timeout=0.0, loop_steps=0), ALIVE),
    ("tool_silence is off", plain(output_at=1.0, tree=tree(quiet=0)), replace(RULES, tool_silence=math.inf), ALIVE),
    ("taken over a moment ago", events(output_at=NOW - 999, watched_since=NOW - 1), RULES, ALIVE),
    (
        "taken over, and looked at for a while",
        events(output_at=NOW - 999, watched_since=NOW - LOOK_TWICE),
        RULES,
        STUCK,
    ),
    ("a fatal error a moment ago", trouble(FATAL, 14), RULES, ALIVE),
    ("a fatal error, and it continues", trouble(FATAL, 15), RULES, DOOMED),
    ("a fatal error while a tool runs", trouble(FATAL, 15, tools=tool()), RULES, ALIVE),
    ("it tries again, which cannot help", trouble(HOPELESS, 0), RULES, DOOMED),
    ("the same while a tool runs", trouble(HOPELESS, 0, tools=tool()), RULES, DOOMED),
    ("it tries again, for a while", trouble(RETRYING, 89), RULES, ALIVE),
    ("it tries again and again", trouble(RETRYING, 90), RULES, DOOMED),
    ("it tried once, and sleeps", trouble(RETRYING, 90, output_at=NOW - 90), RULES, DOOMED),
    ("it tries again while a tool runs", trouble(RETRYING, 90, tools=tool()), RULES, ALIVE),
    ("its next try comes in time", trouble(RETRYING, 0, next_try=60), RULES, ALIVE),
    ("its next try comes too late", trouble(RETRYING, 60, next_try=60), RULES, DOOMED),
    ("it may be silent for less than it may try again", trouble(RETRYING, 9), replace(RULES, stuck_after=9.0), DOOMED),
    ("doomed is off", trouble(HOPELESS, 999), replace(RULES, doomed_after=math.inf), ALIVE),
    ("patience without end", trouble(RETRYING, 999), replace(RULES, retry_patience=math.inf), ALIVE),
    ("doomed, taken over a moment ago", trouble(FATAL, 999, watched_since=NOW - 9), RULES, ALIVE),
    ("doomed, taken over and looked at", trouble(FATAL, 999, watched_since=NOW - 10), RULES, DOOMED),
    ("hopeless, taken over", trouble(HOPELESS, 999, watched_since=NOW), RULES, DOOMED),
    ("doomed comes before circles", trouble(RETRYING, 90, steps=99), RULES, DOOMED),
    ("busy for too long, taken over a moment ago", plain(output_at=NOW - 2800, watched_since=NOW - 1), RULES, ALIVE),
]


@pytest.mark.parametrize(("name", "facts", "rules", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_the_table(name: str, facts: RunFacts, rules: HealthRules, expected: Condition) -> None:
    found = diagnose(facts, rules)
    assert found.condition is expected, found
    assert bool(found.reason) is (expected is not ALIVE)
    assert len(found.evidence) >= 4
    if expected is ALIVE and found.look_at <= NOW:
        assert found.needs_tree  # only somebody who has not looked at the processes is to look at once


moments = st.floats(0, NOW)
limits = st.sampled_from([0.0, 1.0, 30.0, 300.0, 2700.0, math.inf])
all_rules = st.builds(
    HealthRules,
    stuck_after=limits,
    tool_silence=limits,
    startup_timeout=limits,
    loop_steps=st.sampled_from([0, 3, 50]),
    doomed_after=limits,
    retry_patience=limits,
)
stalls = st.builds(
    Stall,
    kind=st.sampled_from(StallKind),
    words=st.text(max_size=5),
    since=moments,
    next_try=st.none() | st.floats(0, 2 * NOW),
)
trees = st.builds(
    TreeFacts,
    looked_at=moments,
    members=st.integers(0, 9),
    child_at=st.none() | moments,
    quiet_since=moments,
    share=st.floats(0, 4),
    span=moments,
    at_work=st.booleans(),
)
tools = st.lists(
    st.builds(OpenTool, name=st.text(max_size=5), opened_at=moments, deadline_at=st.none() | st.floats(0, 2 * NOW)),
    max_size=3,
).map(tuple)
all_facts = st.builds(
    RunFacts,
    now=st.just(NOW),
    started_at=moments,
    watched_since=moments,
    reads_events=st.booleans(),
    output_at=st.none() | moments,
    heartbeat_at=st.none() | moments,
    tools=tools,
    steps=st.integers(0, 99),
    last_step=st.text(max_size=5),
    stall=st.none() | stalls,
    tree=st.none() | trees,
)


@given(all_facts, all_rules)
@settings(max_examples=200)
def test_every_verdict_has_a_reason_and_evidence(facts: RunFacts, rules: HealthRules) -> None:
    found = diagnose(facts, rules)
    assert all(found.evidence)
    if found.condition is not ALIVE:
        assert found.reason
        assert found.condition in STOP_WHY


@given(all_facts, all_rules)
@settings(max_examples=200)
def test_a_sign_of_life_is_life(facts: RunFacts, rules: HealthRules) -> None:
    """Whatever else was seen: output or a heartbeat just now ends every silence."""
    for fresh in (replace(facts, output_at=facts.now), replace(facts, heartbeat_at=facts.now)):
        assert diagnose(fresh, rules).condition in (ALIVE, LOOPING, DOOMED)
        assert diagnose(replace(fresh, stall=None), rules).condition in (ALIVE, LOOPING)


@given(all_facts, all_rules, st.floats(0, 5000))
@settings(max_examples=200)
def test_nobody_misses_a_verdict_who_looks_when_told(facts: RunFacts, rules: HealthRules, later: float) -> None:
    """Without any news, nothing is found before `look_at`; and a silence never heals by itself."""
    found = diagnose(facts, rules)
    if found.condition is ALIVE and facts.now + later < found.look_at:
        assert diagnose(replace(facts, now=facts.now + later), rules).condition is ALIVE
    if found.condition is not ALIVE:
        assert diagnose(replace(facts, now=facts.now + later), rules).condition in (found.condition, DOOMED)


@given(all_facts, all_rules)
@settings(max_examples=200)
def test_without_an_open_tool_the_processes_of_an_agent_with_events_do_not_matter(
    facts: RunFacts, rules: HealthRules
) -> None:
    alone = replace(facts, reads_events=True, tools=())
    assert diagnose(alone, rules).condition is diagnose(replace(alone, tree=None), rules).condition
    assert not diagnose(alone, rules).needs_tree


def test_each_threshold_has_its_window() -> None:
    rules = HealthRules(stuck_after=10, startup_timeout=99)
    assert (cpu_window(rules, seen=True), cpu_window(rules, seen=False)) == (10, 99)
    assert cpu_window(replace(rules, startup_timeout=math.inf), seen=False) == 10


@pytest.mark.parametrize(
    ("amount", "words"), [(0.31, "0.3 s"), (42.4, "42 s"), (300, "5 m"), (9000, "2.5 h"), (-1, "0.0 s")]
)
def test_durations_are_short(amount: float, words: str) -> None:
    assert format_seconds(amount) == words


# -- the CPU trail


@given(st.lists(st.tuples(st.floats(0.1, 40), st.floats(0, 2)), min_size=1, max_size=60), st.sampled_from([2.0, 300.0]))
@settings(max_examples=300)
def test_quiet_means_less_than_a_hundredth_of_a_core(steps: list[tuple[float, float]], window: float) -> None:
    """Against the whole history: from `quiet_since` on, less was used than 1 % of the window; and it is the earliest
    such reading within the window (or just before it)."""
    trail, history, at, cpu = CpuTrail(window, QUIET_SHARE), [], 0.0, 0.0
    for pause, used in steps:
        at, cpu = at + pause, cpu + used
        history.append((at, cpu))
        trail.add(at, cpu)
        allowed = [moment for moment, before in history if cpu - before < QUIET_SHARE * window]
        assert trail.quiet_since in allowed
        older = [moment for moment in allowed if moment < trail.quiet_since]
        assert not older or trail.quiet_since <= at - window or older[-1] <= at - window
        assert len(trail._readings) <= window / 0.1 + 2


def test_a_counter_that_falls_proves_nothing() -> None:
    trail = CpuTrail(300, QUIET_SHARE)
    trail.add(0, 5.0)
    trail.add(100, 5.0)
    assert not trail.at_work
    trail.add(200, 1.0)  # a process went that nobody waited for
    assert (trail.quiet_since, trail.at_work) == (200, True)
    trail.add(201, 1.0 + AT_WORK)
    assert trail.at_work


# -- signs


def said(text: str) -> Sign:
    return Sign(kind=SignKind.PROGRESS, content=text)


def opened(name: str, key: str = "1", deadline: float | None = None) -> Sign:
    return Sign(kind=SignKind.TOOL_OPENED, tool=key, name=name, content=name, deadline=deadline)


def closed(key: str = "1") -> Sign:
    return Sign(kind=SignKind.TOOL_CLOSED, tool=key, content="done")


def test_new_words_are_progress_and_the_same_again_is_not() -> None:
    talk = AgentActivity()
    for number in range(60):
        talk.hear(said(f"{number}"), 1.0)
    assert talk.steps == 0
    for _again in range(7):
        talk.hear(said("once more"), 2.0)
    assert (talk.steps, talk.last_step, talk.progress_at) == (6, "once more", 2.0)
    talk.hear(said("something else"), 3.0)
    assert talk.steps == 0


def test_a_circle_of_several_events_is_a_circle() -> None:
    talk = AgentActivity()
    for _round in range(10):
        for name in ("read", "edit", "test"):
            talk.hear(opened(name), 1.0)
            talk.hear(closed(), 1.0)
    assert talk.steps == 27
    assert talk.tools == {}


def test_an_event_without_content_of_its_own_is_a_step() -> None:
    talk = AgentActivity()
    for _tick in range(5):
        talk.hear(Sign(kind=SignKind.STEP, content="thinking"), 1.0)
    assert talk.steps == 5
    talk.hear(Sign(kind=SignKind.PROGRESS), 1.0)  # tokens, say
    assert talk.steps == 0


NETWORK = Retry(trouble=AgentTrouble.NETWORK, message="refused")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((NETWORK,), (RETRYING, 1.0)),
        ((NETWORK, NETWORK), (RETRYING, 1.0)),
        ((NETWORK, AgentText(text="now")), None),
        ((NETWORK, AgentText(text="now"), NETWORK), (RETRYING, 3.0)),
        ((AgentFailure(trouble=AgentTrouble.OTHER), NETWORK, AgentFailure(trouble=AgentTrouble.OTHER)), (FATAL, 1.0)),
        ((AgentFailure(trouble=AgentTrouble.OTHER, is_fatal=False),), None),
        ((NETWORK, AgentResult(ok=False)), (FATAL, 2.0)),
        ((AgentFailure(trouble=AgentTrouble.OTHER), AgentResult(ok=True)), None),
        ((Retry(trouble=AgentTrouble.AUTH),), (HOPELESS, 1.0)),
        ((Retry(trouble=AgentTrouble.BILLING),), (HOPELESS, 1.0)),
        ((Retry(trouble=AgentTrouble.USAGE_LIMIT),), (HOPELESS, 1.0)),
        ((Retry(trouble=AgentTrouble.RATE_LIMIT, delay=60.0),), (RETRYING, 1.0)),
        ((NETWORK, Retry(trouble=AgentTrouble.RATE_LIMIT, delay=61.0), NETWORK), (HOPELESS, 2.0)),
    ],
)
def test_what_stands_in_its_way(said: tuple[AgentEvent, ...], expected: tuple[StallKind, float] | None) -> None:
    """From when on there was nothing but trouble; the next supervisor knows it too."""
    talk = AgentActivity()
    for at, event in enumerate(said, 1):
        for sign in signs_from_events([event]):
            talk.hear(sign, float(at))
    for known in (talk, AgentActivity.load(json.loads(json.dumps(talk.dump())))):
        assert known.stall == talk.stall
        assert (None if known.stall is None else (known.stall.kind, known.stall.since)) == expected


EMPTY = Usage()  # an answer without a word


@pytest.mark.parametrize(
    ("event", "times", "expected"),
    [
        (EMPTY, [1.0, 1.3, 1.6, 1.9], None),
        (EMPTY, [1.0, 1.3, 1.6, 1.9, 2.2], HOPELESS),
        (EMPTY, [1.0, 21.0, 41.0, 61.0, 81.0, 101.0], None),  # not so fast that it hurts: silence and loops see it
        (EMPTY, [float(at * 30) for at in range(8)] + [211.0, 212.0, 213.0, 214.0], HOPELESS),
        (NETWORK, [at / 10 for at in range(19)], RETRYING),
        (NETWORK, [at / 10 for at in range(20)], HOPELESS),
        (NETWORK, [float(at * 4) for at in range(30)], RETRYING),
    ],
)
def test_a_burst_of_requests_that_lead_nowhere(
    event: AgentEvent, times: list[float], expected: StallKind | None
) -> None:
    """No agent makes hundreds of requests a minute unseen: a burst without a word ends the run at once."""
    talk = AgentActivity()
    for at in times:
        for sign in signs_from_events([event]):
            talk.hear(sign, at, at)
    assert (None if talk.stall is None else talk.stall.kind) == expected
    if expected is HOPELESS:
        found = diagnose(events(now=times[-1], started_at=0.0, watched_since=0.0, stall=talk.stall), RULES)
        assert found.condition is DOOMED
    talk.hear(Sign(kind=SignKind.PROGRESS, content="words"), times[-1])
    talk.hear(signs_from_events([event])[0], times[-1], times[-1])
    assert (None if talk.stall is None else talk.stall.kind) != HOPELESS, "words end a burst"


def test_lines_that_were_read_late_are_no_burst() -> None:
    """A supervisor that was away for ten minutes reads at once what was written in all of them."""
    talk = AgentActivity()
    for _line in range(8):
        talk.hear(signs_from_events([EMPTY])[0], 600.0, 0.0)
    assert talk.stall is None


@pytest.mark.parametrize("word", ["\ud800", "a\nb\x1b[2J\0", "x" * 10_000, "\ud800" * 10_000])
def test_an_agents_words_can_be_stored_and_are_short(word: str) -> None:
    """Half a character pair in a JSON string must not make a run immune: its verdict could not be recorded."""
    talk = AgentActivity()
    for _again in range(RULES.loop_steps):
        talk.hear(Sign(kind=SignKind.STEP, content=word), 1.0)
    talk.hear(Sign(kind=SignKind.TOOL_OPENED, tool="t", name=word), 1.0)
    talk = AgentActivity.load({**talk.dump(), "last_step": word, "tools": {"t": [word, 1.0, None]}})
    tools = tuple(talk.tools.values())
    found = diagnose(events(steps=RULES.loop_steps, last_step=talk.last_step, tools=tools), RULES)
    assert found.condition is LOOPING
    for text in (found.reason, *found.evidence):
        text.encode()
        assert "\n" not in text
        assert len(text) < 300


def test_a_tools_id_is_not_kept_whole() -> None:
    talk = AgentActivity()
    for kind in (SignKind.TOOL_OPENED, SignKind.TOOL_CLOSED):
        talk.hear(Sign(kind=kind, tool="i" * 1_000_000, name="make"), 1.0)
        assert len(json.dumps(talk.dump())) < 1000
    assert talk.tools == {}


@pytest.mark.parametrize("deadline", [None, -1.0, 0.0, math.nan, math.inf])
def test_a_deadline_that_is_none(deadline: float | None) -> None:
    talk = AgentActivity()
    talk.hear(opened("make", deadline=deadline), 5.0)
    assert talk.tools["1"] == OpenTool(name="make", opened_at=5.0)


signs = st.builds(
    Sign,
    kind=st.sampled_from(list(SignKind)),
    content=st.text(max_size=2),
    tool=st.sampled_from("abc"),
    name=st.text(max_size=2),
    deadline=st.none() | st.floats(),
)


@given(st.lists(signs, max_size=60), st.lists(signs, max_size=60))
def test_who_takes_over_goes_on_as_if_nothing_had_happened(before: list[Sign], after: list[Sign]) -> None:
    talk = AgentActivity()
    for sign in before:
        talk.hear(sign, 1.0)
    other = AgentActivity.load(json.loads(json.dumps(talk.dump())))
    for sign in after:
        talk.hear(sign, 2.0)
        other.hear(sign, 2.0)
    assert other.dump() == talk.dump()
    assert len(talk.dump()["lately"]) <= REMEMBERED


@pytest.mark.parametrize("kept", [{}, {"tools": []}, {"tools": {"a": 1}, "steps": 0}, {"tools": {}, "steps": "x"}])
def test_what_we_did_not_write_is_refused(kept: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        AgentActivity.load(kept)
