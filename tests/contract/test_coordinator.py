"""What every coordinator must keep true. A new one adds a line to RIGS."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contender import __file__ as contender_file
from puppet import Puppet

from deadline import PATIENCE, until
from penstock.change import Lane
from penstock.coordinator import PipelineState, Tally, Term
from penstock.coordinators.kafka.coordinator import KafkaCoordinator
from penstock.coordinators.postgres.coordinator import PostgresCoordinator
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Cursor, Watermark
from penstock.errors import PenstockError, StateLost, TermLost

LANE = Lane("main")
LONG = 900.0
"""Seconds of a term, which does not end while a test runs, unless a clock is stepped."""

SESSION, MORTAL = 120.0, 10.0
"""Seconds after which Kafka knows that a member is dead: usually, and where that is the subject."""


def in_kafka(test: pytest.FixtureRequest, session: float) -> KafkaCoordinator:
    """State in a topic of its own, with leaders that may miss their own heartbeats for as long as they may be silent."""
    url = f"kafka://{test.getfixturevalue('broker').servers}/state-{uuid.uuid4().hex[:8]}"
    return KafkaCoordinator(f"{url}?session-timeout={session}s", silence=LONG, deadline=LONG)


RIGS: dict[str, Callable[[pytest.FixtureRequest, float], Any]] = {
    "sqlite": lambda test, _: SqliteCoordinator(str(test.getfixturevalue("tmp_path") / "state.db"), ttl=LONG),
    "kafka": in_kafka,
    "postgres": lambda test, _: PostgresCoordinator(f"{test.getfixturevalue('empty_state')}?connect_timeout=900", ttl=LONG),
}


@pytest.fixture(params=RIGS)
def make(request: pytest.FixtureRequest) -> Callable[[float], Any]:
    return lambda session: RIGS[request.param](request, session)


@pytest.fixture
def coordinator(make: Callable[[float], Any]) -> Any:
    return make(SESSION)


@pytest.fixture
def mortal(make: Callable[[float], Any]) -> Any:
    """A coordinator that soon knows of a death."""
    return make(MORTAL)


class Clock:
    """Time that also goes on when a test says so."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def step(self, seconds: float) -> None:
        self._ahead += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stage() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def mark(position: int) -> Watermark:
    return Watermark(Cursor(f"c{position}"), position, position)


def elected(candidate: Any) -> Term:
    return until(candidate.campaign)


def placed(coordinator: Any, term: Term, position: int = 0) -> Term:
    coordinator.place(term, {LANE: mark(position)})
    return term


@pytest.fixture
def leader(coordinator: Any, stage: ExitStack) -> Any:
    return stage.enter_context(closing(coordinator.candidate("p", "leader")))


@pytest.fixture
def rival(coordinator: Any, stage: ExitStack) -> Any:
    return stage.enter_context(closing(coordinator.candidate("p", "rival")))


def test_of_a_pipeline_that_never_ran_nothing_is_known(coordinator: Any) -> None:
    assert coordinator.pipeline_state("p") == PipelineState()
    assert coordinator.watermark("p", LANE) is None


def test_it_pickles(coordinator: Any) -> None:
    assert pickle.loads(pickle.dumps(coordinator)) == coordinator


def test_one_leads_and_the_other_stands_by(coordinator: Any, leader: Any, rival: Any) -> None:
    term = leader.campaign()
    assert (term.pipeline, term.holder) == ("p", "leader")
    assert rival.campaign() is None
    standing = coordinator.pipeline_state("p")
    assert (standing.epoch, standing.holder, standing.is_held, standing.standbys) == (term.epoch, "leader", True, 1)


def test_pipelines_are_led_independently(coordinator: Any, leader: Any, stage: ExitStack) -> None:
    leader.campaign()
    other = stage.enter_context(closing(coordinator.candidate("q", "rival")))
    term = other.campaign()
    assert (term.pipeline, term.holder) == ("q", "rival")
    leader.renew()


