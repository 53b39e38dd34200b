"""The error that holds a lane up, from the events of its sink, until the lane makes progress."""

from __future__ import annotations

from penstock.change import Place
from penstock.errors import DeliveryFailing
from penstock.event import DeliveryRetried, Event, MessagesReturned, Observer


class Trouble:
    """Receives the events of a sink, on any thread, and passes them on."""

    def __init__(self, emit: Observer) -> None:
        self._emit = emit
        self._heard: str | None = None
        self._known: str | None = None
        self._since: Place | None = None

    def on_event(self, event: Event) -> None:
        """Note the error of an event, and pass the event on."""
        if isinstance(event, DeliveryRetried):
            self._heard = f"{event.reason}; try {event.tries} failed"
        elif isinstance(event, MessagesReturned):
            self._heard = f"{event.reason}; {event.messages} messages went back"
        self._emit(event)

    def look(self, reached: Place | None, handed: Place | None) -> dict[str, str] | None:
        """The error, given the last places delivered and handed over; None once the lane makes progress or no change waits."""
        heard = self._heard
        if heard != self._known:
            self._known, self._since = heard, reached
        if heard is None:
            return None
        if reached == handed or reached != self._since:
            self._heard = self._known = None
            return None
        return DeliveryFailing(heard).facts()
