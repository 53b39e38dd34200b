"""What the records of a state topic add up to; no broker is needed for that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.change import Change, Lane, Op
from penstock.coordinators.kafka import address, letters
from penstock.coordinators.kafka.log import _checkpoint_in
from penstock.coordinators.kafka.state_machine import StateMachine
from penstock.errors import ConfigInvalid
from penstock.letter import DeadLetter


class Writer:
    """Appends requests as a process does, each with the next offset."""

    def __init__(self, machine: StateMachine) -> None:
        self.machine, self.offset, self.number = machine, 0, 0

    def asks(self, do: str, by: str = "a", number: int | None = None, **asked: Any) -> Any:
        self.offset += 1
        self.number += 1
        request = {"do": do, "by": by, "n": self.number if number is None else number, "pipeline": "p", **asked}
        return self.machine.apply(json.loads(json.dumps(request)), self.offset)


@pytest.fixture
def writer() -> Writer:
    made = Writer(StateMachine())
    made.asks("take", holder="leader", seat="s", over=0)
    made.asks("place", epoch=1, lane="main", mark=["c0", 0, None], gone=[])
    made.asks("register", epoch=1, lane="main", attempt=0, seat="w")
    return made


def advance(position: int, counted: tuple[int, int, int] = (0, 0, 0), epoch: int = 1, attempt: int = 0) -> dict[str, Any]:
    mark = [f"c{position}", position, position]
    return {"epoch": epoch, "lane": "main", "attempt": attempt, "mark": mark, "counted": counted, "rate": 1.0, "at": 1.0}


def parked(position: int) -> dict[str, Any]:
    change = Change(position, Op.INSERT, "t", '{"id":1}', None, "{}")
    return letters.written(DeadLetter("cafe", Lane("main"), change, "sink", "sink.exhausted", "no", 1))


def test_a_letter_that_an_earlier_version_wrote_as_a_list_is_read() -> None:
    listed = [7, "update", "t", '{"id":1}', "{}", '{"n":1}', 5, 1, 2, "odd", 9, 3]
    change = letters.read(parked(7) | {"change": listed}).change
    facts = '{"new_row_id":2,"old_row_id":1}'
    assert change == Change(7, Op.UPDATE, "t", '{"id":1}', "{}", '{"n":1}', 5, facts, "odd", 9, 3)
    assert (change.headers, change.schema) == ((), None)


def test_an_epoch_is_the_offset_of_the_record_that_took_the_term(writer: Writer) -> None:
    assert writer.machine.of("p").epoch == 1
    assert writer.asks("take", holder="other", seat="t", over=1) == writer.offset == 4


def test_of_two_that_would_take_the_same_term_the_second_gets_nothing(writer: Writer) -> None:
    assert writer.asks("take", holder="b", seat="b", over=1) == 4
    assert writer.asks("take", holder="c", seat="c", over=1) is None
    assert writer.machine.of("p").holder == "b"


def test_records_of_a_deposed_leader_that_land_late_change_nothing(writer: Writer) -> None:
    writer.asks("advance", **advance(5))
    writer.asks("take", holder="b", seat="b", over=1)
    before = writer.machine.written()["pipelines"]
    assert not writer.asks("advance", **advance(9))
    assert not writer.asks("place", epoch=1, lane="main", mark=["c1", 1, None], gone=[])
    assert not writer.asks("park", letters=[parked(7)], epoch=1, lane="main", attempt=0)
    assert not writer.asks("halt", epoch=1, error={})
    assert not writer.asks("forget", epoch=1)
    assert not writer.asks("resign", epoch=1, seat="s")
    assert writer.machine.written()["pipelines"] == before


def test_a_request_that_its_writer_has_given_up_counts_no_more_when_it_lands_behind_a_later_one(writer: Writer) -> None:
    assert writer.asks("place", number=51, epoch=1, lane="main", mark=["c7", 7, None], gone=[])
    assert writer.asks("place", number=50, epoch=1, lane="main", mark=["c3", 3, None], gone=[]) is None
    assert writer.machine.of("p").lanes["main"].position == 7


def test_what_was_counted_before_an_answer_was_lost_is_not_counted_again(writer: Writer) -> None:
    writer.asks("advance", **advance(5, (5, 1, 0)))
    writer.asks("advance", **advance(8, (8, 1, 2)))
    entry = writer.machine.of("p")
    assert (entry.lanes["main"].total, entry.letters.counts["dropped"], entry.letters.counts["passed"]) == (8, 1, 2)


def test_a_state_that_was_written_down_is_the_same_when_it_is_read_and_goes_on_the_same_way(writer: Writer) -> None:
    writer.asks("advance", **advance(5, (5, 0, 0)))
    writer.asks("park", letters=[parked(6), parked(7)], epoch=1, lane="main", attempt=0)
    writer.machine.add_part({"id": "x", "index": 0, "of": 2, "text": "{"})
    other = StateMachine.read(json.loads(json.dumps(writer.machine.written())))
    assert other.written() == writer.machine.written()
    letter = parked(9)
    for machine in (writer.machine, other):
        follower = Writer(machine)
        follower.offset, follower.number = writer.offset, 100
        assert follower.asks("follow", letters=[letter], epoch=1, lane="main", attempt=0) == [True]
        assert machine.add_part({"id": "x", "index": 1, "of": 2, "text": "}"}) == "{}"
    assert other.written() == writer.machine.written()


def test_parts_of_which_the_first_is_missing_say_nothing() -> None:
    assert StateMachine().add_part({"id": "x", "index": 1, "of": 2, "text": "}"}) is None


def test_a_reader_begins_at_the_first_checkpoint_behind_which_nothing_is_missing() -> None:
    def record(offset: int, **facts: Any) -> tuple[int, str, str]:
        return offset, "store", json.dumps(facts)

    old, new = record(105, do="checkpoint", behind=100), record(106, do="checkpoint", behind=103)
    between = record(104, do="advance", note="a word of a checkpoint")
    assert _checkpoint_in([between, old, new], 103) == {"do": "checkpoint", "behind": 103}
    assert _checkpoint_in([between, old, new], 90) == {"do": "checkpoint", "behind": 100}
    assert _checkpoint_in([between, old], 103) is None
    halves = [record(107 + i, do="part", id="x", index=i, of=2, text=new[2][i * 9 : 9 if i == 0 else None]) for i in (0, 1)]
    assert _checkpoint_in(halves, 103) == {"do": "checkpoint", "behind": 103}
    assert _checkpoint_in(halves[1:], 103) is None


def test_an_address_tells_brokers_topic_group_and_times() -> None:
    place = address.parse("kafka://a:1,b:2/state?session-timeout=9s&sasl.password=s3cret")
    assert (place.servers, place.topic, place.leader_topic, place.group("orders")) == (
        "a:1,b:2",
        "state",
        "state.neli",
        "state.orders",
    )
    assert (place.session, place.deadline) == (9.0, 3.0)
    assert "s3cret" not in repr(place) + place.shown
    assert address.parse("kafka://a:1/state").session == 15.0
    named = address.parse("kafka://a:1/state?leader-topic=t&leader-group=g&receive-deadline=2s")
    assert (named.leader_topic, named.group("orders"), named.session) == ("t", "g", 6.0)


@pytest.mark.parametrize(
    "url",
    [
        "kafka://broker/state",
        "kafka://a:1",
        "kafka://u:s3cret@a:1/state",
        "kafka://a:1/sta te",
        "kafka://a:1/state?sesion-timeout=3s",
        "kafka://a:1/state?group.id=s3cret",
        "kafka://a:1/state?session-timeout=s3cret",
        "kafka://a:1/state?session-timeout=5s&receive-deadline=4s",
        "kafka://a:1/state?session-timeout=0s",
        "kafka://a:1/state?leader-topic=a/b",
    ],
)
def test_an_address_that_cannot_be_right_is_refused(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        address.parse(url)
    assert "u:s3cret" not in str(caught.value)
