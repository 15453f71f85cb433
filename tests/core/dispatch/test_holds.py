"""Dispatch that is held back: who waits, who starts first, and that it always ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.claude import CLAUDE
from holdfast.base.instant import Instant
from holdfast.core.agents.events import AgentEvent, AgentText, AgentTrouble, Retry, SessionStarted, StepStarted
from holdfast.core.agents.stream import Stream
from holdfast.core.dispatch.holds import (
    LONGEST_PROBE,
    Hold,
    HoldRules,
    ProbeProgress,
    ProbeSight,
    give_up_provider,
    has_provider_answered,
    held_accounts,
    held_providers,
    is_everything_held,
    is_given_up,
    judge_probe,
    new_account_hold,
    new_near_limit_hold,
    next_look_at_holds,
    update_account_hold,
    update_provider_hold,
)
from holdfast.core.dispatch.mass_death import (
    Death,
    deaths_in_window,
    is_mass,
    may_become_mass_death,
    start_fleet_hold,
    update_fleet_hold,
)
from holdfast.core.health.signs import AgentActivity, NearLimit, signs_from_events
from holdfast.core.runs.outcome import Outcome, RunUsage, Verdict
from holdfast.core.states import TaskState

RULES = HoldRules()
NOW = Instant(wall=1_000_000.0, boottime=500.0, boot_id="a")
DOWN = Verdict(outcome=Outcome.OVERLOADED, reason="529")
FINE = Verdict(outcome=Outcome.COMPLETED, reason="done")
YEARS = 10 * 365 * 86400.0


def later(seconds: float, now: Instant = NOW) -> Instant:
    return Instant(wall=now.wall + seconds, boottime=now.boottime + seconds, boot_id=now.boot_id)


def after(
    hold: Hold | None, verdict: Verdict, task: str = "t1", now: Instant = NOW, jitter: float = 0.0
) -> Hold | None:
    return update_provider_hold(hold, "acme", task, verdict, RULES, now, jitter)


def opened(now: Instant = NOW) -> Hold:
    hold = after(after(None, DOWN, now=now), DOWN, "t2", now)
    assert hold is not None
    return hold


class TestProvider:
    def test_one_failure_is_counted_and_two_in_a_row_hold_back(self) -> None:
        """R-RES-12: one broken request is no outage."""
        once = after(None, DOWN)
        assert once is not None
        assert (once.failures, once.is_held) == (1, False)
        assert held_providers([once], NOW) == frozenset()
        twice = after(once, DOWN, "t2", later(5))
        assert twice is not None
        assert (twice.failures, twice.until, twice.since) == (2, later(5).wall + 16, later(5))
        assert held_providers([twice], later(6)) == {"acme"}
        assert after(once, FINE) is None, "an answer between them ends the row"

    def test_those_that_ran_already_prolong_nothing(self) -> None:
        hold = opened()
        again = after(hold, DOWN, "t3", later(3))
        assert again is not None
        assert (again.until, again.rounds, again.failures) == (hold.until, 1, 3)
        assert after(hold, FINE, "t3", later(3)) == hold, "nor does their success end it"

    def test_a_failing_probe_makes_the_wait_twice_as_long_up_to_a_limit(self) -> None:
        hold, waits = opened(), []
        now = NOW
        for number in range(7):
            assert hold.until is not None
            now = now._replace(wall=hold.until, boottime=now.boottime + hold.until - now.wall)
            assert hold.may_start_probe(now)
            failed = after(hold.with_probe(f"p{number}", now), DOWN, f"p{number}", now)
            assert failed is not None
            assert failed.until is not None
            hold = failed
            waits.append(failed.until - now.wall)
            assert failed.probe is None
        assert waits == [32, 64, 128, 256, 300, 300, 300]
        assert hold.since == NOW, "the outage began once"

    def test_a_probe_that_is_answered_ends_it(self) -> None:
        hold = opened().with_probe("p", later(20))
        assert after(hold, FINE, "p", later(21)) is None
        limited = Verdict(outcome=Outcome.USAGE_LIMITED, reason="limit")
        assert after(hold, limited, "p", later(21)) is None, "who refuses, answers"

    def test_a_probe_of_which_nothing_is_known_frees_its_place(self) -> None:
        hold = opened().with_probe("p", later(20))
        for outcome in (Outcome.CANCELLED, Outcome.STOPPED, Outcome.LOST, Outcome.EXTERNAL_KILL, Outcome.TIMEOUT):
            free = after(hold, Verdict(outcome=outcome, reason=""), "p", later(21))
            assert free is not None
            assert (free.probe, free.rounds) == (None, 1)
            assert free.may_start_probe(later(21)), "the next one may go at once"

    @pytest.mark.parametrize("state", [s for s in TaskState if s is not TaskState.RUNNING] + [None])
    def test_a_probe_that_is_not_at_work_holds_nobody(self, state: TaskState | None) -> None:
        """Cancelled, paused, forgotten: whatever the way, its place is free without anybody's doing."""
        hold = opened().with_probe("p", later(20))
        assert hold.probe is not None
        assert hold.blocks_task(later(21))
        gone = replace(hold, probe=replace(hold.probe, state=state))
        assert not gone.blocks_task(later(21))
        assert gone.may_start_probe(later(21))

    def test_tokens_prove_an_answer_whatever_the_end(self) -> None:
        used = RunUsage(input=5, output=2)
        assert has_provider_answered(Verdict(outcome=Outcome.FAILED, reason="", usage=used))
        assert not has_provider_answered(Verdict(outcome=Outcome.FAILED, reason=""))
        assert not has_provider_answered(Verdict(outcome=Outcome.NETWORK, reason="", usage=used))

    def test_an_outage_beyond_everybodys_budget_is_given_up_once(self) -> None:
        hold = opened()
        assert not is_given_up(hold, 100.0, later(99))
        assert is_given_up(hold, 100.0, later(100))
        assert not is_given_up(hold.with_probe("p", later(99)), 100.0, later(100)), "not while somebody tries"
        over = give_up_provider(hold, later(100))
        assert (over.is_held, over.failures) == (False, 0)
        assert not is_given_up(over, 100.0, later(300))

    def test_zero_switches_it_off(self) -> None:
        off = HoldRules(failures=0)
        assert update_provider_hold(None, "acme", "t", DOWN, off, NOW, 0.0) is None


