"""The sink of a pipeline with an unresolved reference, for commands that deliver nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from penstock.change import Lane
from penstock.errors import ConfigInvalid
from penstock.sink import Assignment, Delivery, Sink, TransactionalSink


@dataclass(frozen=True, slots=True)
class UnreadSink(Sink):
    """Raises its complaint on use."""

    message: str
    remedy: str

    def open(self, assignment: Assignment) -> Delivery:
        """Raise the complaint."""
        self.complain()

    def complain(self) -> NoReturn:
        """Raise ConfigInvalid with the reference that is missing."""
        raise ConfigInvalid(self.message, self.remedy)


class UnreadTransactionalSink(UnreadSink):
    """The replacement of a sink that may store watermarks."""

    @property
    def keeps_watermark(self) -> bool:
        """Raise the complaint."""
        self.complain()

    def release(self, pipeline: str, lanes: Collection[Lane]) -> None:
        """Raise the complaint, also here."""
        self.complain()


def unread(kind: type, message: str) -> UnreadSink:
    """The replacement of a sink of this class."""
    made = UnreadTransactionalSink if issubclass(kind, TransactionalSink) else UnreadSink
    return made(message, "set the variable, or create the file, in the environment of this command too")


def require(sink: Sink) -> None:
    """Raise ConfigInvalid if a sink stores watermarks and has an unresolved reference."""
    if isinstance(sink, UnreadTransactionalSink):
        sink.complain()
