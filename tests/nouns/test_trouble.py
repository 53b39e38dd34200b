"""What keeps a lane from getting on."""

from __future__ import annotations

import pytest

from penstock.event import DeliveryRetried, Event, MessagesReturned, Warned
from penstock.spark.trouble import Trouble

RETRIED = DeliveryRetried(pipeline="p", reason="http://x: status 503", tries=4, wait_seconds=0.1)


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def trouble(told: list[Event]) -> Trouble:
    return Trouble(told.append)


def test_it_is_what_was_not_taken_and_every_event_is_told_on(trouble: Trouble, told: list[Event]) -> None:
    trouble.on_event(Warned(pipeline="p", reason="odd"))
    assert trouble.look(None, (3, 0)) is None
    trouble.on_event(RETRIED)
    found = trouble.look(None, (3, 0))
    assert found
    assert (found["code"], found["message"]) == ("sink.failing", "http://x: status 503; try 4 failed")
    assert "automatically" in found["remedy"]
    returned = MessagesReturned(pipeline="p", messages=2, reason="TIMED_OUT: late")
    trouble.on_event(returned)
    assert (trouble.look(None, (3, 0)) or {})["message"] == "TIMED_OUT: late; 2 messages went back"
    assert told[1:] == [RETRIED, returned]


def test_it_is_over_when_anything_behind_it_was_delivered(trouble: Trouble) -> None:
    trouble.look((1, 0), (9, 0))
    trouble.on_event(RETRIED)
    assert trouble.look((2, 0), (9, 0)), "that may have been before it"
    assert trouble.look((2, 0), (9, 0))
    assert trouble.look((3, 0), (9, 0)) is None
    assert trouble.look((3, 0), (9, 0)) is None
    trouble.on_event(RETRIED)
    assert trouble.look((3, 0), (9, 0)), "the same once more"


def test_it_is_over_when_nothing_waits_though_nobody_looked_in_between(trouble: Trouble) -> None:
    trouble.look((1, 0), (2, 0))
    trouble.on_event(RETRIED)
    assert trouble.look((2, 0), (2, 0)) is None
    assert trouble.look((2, 0), (3, 0)) is None, "what comes later has nothing to do with it"