class TestClocks:
    """A clock that jumps neither holds for ever nor lets everybody go."""

    @pytest.mark.parametrize("jump", [-YEARS, YEARS])
    def test_ten_years_either_way_end_the_wait_with_one_probe(self, jump: float) -> None:
        hold, now = opened(), later(1)._replace(wall=NOW.wall + jump)
        assert hold.may_start_probe(now)
        assert hold.with_probe("p", now).blocks_task(now), "and with one only"

    def test_a_candidate_and_a_long_probe_are_measured_by_boottime(self) -> None:
        hold = new_account_hold("claude/work", NOW).with_probe("p", NOW, TaskState.QUEUED)
        jumped = later(30)._replace(wall=NOW.wall + YEARS)
        assert not hold.may_resume_probe(jumped)
        assert hold.may_resume_probe(later(61))
        rebooted = Instant(wall=NOW.wall - YEARS, boottime=1.0, boot_id="b")
        assert hold.may_resume_probe(rebooted), "nobody would live to see that minute"

    def test_mass_deaths_of_the_future_do_not_count(self) -> None:
        first = start_fleet_hold(None, "storm", RULES, NOW, 0.0)
        calm = replace(first, until=None)
        assert start_fleet_hold(calm, "storm", RULES, later(3600), 0.0).failures == 2
        rebooted = Instant(wall=NOW.wall + 3600, boottime=1.0, boot_id="b")
        assert start_fleet_hold(calm, "storm", RULES, rebooted, 0.0).failures == 2
        set_back = rebooted._replace(wall=NOW.wall - YEARS)
        assert start_fleet_hold(calm, "storm", RULES, set_back, 0.0).failures == 1


class TestAccount:
    def test_one_goes_first_and_the_rest_stay_paused(self) -> None:
        """R-RES-08: the resume of the others is not spent while they wait."""
        hold = new_account_hold("claude/work", NOW)
        assert hold.may_resume_probe(NOW)
        chosen = hold.with_probe("t1", NOW, TaskState.QUEUED)
        assert not chosen.may_resume_probe(later(1))
        assert chosen.may_start_probe(later(1)), "whoever is taken first starts first"
        running = hold.with_probe("t1", later(2))
        assert [a.full_name for a in held_accounts([running], (), later(3), "t2")] == ["claude/work"]
        assert held_accounts([running], (), later(3), "t1") == []

    def test_its_end_opens_the_account_or_shuts_it(self) -> None:
        hold = new_account_hold("claude/work", NOW).with_probe("t1", NOW)
        assert update_account_hold(hold, "t1", FINE) is None
        assert update_account_hold(hold, "t1", Verdict(outcome=Outcome.USAGE_LIMITED, reason="")) is None
        free = update_account_hold(hold, "t1", Verdict(outcome=Outcome.EXTERNAL_KILL, reason=""))
        assert free is not None
        assert free.may_start_probe(NOW)
        assert update_account_hold(hold, "t2", FINE) == hold

    def test_near_a_limit_only_a_crowd_waits(self) -> None:
        hold = new_near_limit_hold("claude/work", NOW.wall + 60, "93 % are used", NOW)
        assert not hold.blocks_task(NOW)
        assert not hold.may_start_probe(NOW)
        assert held_accounts([hold], (), NOW, None) == []
        assert [a.name for a in held_accounts([hold], ("claude/work",), NOW, None)] == ["work"]


