"""A harvest's life, without a table or a broker."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from deadline import PATIENCE, until
from penstock.cli.pump import batches
from penstock.errors import ConfigInvalid, EngineSlots
from penstock.event import Delivered, InFlight, LaneReleased, Led, MessagesReturned, TermGone
from penstock.harvest import (
    Harvest,
    HarvestEvent,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    State,
    works,
)
from penstock.harvest.event import Meter


def test_a_meter_counts_in_all_and_lately_and_is_read_no_more_often_than_its_interval() -> None:
    meter = Meter("one", 5.0, 100.0)
    meter.add(20)
    assert meter.read(104.9) is None
    stats = meter.read(105.0)
    assert stats
    assert (stats.name, stats.start, stats.total_count, stats.total_rate) == ("one", 100.0, 20, 4.0)
    assert (stats.interval_count, stats.interval_rate) == (20, 4.0)
    meter.add(10)
    assert meter.read(106.0) is None
    later = meter.read(110.0)
    assert later
    assert (later.total_count, later.total_rate, later.interval_count, later.interval_rate) == (30, 3.0, 10, 2.0)


def test_a_meter_tells_of_a_stall_too() -> None:
    meter = Meter("one", 0.0, 0.0)
    stalled = meter.read(1.0)
    assert stalled
    assert (stalled.interval_count, stalled.interval_rate) == (0, 0.0)


def test_what_a_persons_own_handler_raises_ends_the_harvest_and_is_told() -> None:
    def raising(event: HarvestEvent) -> None:
        raise ZeroDivisionError("no more")

    harvest = Harvest()
    harvest.set_event_handler(raising)
    harvest._receive(Led(pipeline=harvest.pipeline.name, epoch=1, holder="me"))
    assert harvest._stop.is_set()
    with pytest.raises(ZeroDivisionError):
        harvest.wait(0)


def test_a_harvest_that_never_started_is_stopped_at_once_and_stays_so() -> None:
    harvest = Harvest()
    assert harvest.state is State.CREATED
    harvest.stop()
    harvest.stop()
    assert harvest.wait(0)
    assert harvest.state is State.STOPPED
    with pytest.raises(RuntimeError, match="is stopped"):
        harvest.start()
    with pytest.raises(RuntimeError, match="must be created"):
        harvest.set_event_handler(print)


def test_a_harvest_that_cannot_begin_stops_itself_and_says_why_when_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "SLOTS", 0)
    harvest = Harvest()
    harvest.start()
    with pytest.raises(RuntimeError, match="must be created"):
        harvest.start()
    with pytest.raises(EngineSlots):
        harvest.wait(PATIENCE)
    assert harvest.state is State.STOPPED
    harvest.stop()
    assert harvest.state is State.STOPPED


def test_an_error_of_the_program_ends_a_harvest_and_is_raised_when_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "_engine", None)
    monkeypatch.setattr(works, "Engine", lambda *_: 1 // 0)
    harvest = Harvest()
    harvest.start()
    with pytest.raises(ZeroDivisionError):
        harvest.wait(PATIENCE)
    assert harvest.state is State.STOPPED


def test_a_harvest_that_ends_during_a_stop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "SLOTS", 0)
    harvest = Harvest()
    with harvest._turn:  # a stop has seen that it runs, and is about to say that it stops
        harvest.start()
        until(lambda: harvest._error)
        assert harvest.state is State.RUNNING
    with pytest.raises(EngineSlots):
        harvest.wait(PATIENCE)
    assert harvest.state is State.STOPPED


def test_what_is_wrong_with_its_configuration_is_told_before_it_starts() -> None:
    with pytest.raises(ConfigInvalid, match="SendConcurrency"):
        Harvest({"limits": {"sendConcurrency": -1}})
    with pytest.raises(ConfigInvalid, match=r"no\.such"):
        Harvest({"producerKafkaConfig": {"no.such": "x"}})


def test_what_happens_is_told_in_goharvests_words_and_ids_are_never_used_again() -> None:
    told: list[HarvestEvent] = []
    harvest = Harvest({"leaderGroupID": "orders"}, told.append)
    about = {"pipeline": "orders"}
    harvest._receive(Led(pipeline="another", epoch=1, holder="a"))
    assert not harvest.is_leader
    harvest._receive(InFlight(**about, records=9, keys=9))  # of another harvest of this process
    assert harvest.in_flight_records == 0
    harvest._receive(Led(**about, epoch=1, holder="a"))
    first = harvest.leader_id
    assert harvest.is_leader
    harvest._receive(InFlight(**about, records=3, keys=3))
    assert (harvest.in_flight_records, harvest.in_flight_keys) == (3, 3)
    harvest._receive(MessagesReturned(**about, messages=1, reason="x"))
    harvest._receive(Delivered(**about, lane="outbox", changes=4, position=4))
    harvest._receive(LaneReleased(**about, lane="outbox", position=4))
    assert harvest.in_flight_records == 0
    harvest._receive(TermGone(**about, epoch=1, reason="x", fenced=True))
    assert harvest.leader_id is None
    harvest._receive(Led(**about, epoch=2, holder="a"))
    harvest._receive(TermGone(**about, epoch=2, reason="x"))
    kinds = [LeaderAcquired, LeaderRefreshed, LeaderFenced, LeaderAcquired, LeaderRevoked]
    assert [type(event) for event in told] == kinds
    ids = [event.leader_id for event in told if isinstance(event, LeaderAcquired | LeaderRefreshed)]
    assert ids[0] == first
    assert len({UUID(str(one)) for one in ids}) == 3


def test_a_pump_writes_twenty_records_in_each_transaction() -> None:
    made = list(batches(50, 3, "pump", False, random.Random(1)))
    assert [len(rows) for rows in made] == [20, 20, 10]
    rows = [row for batch in made for row in batch]
    assert {row[1] for row in rows} == {"key-0", "key-1", "key-2"}
    assert rows[31][2:] == ("value-1f", {"Seq": "31"})
    assert all(row[2] is None for batch in batches(5, 1, "pump", True, random.Random(1)) for row in batch)
