"""The errors, each kind with a stable code and a remedy. A worker's error reaches the driver as text, which `from_text` parses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import ClassVar

_PRINTED = re.compile(r"\[(?P<code>[a-z]+\.[a-z-]+)\] (?P<message>[^\n]*?)(?: \| (?P<remedy>[^\n]*))?$", re.MULTILINE)


class Directive(Enum):
    """The reaction of a pipeline to an error."""

    HALT = "halt"  # stop until an operator acts
    RETRY = "retry"  # restart: nothing is lost, and the cause may pass


class PenstockError(Exception):
    """Base of all errors: `[code] message | remedy`."""

    code: ClassVar[str] = "penstock.error"
    directive: ClassVar[Directive] = Directive.HALT
    remedy: str = ""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        self.message = " ".join(word for word in message.split() if word != "|")
        self.remedy = type(self).remedy if remedy is None else " ".join(remedy.split())
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}" + (f" | {self.remedy}" if self.remedy else "")

    def facts(self) -> dict[str, str]:
        """The error as `status --json` and the logs show it."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


class ConfigInvalid(PenstockError):
    """The pipeline file or the command line is wrong."""

    code = "config.invalid"


class ConfigUnsupported(PenstockError):
    """A documented feature that this version does not implement."""

    code = "config.unsupported"
    remedy = "remove the key or the option, or wait for a later version"


class CaptureMissing(PenstockError):
    """The database, or a requested table, has no capture."""

    code = "capture.missing"


class CaptureRefused(PenstockError):
    """A table that cannot be captured exactly."""

    code = "capture.refused"


class CaptureBroken(PenstockError):
    """Tables or triggers changed after capture was enabled, so the log may be incomplete."""

    code = "capture.broken"


class LogDamaged(PenstockError):
    """The capture log has a hole or a row that cannot be read."""

    code = "capture.damaged"


class OutboxMissing(PenstockError):
    """The database has no outbox of this name."""

    code = "outbox.missing"


class OutboxUnfit(PenstockError):
    """The table, the database or the privileges of an outbox do not permit messages to be read in order."""

    code = "outbox.unfit"


class SourceRewound(PenstockError):
    """The source was restored, replaced or rewritten since the watermark was recorded."""

    code = "source.rewound"


class SourcePruned(PenstockError):
    """The source no longer has the changes after the watermark."""

    code = "source.pruned"
    remedy = (
        "the missing changes cannot be restored: penstock run FILE --from beginning|now, or penstock forget FILE and start anew"
    )


class SourceOwned(PenstockError):
    """The source has this name registered for another state."""

    code = "source.owned"
    remedy = (
        "point `state` at that store, or give this pipeline another `name`; to hand the registration over to this state, "
        "which stops the other pipeline: penstock forget FILE, then penstock run FILE --from POSITION"
    )


class SourceUnavailable(PenstockError):
    """The source cannot be read at present."""

    code, directive = "source.unavailable", Directive.RETRY


class CursorInvalid(PenstockError):
    """A cursor that its source cannot read."""

    code = "cursor.invalid"


class DeliveryExhausted(PenstockError):
    """The destination refused a batch more often than the retry policy permits."""

    code = "sink.exhausted"
    remedy = "repair the receiver and run the pipeline again: it continues where it stopped"


class DeliveryFailing(PenstockError):
    """The destination does not accept changes, or cannot be reached, and is tried again. Reported, never raised."""

    code, directive = "sink.failing", Directive.RETRY
    remedy = "repair the receiver, or the connection to it: the waiting changes are sent again automatically"


class SinkUnavailable(PenstockError):
    """A local file that a delivery needs cannot be read at present."""

    code, directive = "sink.unavailable", Directive.RETRY


class SinkRefused(PenstockError):
    """The destination denies access: wrong credentials, or a missing privilege."""

    code = "sink.refused"
    remedy = "correct the credentials or the privileges, and run the pipeline again: it continues where it stopped"


class RowTooLarge(PenstockError):
    """A row that is larger than `source.max_row`."""

    code = "source.row-too-large"


class StateLost(PenstockError):
    """The source has this pipeline registered, and the state store does not have it."""

    code = "state.lost"


class StateUnavailable(PenstockError):
    """The state store cannot be read or written at present."""

    code, directive = "state.unavailable", Directive.RETRY


class StateRefused(StateUnavailable):
    """The state store denies access. Fatal at the start of a process; a running process tries again."""

    code = "state.refused"


class StateInvalid(PenstockError):
    """The state store was not created by Penstock, or by a later version."""

    code = "state.invalid"


class LetterTooLarge(PenstockError):
    """A dead letter that is larger than its store accepts."""

    code = "state.letter-too-large"
    remedy = (
        "set sink.retry.then to drop until the pipeline has passed this change, which is then not delivered, "
        "or keep the state in a store that accepts it"
    )


class StateUnsafe(PenstockError):
    """Other users can open a file or a folder of the state, or may have created it, and this process cannot change that."""

    code = "state.unsafe"


class TermLost(PenstockError):
    """Another process leads this pipeline, or a later attempt of the same task holds the lane."""

    code, directive = "term.lost", Directive.RETRY


class TermFenced(TermLost):
    """The holder stood down, since another process may lead."""

    code, directive = "term.fenced", Directive.RETRY


class TermHeld(PenstockError):
    """A process leads this pipeline, which can be changed only without a leader."""

    code = "term.held"
    remedy = "stop every process that runs it, then try again"


class JavaMissing(PenstockError):
    """No usable Java was found."""

    code = "engine.java"
    remedy = "install Java 17 or later, or: pip install 'penstock[java]'"


class EngineSlots(PenstockError):
    """Spark has fewer task slots than the pipelines need."""

    code = "engine.slots"


class EngineFailed(PenstockError):
    """Spark did not start, or a query ended with an error that Penstock did not raise."""

    code, directive = "engine.failed", Directive.RETRY


class EngineLost(PenstockError):
    """The JVM has ended."""

    code, directive = "engine.lost", Directive.RETRY


class EngineMemory(EngineLost):
    """The JVM ended because its heap was exhausted."""

    code = "engine.memory"
    remedy = "raise spark.memory, or lower source.max_row: larger rows are then poison"


class TransformInvalid(PenstockError):
    """Spark rejected the transform, or the transform raised on a change."""

    code = "transform.invalid"


def kinds(root: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    """All subclasses of an error."""
    for kind in root.__subclasses__():
        yield kind
        yield from kinds(kind)


def from_text(text: str) -> PenstockError | None:
    """The error that a worker printed in this text; None if there is none."""
    known = {kind.code: kind for kind in kinds()}
    for found in _PRINTED.finditer(text):
        if kind := known.get(found["code"]):
            return kind(found["message"], found["remedy"] or "")
    return None