def test_who_resigns_is_followed_at_once_by_a_greater_epoch(coordinator: Any, leader: Any, rival: Any) -> None:
    old = leader.campaign()
    assert rival.campaign() is None
    leader.resign()
    assert not coordinator.pipeline_state("p").is_held
    assert rival.campaign().epoch > old.epoch
    assert coordinator.pipeline_state("p").standbys == 0


def test_who_leaves_without_resigning_is_followed_at_once(leader: Any, coordinator: Any, stage: ExitStack) -> None:
    first = coordinator.candidate("p", "first")
    old = first.campaign()
    first.close()
    assert not coordinator.pipeline_state("p").is_held
    assert leader.campaign().epoch > old.epoch


def test_a_leader_that_campaigns_again_gets_a_new_term(coordinator: Any, leader: Any) -> None:
    old = placed(coordinator, leader.campaign())
    new = leader.campaign()
    assert new.epoch > old.epoch
    leader.renew()
    with pytest.raises(TermLost), coordinator.claim(old, LANE, 1):
        pass


def test_only_the_holder_can_renew(leader: Any, rival: Any) -> None:
    with pytest.raises(TermLost):
        rival.renew()
    leader.campaign()
    rival.campaign()
    leader.renew()
    with pytest.raises(TermLost):
        rival.renew()
    leader.resign()
    with pytest.raises(TermLost):
        leader.renew()


def test_a_resignation_of_a_lost_term_ends_no_other(mortal: Any, clock: Clock) -> None:
    coordinator = replace(mortal, clock=clock)
    with Puppet(mortal, "p", "old") as old, closing(coordinator.candidate("p", "new")) as new:
        old.told("campaign")
        assert new.campaign() is None
        old.stop()
        clock.step(LONG)
        term = elected(new)
        old.go_on()
        assert old.told("resign") is None
        new.renew()
        assert coordinator.pipeline_state("p").epoch == term.epoch


def test_a_watermark_is_placed_also_backwards_but_only_under_the_current_term(coordinator: Any, leader: Any, rival: Any) -> None:
    old = placed(coordinator, leader.campaign(), 9)
    coordinator.place(old, {LANE: Watermark(Cursor("c4"), 4, None)})
    assert coordinator.watermark("p", LANE) == Watermark(Cursor("c4"), 4, None)
    leader.resign()
    with pytest.raises(TermLost):
        coordinator.place(old, {LANE: mark(5)})
    rival.campaign()
    with pytest.raises(TermLost):
        coordinator.place(old, {LANE: mark(5)})
    with pytest.raises(TermLost):
        coordinator.place(old, {Lane("new"): mark(5)})
    assert coordinator.pipeline_state("p").watermarks == {LANE: Watermark(Cursor("c4"), 4, None)}


def test_a_forgotten_pipeline_has_no_watermarks_and_a_later_epoch(coordinator: Any, leader: Any, rival: Any) -> None:
    old = placed(coordinator, leader.campaign(), 9)
    coordinator.place(old, {Lane("other"): mark(3)})
    leader.resign()
    with pytest.raises(TermLost):
        coordinator.forget(old)
    assert len(coordinator.pipeline_state("p").watermarks) == 2
    term = elected(rival)
    coordinator.forget(term)
    coordinator.forget(term)
    found = coordinator.pipeline_state("p")
    assert (found.watermarks, found.delivered, found.epoch) == ({}, 0, term.epoch)
    assert coordinator.watermark("p", LANE) is None


def test_a_store_has_an_identity_from_its_creation_on_and_no_other_store_has_it(
    coordinator: Any, tmp_path: Path, stage: ExitStack
) -> None:
    before = coordinator.identity()
    for pipeline in ("p", "q"):
        until(stage.enter_context(closing(coordinator.candidate(pipeline, "leader"))).campaign)
    identity = coordinator.identity()
    assert identity
    assert before in (None, identity)
    assert pickle.loads(pickle.dumps(coordinator)).identity() == identity
    other = SqliteCoordinator(str(tmp_path / "other.db"))
    other.candidate("p", "leader").close()
    assert other.identity() not in (None, identity)


