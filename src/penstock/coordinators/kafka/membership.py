"""One member of a group on the leader topic: it serves the group, publishes heartbeats and receives them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from penstock.coordinators.kafka.address import PATIENCE, Address
from penstock.coordinators.kafka.client import Ear, confluent, settings
from penstock.coordinators.kafka.neli import Ownership
from penstock.errors import StateInvalid

LEAVING = 0.1
"""Seconds in which a member announces its leave to the brokers; the library itself does not wait for that."""

PULSE = 0.1
"""Seconds between two heartbeats of a member that waits for one."""


class Membership:
    """A member of a group, for one thread. `ttl`: seconds without a pulse after which the brokers count it as gone."""

    def __init__(
        self, place: Address, group: str, seat: str, name: str, *, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kafka, self._place, self._ear = confluent(), place, Ear(place)
        self._seat, self._name, self._clock = seat, name.replace("%", "_"), clock
        self.ownership, self.was_assigned = Ownership(), False
        self._beat_at = float("-inf")
        interval = max(50, min(300, int(place.session * 50)))  # decides how soon the client learns of another member
        own = {"client.id": seat, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "latest"}
        times = {"session.timeout.ms": int(place.session * 1000), "max.poll.interval.ms": int(max(ttl, place.session) * 1000)}
        how = {"partition.assignment.strategy": place.assignment, "heartbeat.interval.ms": interval, "fetch.wait.max.ms": 100}
        with self._ear.translated("joining the group"):
            self._producer = self._kafka.Producer(
                settings(place, self._ear, **{"linger.ms": 0, "message.timeout.ms": max(1, int(place.deadline * 1000))})
            )
            self._consumer = self._kafka.Consumer(settings(place, self._ear, **own, **times, **how))
            self._consumer.subscribe([place.leader_topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken)

    def check(self) -> bool:
        """Whether it still leads by its own clock."""
        self.ownership = self.ownership.checked(self._clock(), self._place.deadline)
        return self.ownership.leads

    def pulse(self, wait: float) -> bool:
        """Serve the group for `wait` seconds. True once a heartbeat of this call is back; False if partition zero is lost."""
        began, deadline, owned = self._clock(), time.monotonic() + wait, self.ownership.owns
        while True:
            if self.ownership.owns and (
                self._beat_at < began or self._clock() - self._beat_at >= min(PULSE, self._place.deadline / 5)
            ):
                self._beat()
            left = deadline - time.monotonic()
            self._take_in(self._consumer.poll(max(0.0, min(left, 0.02))))
            if self.ownership.owns and self.ownership.seen_at >= began:
                return True
            if left <= 0 or (owned and not self.ownership.owns):
                return False

    def close(self) -> None:
        """Leave the group, and wait until the library has announced that: otherwise the others wait for this member."""
        try:
            self._consumer.unsubscribe()
            self._consumer.poll(LEAVING)
        finally:
            closing = Thread(target=self._consumer.close, daemon=True, name="closing")
            closing.start()
            closing.join(PATIENCE)  # brokers may not answer

    def _beat(self) -> None:
        self._beat_at = self._clock()
        value = f"{time.time_ns()}%{self._name}"
        headers = {"sent-at": repr(self._beat_at)}
        with suppress(BufferError):  # then the heartbeats before it are still waiting
            self._producer.produce(self._place.leader_topic, value.encode(), self._seat.encode(), 0, headers=headers)
        self._producer.poll(0)

    def _take_in(self, message: Any) -> None:
        """Only a heartbeat of this member on partition zero counts."""
        if message is not None and message.error():
            self._refuse(message.error())
        elif message is not None and message.partition() == 0 and message.key() == self._seat.encode():
            sent_at = float(dict(message.headers() or ()).get("sent-at", b"-inf"))
            self.ownership = self.ownership.received(sent_at, self._clock(), self._place.deadline)

    def _refuse(self, error: Any) -> None:
        """Raise an error that does not pass."""
        if error.name() == "INCONSISTENT_GROUP_PROTOCOL":
            raise StateInvalid(
                f"other members of the group of {self._place.shown} do not assign partitions by {self._place.assignment}",
                "stop them, or set the same `assignment` in all addresses under `state`",
            )
        told = self._ear.told(error, "being in the group")
        if isinstance(told, StateInvalid):
            raise told

    def _given(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Read from the end: older heartbeats prove nothing."""
        self.was_assigned = True
        self.ownership = self.ownership.assigned([one.partition for one in partitions])
        for one in partitions:
            one.offset = self._kafka.OFFSET_END
        if self._place.assignment == "cooperative-sticky":
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _taken(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self.ownership = self.ownership.revoked([one.partition for one in partitions])
