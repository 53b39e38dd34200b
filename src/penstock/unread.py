"""The sink of a pipeline that was loaded by a command which delivers nothing, where a reference of it cannot be resolved."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from penstock.change import Lane
from penstock.errors import ConfigInvalid
from penstock.sink import Assignment, Delivery, Sink, TransactionalSink


@dataclass(frozen=True, slots=True)
class UnreadSink(Sink):
    """Raises its complaint when it is used."""

    message: str
    remedy: str

    def open(self, assignment: Assignment) -> Delivery:
        """Deliver nothing."""
        self.complain()

    def complain(self) -> NoReturn:
        """Raise ConfigInvalid with the reference that is missing."""
        raise ConfigInvalid(self.message, self.remedy)


class UnreadTransactionalSink(UnreadSink):
    """In place of one that may keep watermarks."""

    @property
    def keeps_watermark(self) -> bool:
        """Not known."""
        self.complain()

    def release(self, pipeline: str, lanes: Collection[Lane]) -> None:
        """Not possible."""
        self.complain()


def unread(kind: type, message: str) -> UnreadSink:
    """In place of a sink of this kind."""
    made = UnreadTransactionalSink if issubclass(kind, TransactionalSink) else UnreadSink
    return made(message, "set the variable, or write the file, in the environment of this command too")


def require(sink: Sink) -> None:
    """Raise ConfigInvalid before anything is changed, where a sink keeps watermarks and cannot be used."""
    if isinstance(sink, UnreadTransactionalSink):
        sink.complain()
