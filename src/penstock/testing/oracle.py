"""Oracles: they compare the requests of a receiver with the content of the source, and return breaches as texts.

    seen = deliveries(receiver.requests)
    assert not order(seen) + completeness(seen, {1: {"table": "orders", "op": "insert"}})

A request of a deposed leader may arrive after its successor's first one. A receiver that refuses lower epochs does not accept it:
the oracles judge the content of such a receiver (`epochs=current`), or, on demand, of one without that defence (`everything`).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from penstock.change import Place
from penstock.testing.replica import Replica, canonical, row_name
from penstock.testing.request import Request

_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Delivery:
    """One change in one request; `text` has its bytes, `parcel` names the batch."""

    at: float
    epoch: int
    request: int
    parcel: str
    text: str
    change: Mapping[str, Any]

    @property
    def position(self) -> int:
        """The position of the change in its lane."""
        return int(self.change["position"])

    @property
    def place(self) -> Place:
        """The position, and the ordinal that distinguishes changes with the same position; 0 without one."""
        return self.position, int(self.change.get("ordinal", 0))

    @property
    def name(self) -> str:
        """Its place as text."""
        return named(self.place)

    @property
    def previous(self) -> int | None:
        """The position that the sender delivered before it."""
        prior: int | None = self.change["previous"]
        return prior

    def rows(self) -> set[str]:
        """Its rows: an update that changes a key has two."""
        key, before = self.change["key"], self.change.get("before") or {}
        old = {name: before.get(name, value) for name, value in key.items()}
        return {row_name(self.change["table"], one) for one in (key, old)}


class Reached(NamedTuple):
    """At this moment the watermark was at this position, or beyond."""

    at: float
    position: int


Epochs = Callable[[Sequence[Delivery]], Sequence[Delivery]]


def deliveries(requests: Iterable[Request]) -> list[Delivery]:
    """The changes of all accepted requests, in the order of arrival."""
    taken = sorted((request for request in requests if request.is_taken), key=lambda request: request.at)
    return [delivery for number, request in enumerate(taken) for delivery in _unpacked(number, request)]


def current(seen: Sequence[Delivery]) -> Sequence[Delivery]:
    """The deliveries that a receiver accepts that refuses an epoch below the highest one."""
    highest = accumulate((delivery.epoch for delivery in seen), max)
    return [delivery for delivery, epoch in zip(seen, highest, strict=True) if delivery.epoch >= epoch]


def everything(seen: Sequence[Delivery]) -> Sequence[Delivery]:
    """The deliveries that a receiver accepts that ignores epochs."""
    return seen


def firsts(seen: Iterable[Delivery]) -> Iterator[Delivery]:
    """The first delivery of each change."""
    known: set[Place] = set()
    for delivery in seen:
        if delivery.place not in known:
            known.add(delivery.place)
            yield delivery


def by_row(seen: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    """The deliveries of each row, as if the row were a lane of its own: each change names the one of its row before it.

    For deliveries with several requests under way: these keep the order of each row and no other.
    """
    found: dict[str, list[Delivery]] = {}
    for delivery in seen:
        for row in delivery.rows():
            found.setdefault(row, []).append(delivery)
    return {row: list(_chained(part)) for row, part in found.items()}


def _chained(part: Sequence[Delivery]) -> Iterator[Delivery]:
    places = sorted({delivery.place for delivery in part})
    previous = dict(zip(places, [None, *(position for position, _ in places)], strict=False))
    return (replace(delivery, change={**delivery.change, "previous": previous[delivery.place]}) for delivery in part)


def order(seen: Sequence[Delivery], epochs: Epochs = current) -> list[str]:
    """Per key, first deliveries arrive in commit order."""
    found, last = [], dict[str, Place]()
    for delivery in firsts(epochs(seen)):
        for key in sorted(delivery.rows()):
            if last.get(key, (0, 0)) > delivery.place:
                found.append(f"{key}: change {delivery.name} came first after change {named(last[key])} had come")
            last[key] = max(last.get(key, (0, 0)), delivery.place)
    return found


def completeness(seen: Sequence[Delivery], log: Mapping[Any, Mapping[str, Any]], epochs: Epochs = current) -> list[str]:
    """Every change of the log was delivered as it was made, and no other; the log has them by position or by place."""
    came = {delivery.place: delivery for delivery in epochs(seen)}
    made = {(key, 0) if isinstance(key, int) else key: fact for key, fact in log.items()}
    found = [f"change {named(place)} was never delivered: {fact}" for place, fact in made.items() if place not in came]
    for place, delivery in came.items():
        if place not in made:
            found.append(f"change {delivery.name} was delivered and never made: {delivery.text}")
        elif wrong := {name: value for name, value in made[place].items() if delivery.change.get(name) != value}:
            found.append(f"change {delivery.name} was made with {wrong} and delivered as {delivery.text}")
    return found


def repeats(seen: Sequence[Delivery], marks: Sequence[Reached] = (), epochs: Epochs = current) -> list[str]:
    """A repeat has the same bytes; repeats are contiguous runs that lead up to new changes and start above the watermark."""
    taken = epochs(seen)
    return _unequal(taken) + _not_contiguous(taken) + _going_back(taken) + _below_marks(taken, marks, "again")


def chain(seen: Sequence[Delivery], start: int | None = None, epochs: Epochs = current) -> list[str]:
    """The first delivery of each change names the one that was delivered before it."""
    found, before = [], start
    for delivery in firsts(epochs(seen)):
        if delivery.previous != before:
            found.append(f"change {delivery.name} names {delivery.previous} as the one before it; that was {before}")
        before = delivery.position
    return found


def rebuilt(seen: Sequence[Delivery], tables: Mapping[str, Iterable[Mapping[str, Any]]], epochs: Epochs = current) -> list[str]:
    """A receiver that applies new changes, and ignores those up to the last of their row, has the source's tables."""
    copies = replay(epochs(seen))
    found = []
    for table in sorted({*tables, *copies}):
        has = Counter(map(canonical, copies.get(table, {}).values()))
        should = Counter(map(canonical, tables.get(table, ())))
        found += [f"{table}: the copy lacks {row}" for row in (should - has).elements()]
        found += [f"{table}: the source lacks {row}" for row in (has - should).elements()]
    return found