def test_a_claim_begins_at_the_watermark_and_moves_it_forward_only(coordinator: Any, leader: Any) -> None:
    term = placed(coordinator, leader.campaign(), 3)
    with coordinator.claim(term, LANE, 0) as claim:
        assert claim.watermark == mark(3)
        claim.advance(mark(7), Tally(4, 2.5))
        claim.advance(mark(5), Tally(1, 1.5))
        assert coordinator.watermark("p", LANE) == mark(7)
        claim.advance(Watermark(Cursor("c9"), 9, None), Tally())
    assert coordinator.watermark("p", LANE) == Watermark(Cursor("c9"), 9, 7)
    standing = coordinator.pipeline_state("p")
    assert (standing.delivered, standing.rate) == (5, 0.0)
    assert standing.advanced_at is not None


def test_lanes_are_claimed_and_counted_each_for_itself(coordinator: Any, leader: Any) -> None:
    term = placed(coordinator, leader.campaign())
    coordinator.place(term, {Lane("other"): mark(1)})
    with coordinator.claim(term, LANE, 0) as one, coordinator.claim(term, Lane("other"), 0) as two:
        one.advance(mark(5), Tally(5, 1.0))
        two.advance(mark(3), Tally(2, 2.0))
        standing = coordinator.pipeline_state("p")
    assert standing.watermarks == {LANE: mark(5), Lane("other"): mark(3)}
    assert (standing.delivered, standing.rate) == (7, 3.0)


def test_a_lane_without_a_watermark_cannot_be_claimed(coordinator: Any, leader: Any) -> None:
    with pytest.raises(StateLost), coordinator.claim(leader.campaign(), LANE, 0):
        pass


def test_an_attempt_that_is_not_later_cannot_claim(coordinator: Any, leader: Any) -> None:
    term = placed(coordinator, leader.campaign())
    with coordinator.claim(term, LANE, 7):
        pass
    for attempt in (6, 7):
        with pytest.raises(TermLost), coordinator.claim(term, LANE, attempt):
            pass
    with coordinator.claim(term, LANE, 8):
        pass


def test_a_new_term_counts_attempts_anew(coordinator: Any, leader: Any) -> None:
    with coordinator.claim(placed(coordinator, leader.campaign()), LANE, 7):
        pass
    with coordinator.claim(leader.campaign(), LANE, 0) as claim:
        claim.advance(mark(1), Tally())


@pytest.mark.parametrize("position", [0, 1])
def test_a_claim_of_a_lost_term_changes_nothing_and_hears_of_it(coordinator: Any, leader: Any, rival: Any, position: int) -> None:
    with coordinator.claim(placed(coordinator, leader.campaign()), LANE, 0) as claim:
        leader.resign()
        with pytest.raises(TermLost):
            claim.advance(mark(position), Tally(1, 1.0))
        rival.campaign()
        with pytest.raises(TermLost):
            claim.advance(mark(position), Tally())
    assert coordinator.watermark("p", LANE) == mark(0)
    assert coordinator.pipeline_state("p").delivered == 0


def test_a_halted_pipeline_shows_its_error_until_somebody_leads_again(coordinator: Any, leader: Any, rival: Any) -> None:
    term = leader.campaign()
    coordinator.halt(term, {"code": "sink.exhausted", "message": "no", "remedy": "repair it"})
    leader.resign()
    assert coordinator.pipeline_state("p").error == {"code": "sink.exhausted", "message": "no", "remedy": "repair it"}
    rival.campaign()
    assert coordinator.pipeline_state("p").error is None
    with pytest.raises(TermLost):
        coordinator.halt(term, {"code": "late"})
    assert coordinator.pipeline_state("p").error is None


TROUBLE = {"code": "sink.failing", "message": "503", "remedy": "repair it"}


