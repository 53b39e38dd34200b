"""The driver over a transport that decides by a rule: what each outcome leads to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from deadline import PATIENCE
from memory_sink import ARRIVED, MemoryTransport, Rule
from penstock.change import Change, Lane, Op, to_batch
from penstock.delivery.bisection import Fault
from penstock.delivery.driver import Driver
from penstock.delivery.schedule import Waiting
from penstock.delivery.settings import Batch, Pace
from penstock.delivery.settlement import Failure, fault, meant
from penstock.delivery.transport import Accepted, Attempt, Deferred, Outcome, Refused
from penstock.errors import DeliveryExhausted
from penstock.event import ChangeDropped, DeliveryRetried
from penstock.letter import DeadLetter
from penstock.poison.condemned import Circumstances
from penstock.poison.parked_keys import Hold
from penstock.poison.policy import Poison
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.webhook.answer import outcome as webhook_outcome

MILLISECOND = timedelta(milliseconds=1)
LANE = Lane("main")


class Letters:
    """Has one letter of a row that no change is about, so that the driver asks for the rows of changes."""

    def __init__(self) -> None:
        self.parked: list[int] = []

    def holds(self, rows: Any = None) -> Sequence[Hold]:
        return [Hold("cafe", LANE, (0, 0), (("t", '{"id":0}'),), holds=True)]

    def park(self, letters: Sequence[DeadLetter]) -> None:
        self.parked += [letter.change.position for letter in letters]

    def secure(self) -> None: ...


class Silent(MemoryTransport):
    """Does not say when a request is under way."""

    def send(self, changes: Sequence[Any], attempt: Attempt) -> Outcome:
        return super().send(changes, attempt._replace(under_way=lambda: None))


class Bench:
    def __init__(self, rule: Rule, transport: type[MemoryTransport] = MemoryTransport) -> None:
        ARRIVED.pop("bench", None)
        self.transport, self.told, self.letters = transport("bench", rule), list[Any](), Letters()

    @contextmanager
    def open(self, then: Any = "halt", tries: int = 3, size: int = 4) -> Iterator[Driver]:
        retry = Retry(tries=tries, min=MILLISECOND, max=MILLISECOND, then=then)
        pace = Pace(Batch(size=size, delay=MILLISECOND), retry=retry)
        circumstances = Circumstances("p", LANE, "cafe", 1, self.told.extend)
        poison = Poison(then, "wait", self.letters, circumstances)  # type: ignore[arg-type]
        assignment = Assignment("p", LANE, 1, 0, "cafe", None, self.told.append, poison)
        with closing(Driver(pace, assignment, self.transport)) as driver:
            yield driver

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


def rows(*positions: int) -> Any:
    return to_batch([Change(at, Op.INSERT, "t", f'{{"id":{at}}}', None, "{}", at=at) for at in positions])


def deliver(bench: Bench, *positions: int, **settings: Any) -> list[int]:
    with bench.open(**settings) as driver:
        assert driver.offer(rows(*positions), PATIENCE)
        assert driver.drain(PATIENCE)
        assert driver.delivered().position == positions[-1]
    return ARRIVED["bench"]


def first(outcome: Any, accepted: Accepted = Accepted()) -> Rule:  # noqa: B008
    return lambda positions, attempt: outcome if attempt == 1 else accepted


def test_what_is_deferred_is_sent_again_after_a_rest_whole_and_with_the_next_number() -> None:
    bench = Bench(first(Deferred("busy", after=0.0)))
    assert deliver(bench, 1, 2, 3) == [1, 2, 3]
    assert bench.transport.requests == [([1, 2, 3], 1), ([1, 2, 3], 2)]
    assert [(event.reason, event.tries) for event in bench.of(DeliveryRetried)] == [("memory bench: busy", 1)]


def test_a_free_attempt_costs_no_try_and_no_rest() -> None:
    bench = Bench(first(Deferred("closed while idle", is_free=True)))
    assert deliver(bench, 1, 2, tries=1) == [1, 2]
    assert bench.of(DeliveryRetried) == []


def test_what_is_too_large_goes_in_halves_at_once() -> None:
    bench = Bench(lambda positions, attempt: Refused("large", is_too_large=True) if len(positions) > 1 else Accepted())
    assert deliver(bench, 1, 2, 3, 4, tries=1) == [1, 2, 3, 4]
    assert all(event.wait_seconds == 0 for event in bench.of(DeliveryRetried))


def test_the_one_change_that_is_refused_for_good_is_found_and_the_others_arrive() -> None:
    bench = Bench(lambda positions, attempt: Refused("bad", is_final=True) if 7 in positions else Accepted())
    assert sorted(deliver(bench, *range(1, 11), then="drop")) == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert [event.position for event in bench.of(ChangeDropped)] == [7]


def test_what_an_acceptance_names_is_condemned_and_the_rest_is_not_sent_again() -> None:
    bench = Bench(lambda positions, attempt: Accepted("bad", frozenset({(2, 0)}) if 2 in positions else frozenset()))
    assert deliver(bench, 1, 2, 3, then="drop") == [1, 3]
    assert [event.position for event in bench.of(ChangeDropped)] == [2]
    assert len(bench.transport.requests) == 1


@pytest.mark.parametrize("transport", [MemoryTransport, Silent])
def test_all_that_one_refusal_after_the_other_names_is_condemned(transport: type[MemoryTransport]) -> None:
    def rule(positions: list[int], attempt: int) -> Accepted | Refused:
        bad = [position for position in positions if position in (2, 3)]
        return Refused("bad", frozenset({(bad[0], 0)}), is_final=True) if bad else Accepted()

    bench = Bench(rule, transport)
    assert deliver(bench, 1, 2, 3, 4, then="dead-letter") == [1, 4]
    assert bench.letters.parked == [2, 3]


def test_nothing_is_condemned_while_everything_is_refused() -> None:
    """A destination in trouble refuses all: no change is given up before something else is accepted."""
    refused = 0

    def rule(positions: list[int], attempt: int) -> Accepted | Refused:
        nonlocal refused
        refused += 1
        return Refused("down") if refused < 12 else Accepted()

    bench = Bench(rule)
    assert sorted(deliver(bench, 1, 2, 3, 4, then="drop", tries=2)) == [1, 2, 3, 4]
    assert bench.of(ChangeDropped) == []


def test_an_outcome_that_does_not_change_ends_the_delivery_after_its_tries_and_is_raised_by_every_call() -> None:
    bench = Bench(lambda positions, attempt: Refused("no"))
    with bench.open(tries=2) as driver:
        driver.offer(rows(1, 2), PATIENCE)
        for _ in range(2):
            with pytest.raises(DeliveryExhausted, match=r"memory bench: no; changes 1\.\.2 were not taken in 2 tries"):
                driver.drain(PATIENCE)
    assert len(bench.transport.requests) == 2


def test_what_a_transport_raises_ends_the_delivery() -> None:
    def broken(positions: list[int], attempt: int) -> Accepted:
        raise ValueError("a bug")

    with Bench(broken).open() as driver:
        driver.offer(rows(1), PATIENCE)
        with pytest.raises(ValueError, match="a bug"):
            driver.drain(PATIENCE)


class Fragile(MemoryTransport):
    """Of its connections the one of this number cannot be opened, and each raises when it is closed."""

    def __init__(self, broken: int) -> None:
        super().__init__("bench", lambda positions, attempt: Accepted())
        self.opened, self.closed, self._broken = 0, 0, broken

    def connect(self) -> Fragile:
        self.opened += 1
        if self.opened == self._broken:
            raise ConnectionError("no further connection")
        return self

    def close(self) -> None:
        self.closed += 1
        raise OSError("cannot close")


IDLE = Assignment("p", LANE, 1, 0, "cafe", None, lambda event: None)


def test_what_is_open_is_closed_if_a_further_connection_cannot_be_opened() -> None:
    destination = Fragile(broken=3)
    with pytest.raises(OSError, match="cannot close") as raised:
        Driver(Pace(parallel=3), IDLE, destination)
    assert destination.closed == 2
    assert "no further connection" in str(raised.getrepr(chain=True))


def test_every_connection_is_closed_also_if_one_cannot_be() -> None:
    destination = Fragile(broken=0)
    driver = Driver(Pace(parallel=3), IDLE, destination)
    with pytest.raises(OSError, match="cannot close"):
        driver.close()
    assert destination.closed == 3


SENT = [Waiting(0, 0.0, (1, 0), "1", ()), Waiting(1, 0.0, (2, 0), "2", ())]
BOTH = frozenset({(1, 0), (2, 0)})


def test_an_acceptance_that_names_everything_is_a_final_refusal_unless_poison_halts() -> None:
    assert meant(Accepted("bad", BOTH), SENT, halts=False) == Refused("bad", BOTH, is_final=True)
    for outcome, halts in ((Accepted("bad", BOTH), True), (Accepted("bad", frozenset({(1, 0)})), False), (Deferred("no"), False)):
        assert meant(outcome, SENT, halts=halts) is outcome


def test_an_acceptance_that_names_everything_keeps_the_wait_that_it_asks_for() -> None:
    outcome = webhook_outcome(200, {"retry-after": "7", "penstock-refused": "1 2"}, "")
    reason = "status 200, named by Penstock-Refused"
    assert meant(outcome, SENT, halts=False) == Refused(reason, BOTH, is_final=True, after=7.0)


@pytest.mark.parametrize("halts", [True, False])
def test_an_acceptance_that_names_what_was_not_sent_has_taken_nothing_for_certain(halts: bool) -> None:
    outcome = meant(Accepted("bad", frozenset({(1, 0), (9, 0)}), after=7.0), SENT, halts=halts)
    assert outcome == Refused("bad, but it names what was not sent", after=7.0)


FINAL, LATER = Failure(Refused("bad", is_final=True)), Failure(Refused("bad"))


@pytest.mark.parametrize(
    ("failure", "halts", "is_believed", "expected"),
    [
        (FINAL, False, True, Fault.CERTAIN),
        (FINAL, False, False, Fault.LIKELY),
        (FINAL._replace(is_doubtful=True), False, True, Fault.LIKELY),
        (LATER, False, True, Fault.POSSIBLE),
        (Failure(Deferred("busy")), False, True, Fault.NONE),
        (FINAL, True, True, Fault.NONE),
        (LATER, True, True, Fault.NONE),
    ],
)
def test_whose_fault_a_failure_is(failure: Failure, halts: bool, is_believed: bool, expected: Fault) -> None:
    assert fault(failure, halts=halts, is_believed=is_believed) is expected


@pytest.mark.parametrize(("of", "wrong"), [(Pace(parallel=0), "parallel is 0"), (Pace(bisections=65), "bisections is 65")])
def test_a_pace_that_cannot_be_kept_is_refused(of: Pace, wrong: str) -> None:
    assert [said for said in of.complaints() if said and said.startswith(wrong)]