class TestProbes:
    HOLD = new_account_hold("claude/work", NOW).with_probe("t1", NOW)

    @pytest.mark.parametrize(
        ("sight", "seconds", "expected"),
        [
            (ProbeSight(), 10, ProbeProgress.OPEN),
            (ProbeSight(lived=1.0), 10, ProbeProgress.OPEN),
            (ProbeSight(lived=1.0, has_answer=True), 10, ProbeProgress.THROUGH),
            (ProbeSight(lived=60.0), 61, ProbeProgress.THROUGH),
            (ProbeSight(lived=60.0, has_answer=True, in_trouble=True), 61, ProbeProgress.OPEN),
            (ProbeSight(lived=60.0, in_trouble=True), LONGEST_PROBE, ProbeProgress.TOO_LONG),
            (ProbeSight(), LONGEST_PROBE, ProbeProgress.TOO_LONG),
        ],
    )
    def test_a_probe_is_through_by_an_answer_or_by_living_on(
        self, sight: ProbeSight, seconds: float, expected: ProbeProgress
    ) -> None:
        assert judge_probe(self.HOLD, sight, RULES, later(seconds)) is expected

    def test_after_a_mass_death_words_prove_nothing(self) -> None:
        fleet = start_fleet_hold(None, "dead", RULES, NOW, 0.0).with_probe("t1", later(300))
        assert judge_probe(fleet, ProbeSight(lived=5.0, has_answer=True), RULES, later(305)) is ProbeProgress.OPEN
        assert judge_probe(fleet, ProbeSight(lived=60.0), RULES, later(360)) is ProbeProgress.THROUGH

    def test_next_moment(self) -> None:
        hold = opened()
        assert next_look_at_holds([], NOW) is None
        assert next_look_at_holds([hold], NOW) == hold.until
        assert next_look_at_holds([hold.with_probe("p", later(20))], later(20)) == later(21).wall


class TestMassDeath:
    def deaths(self, *moments: float) -> list[Death]:
        return [Death(run_id=f"r{n}", task_id=f"t{n}", at=at) for n, at in enumerate(moments)]

    @pytest.mark.parametrize(
        ("dead", "ran", "expected"),
        [(4, 4, False), (5, 5, True), (5, 10, True), (5, 11, False), (6, 8, True), (50, 101, False), (0, 0, False)],
    )
    def test_five_and_half(self, dead: int, ran: int, expected: bool) -> None:
        """R-CRASH-07."""
        assert is_mass(dead, ran, RULES) is expected

    def test_only_what_fits_into_one_window_counts(self) -> None:
        spread = self.deaths(0, 10, 20, 29, 30, 45, 70)
        assert [d.at for d in deaths_in_window(spread, 30, 30)] == [0, 10, 20, 29, 30]
        assert [d.at for d in deaths_in_window(spread, 70, 30)] == [45, 70]
        assert [d.at for d in deaths_in_window(spread, 45, 30)] == [20, 29, 30, 45]

    def test_while_others_could_still_die_it_is_open(self) -> None:
        assert may_become_mass_death(1, 4, 5, RULES)
        assert not may_become_mass_death(1, 3, 4, RULES)
        assert not may_become_mass_death(1, 4, 11, RULES)
        assert not may_become_mass_death(9, 9, 9, HoldRules(deaths=0))

    def test_one_hold_then_one_probe_then_all(self) -> None:
        hold = start_fleet_hold(None, "dead", RULES, NOW, 0.0)
        assert start_fleet_hold(hold, "more", RULES, later(1), 0.0) == hold
        assert is_everything_held([hold], later(299))
        assert hold.may_start_probe(later(300))
        probing = hold.with_probe("p", later(300))
        assert is_everything_held([probing], later(301))
        died = update_fleet_hold(
            probing, "p", Verdict(outcome=Outcome.EXTERNAL_KILL, reason="9"), RULES, later(302), 0.0
        )
        assert died is not None
        assert died.until == later(302).wall + 600
        assert update_fleet_hold(probing, "p", FINE, RULES, later(302), 0.0) is None
        failed = Verdict(outcome=Outcome.FAILED, reason="exit 1")
        assert update_fleet_hold(probing, "p", failed, RULES, later(302), 0.0) is None, "it lived"
        stopped = update_fleet_hold(probing, "p", Verdict(outcome=Outcome.STOPPED, reason=""), RULES, later(302), 0.0)
        assert stopped is not None
        assert stopped.may_start_probe(later(302))