def test_what_is_tried_again_shows_until_its_lane_gets_on_and_outlives_its_leader(
    coordinator: Any, leader: Any, rival: Any
) -> None:
    term = placed(coordinator, leader.campaign())
    coordinator.place(term, {Lane("other"): mark(0)})
    with coordinator.claim(term, LANE, 0) as claim, coordinator.claim(term, Lane("other"), 0) as other:
        claim.advance(mark(0), Tally(trouble=TROUBLE))
        assert coordinator.pipeline_state("p").trouble == TROUBLE
        other.advance(mark(1), Tally(1))
        assert coordinator.pipeline_state("p").trouble == TROUBLE, "another lane got on"
        claim.advance(mark(0), Tally())
        assert coordinator.pipeline_state("p").trouble is None
        claim.advance(mark(0), Tally(trouble=TROUBLE))
    leader.resign()
    rival.campaign()
    standing = coordinator.pipeline_state("p")
    assert (standing.trouble, standing.error) == (TROUBLE, None), "nobody knows yet whether it has passed"


def test_what_a_leader_notes_shows_until_a_lane_is_carried_again(coordinator: Any, leader: Any, rival: Any) -> None:
    term = leader.campaign()
    coordinator.note(term, TROUBLE)  # there is no lane yet that it could hinder
    placed(coordinator, term)
    coordinator.note(term, TROUBLE)
    assert coordinator.pipeline_state("p").trouble == TROUBLE
    with coordinator.claim(term, LANE, 0) as claim:
        until(lambda: claim.advance(mark(0), Tally()) or coordinator.pipeline_state("p").trouble is None)
    leader.resign()
    rival.campaign()
    with pytest.raises(TermLost):
        coordinator.note(term, TROUBLE)
    assert coordinator.pipeline_state("p").trouble is None


def test_a_killed_leader_is_replaced_as_soon_as_its_death_can_be_seen(mortal: Any) -> None:
    with Puppet(mortal, "p", "leader") as leader, closing(mortal.candidate("p", "rival")) as rival:
        epoch = leader.told("campaign")
        assert rival.campaign() is None
        leader.kill()
        assert elected(rival).epoch > epoch
        assert not mortal.pipeline_state("p").standbys


def test_a_killed_standby_is_not_counted(mortal: Any) -> None:
    with closing(mortal.candidate("p", "leader")) as leader:
        leader.campaign()
        with Puppet(mortal, "p", "standby") as standby:
            assert standby.told("campaign") is None
            until(lambda: mortal.pipeline_state("p").standbys == 1)
        until(lambda: mortal.pipeline_state("p").standbys == 0)


def test_a_silent_leader_is_replaced_after_its_ttl_and_changes_nothing_afterwards(mortal: Any, clock: Clock) -> None:
    coordinator = replace(mortal, clock=clock)
    with closing(coordinator.candidate("p", "rival")) as rival, Puppet(mortal, "p", "leader") as leader:
        epoch = leader.told("campaign")
        placed(coordinator, Term("p", "leader", epoch))
        assert leader.told("hold", "p", "leader", epoch, LANE, 0) == 0
        assert leader.told("advance", 5) is None
        assert rival.campaign() is None
        assert leader.told("renew") is None
        leader.stop()
        seen_at = time.monotonic()
        assert rival.campaign() is None
        if not isinstance(mortal, KafkaCoordinator):
            clock.step(LONG / 2)
            assert rival.campaign() is None
        clock.step(LONG)
        term = elected(rival)
        if isinstance(mortal, KafkaCoordinator):
            assert time.monotonic() - seen_at >= MORTAL * 0.8  # a broker counts from the last sign of life that it had
        with coordinator.claim(term, LANE, 0) as claim:
            assert claim.watermark == mark(5)
            claim.advance(mark(6), Tally(1, 1.0))
            leader.go_on()
            assert leader.told("advance", 9) == "term.lost"
            assert leader.told("renew") in ("term.lost", "term.fenced")
        assert coordinator.watermark("p", LANE) == mark(6)
        assert coordinator.pipeline_state("p").holder == "rival"


