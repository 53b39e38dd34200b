"""A webhook at work on one lane: the caller makes texts of changes, couriers send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat

import pyarrow as pa

from penstock.change import Change, from_batch, last_place
from penstock.errors import SinkUnavailable
from penstock.event import Warned
from penstock.interpreter import share_interpreter
from penstock.rows import Row, plain_keys, rows_at, rows_of
from penstock.sink import Assignment
from penstock.sinks.webhook.courier import Courier, Equipment
from penstock.sinks.webhook.dispatch import Dispatch
from penstock.sinks.webhook.endpoint import Endpoint, parse
from penstock.sinks.webhook.hearing import Hearings
from penstock.sinks.webhook.hidden import Hider
from penstock.sinks.webhook.line import Line, Security
from penstock.sinks.webhook.parcel import Packer, places
from penstock.sinks.webhook.schedule import Ready
from penstock.sinks.webhook.sink import WebhookSink


class WebhookDelivery:
    """Keeps the promises of Delivery; DESIGN.md numbers the invariants behind them."""

    def __init__(self, sink: WebhookSink, assignment: Assignment) -> None:
        endpoint = parse(sink.url)
        self._packer, self._dispatch = Packer(sink, assignment), Dispatch(sink)
        self._previous, self._poison, self._is_parallel = assignment.previous, assignment.poison, sink.parallel > 1
        share_interpreter()
        timeout, security, hide = sink.timeout.total_seconds(), _security(sink, endpoint, assignment), Hider(sink)
        line = partial(Line, endpoint, timeout, security, hide)
        is_chained = sink.parallel == 1 and sink.retry.then == "halt"
        equipment = Equipment(self._packer, self._dispatch, sink.retry, assignment, is_chained)
        self._hearings = Hearings(line, equipment)
        take_over = self._hearings.take_over if sink.inquests else None
        self._couriers = [Courier(line(), equipment, take_over) for _ in range(sink.parallel)]
        for courier in self._couriers:
            courier.start()

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Take these changes unless there is no room."""
        if not self._wait(self._dispatch.has_room, wait):
            return False
        if changes.num_rows:
            self._dispatch.put(self._ready(changes))
            self._previous = last_place(changes)[0]
        return True

    def _ready(self, changes: pa.RecordBatch) -> Ready:
        has_letters, rows = self._poison.has_letters, rows_of(changes) if self._is_parallel else []
        moment = self._poison.moment
        keys = plain_keys(changes) if has_letters else None
        ready = Ready(changes, places(changes), self._packer.format.texts(changes, self._previous), rows or repeat(()), keys)
        near = self._poison.near(ready.places, keys) if has_letters else ()
        concerned = self._concerned(ready, near, rows) if near else []
        ready = self._without_parked(ready, concerned) if concerned else ready
        is_clear = not any(ready.texts[index] is not None for index in concerned)
        return ready._replace(clear_at=moment if is_clear else None)

    def _concerned(self, ready: Ready, near: Sequence[int], rows: Sequence[Sequence[Row]]) -> list[int]:
        """Which of these may be letters, or wait for one; of all others it is known that they are not."""
        some = rows_at(ready.offered, near, ready.keys) if ready.keys else rows or rows_of(ready.offered)
        return [near[index] for index in self._poison.concerned([ready.places[index] for index in near], some)]

    def _without_parked(self, ready: Ready, concerned: Sequence[int]) -> Ready:
        """Park what of these is known to wait for a dead letter; of a whole offer at once, since each time costs."""
        parked = self._poison.keep_back(list(from_batch(ready.offered.take(pa.array(concerned)))))
        texts = list(ready.texts)
        for index in concerned:
            texts[index] = None if ready.places[index] in parked else texts[index]
        return ready._replace(texts=texts)

    def delivered(self) -> Change | None:
        """The last change up to which a 2xx has answered all, also when a later one has failed."""
        self._sever_late()
        return self._dispatch.last()

    def drain(self, wait: float) -> bool:
        """Send what was taken without further delay, and wait for it."""
        self._dispatch.hurry()
        return self._wait(self._dispatch.is_drained, wait)

    def close(self) -> None:
        """Let the requests under way have their time, and stop."""
        self._dispatch.end()
        self._hearings.end()
        while alive := [courier for courier in self._all() if courier.is_alive()]:
            self._sever_late()
            alive[0].join(0.1)
        for courier in self._all():
            courier.line.close()

    def _all(self) -> list[Courier]:
        return [*self._couriers, *self._hearings.couriers]

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        self._check()
        is_met = self._dispatch.wait(condition, seconds)
        self._check()
        return is_met

    def _check(self) -> None:
        self._sever_late()
        self._dispatch.check()

    def _sever_late(self) -> None:
        for courier in self._all():
            courier.line.sever_if_late()


def _security(sink: WebhookSink, endpoint: Endpoint, assignment: Assignment) -> Security | None:
    """Made once for all lines, since reading the authorities takes its time."""
    for warning in sink.warnings():
        assignment.tell(Warned(pipeline=assignment.pipeline, reason=warning))
    if endpoint.scheme != "https":
        return None
    try:
        return Security(sink.tls.context(), sink.tls.server_name)
    except ValueError as error:  # they were usable when the pipeline file was read: it may be a renewal, half done
        raise SinkUnavailable(f"sink.{error}", "see that the file is whole, and on every machine that delivers") from None
