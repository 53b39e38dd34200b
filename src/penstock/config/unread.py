"""The sink of a pipeline with an unresolved reference, for commands that deliver nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from penstock.change import Lane
from penstock.errors import ConfigInvalid
from penstock.sink import Assignment, Delivery, Sink


@dataclass(frozen=True, slots=True)
class UnreadSink(Sink):
    """Raises its complaint on use."""

    complaint: str
    may_keep_watermark: bool

    @property
    def keeps_watermark(self) -> bool:
        """Raise the complaint if the sink may store watermarks."""
        require(self)
        return False

    def open(self, assignment: Assignment) -> Delivery:
        """Raise the complaint."""
        self.complain()

    def release(self, pipeline: str, lanes: Collection[Lane]) -> None:
        """Raise the complaint if the destination may have a watermark of these lanes."""
        require(self)

    def complain(self) -> NoReturn:
        """Raise ConfigInvalid with the reference that is missing."""
        raise ConfigInvalid(self.complaint, "set the variable, or create the file, in the environment of this command too")


def require(sink: Sink) -> None:
    """Raise ConfigInvalid if a sink may store watermarks and has an unresolved reference."""
    if isinstance(sink, UnreadSink) and sink.may_keep_watermark:
        sink.complain()