@pytest.mark.parametrize("make", ["sqlite", "postgres"], indirect=True)
def test_a_rival_with_a_shorter_term_waits_as_long_as_the_leaders_lasts(coordinator: Any, clock: Clock) -> None:
    coordinator = replace(coordinator, clock=clock)
    hasty = replace(coordinator, ttl=LONG / 10)
    with closing(coordinator.candidate("p", "leader")) as leader, closing(hasty.candidate("p", "rival")) as rival:
        leader.campaign()
        assert rival.campaign() is None
        clock.step(LONG / 2)
        assert rival.campaign() is None
        assert hasty.pipeline_state("p").is_held
        clock.step(LONG)
        assert rival.campaign()


def test_a_leader_that_renews_is_not_replaced(coordinator: Any, clock: Clock) -> None:
    coordinator = replace(coordinator, clock=clock)
    with closing(coordinator.candidate("p", "leader")) as leader, closing(coordinator.candidate("p", "rival")) as rival:
        leader.campaign()
        for _ in range(12):
            leader.renew()
            assert rival.campaign() is None
            clock.step(LONG / 8)


def test_a_claim_waits_for_its_predecessors_last_breath(coordinator: Any, leader: Any) -> None:
    term = placed(coordinator, leader.campaign())
    began, entered, found = threading.Event(), threading.Event(), []

    def succeed() -> None:
        began.set()
        with coordinator.claim(term, LANE, 1) as claim:
            found.append(claim.watermark)
            entered.set()

    with Puppet(coordinator, "q", "worker") as worker:
        worker.told("hold", "p", "leader", term.epoch, LANE, 0)
        successor = threading.Thread(target=succeed)
        successor.start()
        assert began.wait(PATIENCE)
        for position in range(1, 20):
            assert worker.told("advance", position) is None
        assert not entered.is_set()
    assert entered.wait(PATIENCE)
    successor.join()
    assert found == [mark(19)]


def test_a_claim_that_waits_hears_that_its_term_has_ended(coordinator: Any, leader: Any) -> None:
    term = placed(coordinator, leader.campaign())
    heard: list[str] = []

    def wait() -> None:
        try:
            with coordinator.claim(term, LANE, 1):
                pass
        except PenstockError as error:
            heard.append(error.code)

    with coordinator.claim(term, LANE, 0):
        waiting = threading.Thread(target=wait)
        waiting.start()
        leader.resign()
        waiting.join(PATIENCE)
    assert heard == ["term.lost"]


def test_a_worker_of_an_older_term_is_awaited_for_a_short_while_only(coordinator: Any, leader: Any) -> None:
    with Puppet(coordinator, "q", "worker") as worker:
        worker.told("hold", "p", "leader", placed(coordinator, leader.campaign()).epoch, LANE, 0)
        worker.stop()
        term = leader.campaign()
        began_at = time.monotonic()
        with coordinator.claim(term, LANE, 0) as claim:
            assert time.monotonic() - began_at > 0.5
            worker.go_on()
            assert worker.told("advance", 9) == "term.lost"
            claim.advance(mark(1), Tally())
    assert coordinator.watermark("p", LANE) == mark(1)


def test_a_worker_of_an_older_term_that_dies_is_awaited_no_longer(coordinator: Any, leader: Any) -> None:
    with Puppet(coordinator, "q", "worker") as worker:
        worker.told("hold", "p", "leader", placed(coordinator, leader.campaign()).epoch, LANE, 0)
    term = leader.campaign()
    with replace(coordinator, grace=LONG).claim(term, LANE, 0) as claim:
        assert claim.watermark == mark(0)