class TestSigns:
    """What health reads from an agent's words about its provider and its account."""

    def talk(self, *events: AgentEvent) -> AgentActivity:
        talk = AgentActivity()
        for sign in signs_from_events(events):
            talk.hear(sign, 1.0)
        return talk

    def test_a_session_is_no_answer_and_words_are(self) -> None:
        assert not self.talk(SessionStarted(id="s"), StepStarted()).has_answer
        talk = self.talk(SessionStarted(id="s"), AgentText(text="I look"))
        assert talk.has_answer
        assert AgentActivity.load(talk.dump()).has_answer
        retrying = self.talk(Retry(trouble=AgentTrouble.OVERLOADED))
        assert not retrying.has_answer
        assert retrying.stall is not None

    def test_claudes_warning_is_a_near_limit_and_a_rejection_is_not(self) -> None:
        line = (
            '{"type":"rate_limit_event","rate_limit_info":{"status":"%s","resetsAt":1794718625,'
            '"rateLimitType":"five_hour","utilization":0.93}}'
        )
        talk = AgentActivity()
        for sign in CLAUDE.signs(line % "allowed_warning", Stream.OUT):
            talk.hear(sign, 1.0)
        assert talk.near_limit == NearLimit(used=0.93, scope="five_hour", reset=1794718625)
        assert [sign.near_limit for sign in CLAUDE.signs(line % "rejected", Stream.OUT)] == [None]
        assert list(CLAUDE.signs(line % "allowed", Stream.OUT)) == []


# -- any sequence ------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Tasks that start when nothing blocks them, end in any way, in a world whose clock jumps."""

    hold: Hold | None = None
    now: Instant = NOW
    running: dict[str, bool] = field(default_factory=dict)  # task → did it begin while dispatch was held?
    count: int = 0

    def start(self) -> bool:
        hold = self.hold
        if hold is not None and hold.blocks_task(self.now):
            return False
        self.count += 1
        task = f"t{self.count}"
        is_probe = hold is not None and hold.may_start_probe(self.now)
        if is_probe and hold is not None:
            self.hold = hold.with_probe(task, self.now)
        self.running[task] = is_probe
        return True

    def end(self, verdict: Verdict, which: int) -> None:
        if not self.running:
            return
        task = list(self.running)[which % len(self.running)]
        del self.running[task]
        self.hold = update_provider_hold(self.hold, "acme", task, verdict, RULES, self.now, 0.5)

    def vanish(self, which: int) -> None:
        """Cancelled, paused, frozen: its row says so."""
        if self.running:
            task = list(self.running)[which % len(self.running)]
            del self.running[task]
            if self.hold is not None and self.hold.probe is not None and self.hold.is_probe(task):
                self.hold = replace(self.hold, probe=replace(self.hold.probe, state=TaskState.CANCELLED))

    @property
    def probes(self) -> int:
        hold = self.hold
        if hold is None or not hold.is_held:
            return 0
        return sum(hold.is_probe(task) for task in self.running)


steps = st.one_of(
    st.tuples(st.just("start")),
    st.tuples(st.just("end"), st.sampled_from(list(Outcome)), st.integers(0, 5)),
    st.tuples(st.just("vanish"), st.integers(0, 5)),
    st.tuples(st.just("pass"), st.floats(0.1, 400)),
    st.tuples(st.just("jump"), st.sampled_from([-YEARS, YEARS, -3600.0, 3600.0])),
    st.tuples(st.just("reboot"), st.floats(0, 100)),
)


@given(st.lists(steps, max_size=60))
@settings(max_examples=150, deadline=None)
def test_never_two_probes_and_never_for_ever(sequence: list[tuple[object, ...]]) -> None:
    """R-RES-08, R-RES-12: whatever happens in whatever order, one starts first at a time, and somebody always may."""
    world = World()
    for step in sequence:
        match step:
            case ("start",):
                world.start()
            case ("end", Outcome() as outcome, int(which)):
                world.end(Verdict(outcome=outcome, reason=""), which)
            case ("vanish", int(which)):
                world.vanish(which)
            case ("pass", float(seconds)):
                world.now = later(seconds, world.now)
            case ("jump", float(seconds)):
                world.now = world.now._replace(wall=world.now.wall + seconds)
            case ("reboot", float(boottime)):
                world.now = world.now._replace(boottime=boottime, boot_id=world.now.boot_id + "b")
        assert world.probes <= 1
    for task in list(world.running):  # everybody ends some time, and time continues
        world.end(Verdict(outcome=Outcome.STOPPED, reason=""), 0)
        assert task not in world.running
    for _ in range(3):
        world.now = later(RULES.longest, world.now)
    assert world.start(), "no hold outlasts its longest wait without a probe"