def resolved(seen: Sequence[Delivery], marks: Sequence[Reached], epochs: Epochs = current) -> list[str]:
    """No new change arrives at or below a position that the watermark had reached."""
    return _below_marks(list(firsts(epochs(seen))), marks, "for the first time")


def replay(taken: Iterable[Delivery]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The tables that result from these deliveries: row by key."""
    replica = Replica()
    for delivery in taken:
        replica.take(delivery.place, delivery.change, delivery.rows())
    return replica.tables


def named(place: Place) -> str:
    """A place as text."""
    return f"{place[0]}.{place[1]}" if place[1] else f"{place[0]}"


def _unpacked(number: int, request: Request) -> Iterator[Delivery]:
    """The changes of a request with the bytes of each in the body."""
    body = request.body.decode()
    at = body.index('"changes":[') + len('"changes":[')
    while body[at] != "]":
        change, end = _DECODER.raw_decode(body, at)
        epoch, parcel = int(request.headers["penstock-epoch"]), request.headers["idempotency-key"]
        yield Delivery(request.at, epoch, number, parcel, body[at:end], change)
        at = end + (body[end] == ",")


def _unequal(taken: Sequence[Delivery]) -> list[str]:
    first = {delivery.place: delivery.text for delivery in firsts(taken)}
    return [
        f"change {one.name} came as {first[one.place]} and again as {one.text}" for one in taken if one.text != first[one.place]
    ]


def _not_contiguous(taken: Sequence[Delivery]) -> list[str]:
    """A change follows its predecessor; only a new request may go back, and only to known changes."""
    found, known = [], {delivery.place for delivery in taken[:1]}
    for before, delivery in pairwise(taken):
        goes_back = delivery.request != before.request and delivery.place in known
        if delivery.previous != before.position and not goes_back:
            found.append(f"change {delivery.name} came directly after change {before.name}, and not after {delivery.previous}")
        known.add(delivery.place)
    return found


def _going_back(taken: Sequence[Delivery]) -> list[str]:
    """A run starts just above the watermark, which never goes back; a batch that is tried again is no new run."""
    found, highest = [], (0, 0)
    for before, delivery in pairwise(taken):
        if delivery.place > before.place or delivery.parcel == before.parcel:
            continue
        if delivery.place < highest:
            found.append(f"a run of repeats starts at {delivery.name}; an earlier one had started at {named(highest)}")
        highest = max(highest, delivery.place)
    return found


def _below_marks(taken: Sequence[Delivery], marks: Sequence[Reached], how: str) -> list[str]:
    times, heights = [mark.at for mark in marks], list(accumulate((mark.position for mark in marks), max))
    found = []
    for delivery in taken:
        before = bisect_left(times, delivery.at)
        if before and delivery.position <= heights[before - 1]:
            found.append(f"change {delivery.name} came {how} when the watermark already stood at {heights[before - 1]}")
    return found