def test_what_was_recorded_survives_a_kill_at_any_moment(coordinator: Any, leader: Any) -> None:
    term = placed(coordinator, leader.campaign())
    for attempt in range(5):
        with Puppet(coordinator, "q", "worker") as worker:
            begun = worker.told("hold", "p", "leader", term.epoch, LANE, 2 * attempt)
            worker.send("advance_for_ever")
            last = max(worker.heard() for _ in range(20 + attempt * 7))
            worker.process.kill()
            rest, _ = worker.process.communicate()
        last = max([last, *map(int, rest.splitlines()[:-1])])
        with coordinator.claim(term, LANE, 2 * attempt + 1) as claim:  # a server may still be about its last word
            found = claim.watermark
        assert found in (mark(found.position), mark(begun))
        assert found.position >= last
        assert coordinator.pipeline_state("p").delivered == found.position


def test_among_many_processes_at_most_one_leads_and_epochs_only_grow(make: Callable[[float], Any], tmp_path: Path) -> None:
    coordinator = make(MORTAL)  # some of them die
    terms = 4 if isinstance(coordinator, KafkaCoordinator) else 120  # a group takes its time
    parts = [base64.b64encode(pickle.dumps((coordinator, terms, seed, str(tmp_path)))).decode() for seed in range(6)]
    processes = [subprocess.Popen([sys.executable, contender_file, part]) for part in parts]
    try:
        for process in processes:
            assert process.wait(PATIENCE) in (0, -9)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    notes = (tmp_path / "notes").read_text().split()
    assert "twice" not in notes
    epochs = list(map(int, notes))
    assert epochs == sorted(set(epochs))
    assert len(epochs) >= terms


def test_a_lane_that_takes_over_from_others_does_so_in_one_step_and_keeps_what_they_counted(coordinator: Any) -> None:
    candidate = coordinator.candidate("orders", "first")
    with closing(candidate):
        term = elected(candidate)
        for name in ("snapshot:0", "snapshot:1"):
            coordinator.place(term, {Lane(name): mark(-1)})
            with coordinator.claim(term, Lane(name), 1) as claim:
                claim.advance(mark(5), Tally(delivered=3))
        coordinator.place(term, {LANE: mark(4)}, instead_of=[Lane("snapshot:0"), Lane("snapshot:1")])
        standing = coordinator.pipeline_state("orders")
        assert standing.watermarks == {LANE: mark(4)}
        assert standing.delivered == 6
        deposed = Term("orders", "other", term.epoch - 1)
        with pytest.raises(TermLost):
            coordinator.place(deposed, {Lane("other"): mark(9)}, instead_of=[LANE])
        assert coordinator.pipeline_state("orders").watermarks == {LANE: mark(4)}


def test_lanes_that_are_placed_together_are_placed_in_one_step_whenever_the_process_is_killed(
    coordinator: Any, leader: Any
) -> None:
    term, lanes = leader.campaign(), [Lane(f"lane {number}") for number in range(20)]
    for attempt in range(5):
        with Puppet(coordinator, "q", "placer") as placer:
            placer.send("place_for_ever", "p", "leader", term.epoch, lanes)
            placer.heard()
            for _ in range(3 + attempt):
                assert len(set(coordinator.pipeline_state("p").watermarks.values())) == 1, "a step that is seen in parts"
            placer.process.kill()
        with coordinator.claim(term, lanes[0], attempt):  # a server may still be about the last statement of the process
            found = coordinator.pipeline_state("p").watermarks
        assert found.keys() == set(lanes)
        assert len(set(found.values())) == 1


def test_lanes_that_are_placed_together_replace_others_and_keep_the_number_that_those_delivered(
    coordinator: Any, leader: Any, rival: Any
) -> None:
    term, other = placed(coordinator, leader.campaign()), Lane("other")
    with coordinator.claim(term, LANE, 0) as claim:
        claim.advance(mark(3), Tally(delivered=3))
    together = {other: mark(7), Lane("third"): mark(8)}
    coordinator.place(term, together, instead_of=[LANE, other])
    found = coordinator.pipeline_state("p")
    assert (found.watermarks, found.delivered) == (together, 3)
    leader.resign()
    elected(rival)
    with pytest.raises(TermLost):
        coordinator.place(term, {LANE: mark(1), other: mark(1)})
    assert coordinator.pipeline_state("p").watermarks == together
