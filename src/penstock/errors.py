"""What can go wrong, each kind once, with a stable code and the way out.

Errors of Python workers reach Spark's driver as text only, so an error prints itself in a form that `from_text` reads back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, ClassVar

_PRINTED = re.compile(r"\[(?P<code>[a-z]+\.[a-z-]+)\] (?P<message>[^\n]*?)(?: \| (?P<remedy>[^\n]*))?$", re.MULTILINE)


class Directive(Enum):
    """What the pipeline does about an error."""

    HALT = "halt"  # stop until a person has acted
    RETRY = "retry"  # start again by itself: nothing is lost, and it may pass


class PenstockError(Exception):
    """Base of all errors: `[code] what happened | what to do`."""

    code: ClassVar[str] = "penstock.error"
    directive: ClassVar[Directive] = Directive.HALT
    remedy: str = ""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        self.message = " ".join(word for word in message.split() if word != "|")
        self.remedy = type(self).remedy if remedy is None else " ".join(remedy.split())
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}" + (f" | {self.remedy}" if self.remedy else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.remedy)

    def facts(self) -> dict[str, str]:
        """The error as `status --json` and the logs show it."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


class ConfigInvalid(PenstockError):
    """The pipeline file or the command line is wrong."""

    code = "config.invalid"


class ConfigUnsupported(PenstockError):
    """Part of the documented surface that this version does not have yet."""

    code = "config.unsupported"
    remedy = "remove the key or the option, or wait for a later version"


class CaptureMissing(PenstockError):
    """The database, or a table that was asked for, has no capture."""

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
    """The outbox, its database or its rights are not such that messages can be read from it in order."""

    code = "outbox.unfit"


class SourceRewound(PenstockError):
    """The source is not the one the watermark was taken from: restored, replaced or rewritten."""

    code = "source.rewound"


class SourcePruned(PenstockError):
    """The source no longer has the changes behind the watermark: it has waited for this pipeline in vain."""

    code = "source.pruned"
    remedy = "what is missing is gone from the log: penstock run FILE --from beginning|now, or penstock forget FILE and start anew"


class SourceOwned(PenstockError):
    """The registration of this name in the source belongs to another state."""

    code = "source.owned"
    remedy = (
        "point `state` at that store, or give this pipeline another `name`; to hand the registration over to this state, "
        "which stops the other pipeline: penstock forget FILE, then penstock run FILE --from POSITION"
    )


class SourceUnavailable(PenstockError):
    """The source cannot be read just now."""

    code, directive = "source.unavailable", Directive.RETRY


class CursorInvalid(PenstockError):
    """A cursor that its source cannot read."""

    code = "cursor.invalid"


class DeliveryExhausted(PenstockError):
    """The far side refused a batch more often than the retry policy allows."""

    code = "sink.exhausted"
    remedy = "repair the receiver and run the pipeline again: it goes on where it stopped"


class DeliveryFailing(PenstockError):
    """The far side does not take what is sent to it, or cannot be reached: it is tried again. Told, and never raised."""

    code, directive = "sink.failing", Directive.RETRY
    remedy = "repair the receiver, or the way to it: what waits is sent again by itself"


class SinkUnavailable(PenstockError):
    """What a delivery needs on its own machine cannot be read just now."""

    code, directive = "sink.unavailable", Directive.RETRY


class SinkRefused(PenstockError):
    """The far side does not let us in: wrong credentials, or a right that is missing."""

    code = "sink.refused"
    remedy = "correct the credentials or the rights, and run the pipeline again: it goes on where it stopped"


class RowTooLarge(PenstockError):
    """A row that is larger than `source.max_row`."""

    code = "source.row-too-large"


class StateLost(PenstockError):
    """The source knows this pipeline, the state store does not."""

    code = "state.lost"


class StateUnavailable(PenstockError):
    """The state store cannot be read or written just now."""

    code, directive = "state.unavailable", Directive.RETRY


class StateRefused(StateUnavailable):
    """The state store does not admit this process. An error at the start; a process that runs tries again."""

    code = "state.refused"


class StateInvalid(PenstockError):
    """The state store is not one of ours, or of a later version."""

    code = "state.invalid"


class LetterTooLarge(PenstockError):
    """A dead letter that is larger than its store takes."""

    code = "state.letter-too-large"
    remedy = (
        "set sink.retry.then to drop until the pipeline has passed this change, which is not delivered then, "
        "or keep the state in a store that takes it"
    )


class StateUnsafe(PenstockError):
    """Other users can open a file or a folder of the state, or could have made it, and this process may not change that."""

    code = "state.unsafe"


class TermLost(PenstockError):
    """Another process leads this pipeline now, or a later attempt of the same task took its lane."""

    code, directive = "term.lost", Directive.RETRY


class TermFenced(TermLost):
    """The holder stood down by itself: it could not be sure any more that nobody else leads."""

    code, directive = "term.fenced", Directive.RETRY


class TermHeld(PenstockError):
    """Somebody leads this pipeline, and only without a leader can it be changed."""

    code = "term.held"
    remedy = "stop every process that runs it, then try again"


class JavaMissing(PenstockError):
    """No usable Java."""

    code = "engine.java"
    remedy = "install Java 17 or later, or: pip install 'penstock[java]'"


class EngineSlots(PenstockError):
    """Spark has fewer task slots than the pipelines need."""

    code = "engine.slots"


class EngineFailed(PenstockError):
    """Spark could not start, or a query ended with an error that is not ours."""

    code, directive = "engine.failed", Directive.RETRY


class EngineLost(PenstockError):
    """The JVM is gone."""

    code, directive = "engine.lost", Directive.RETRY


class EngineMemory(EngineLost):
    """The JVM ended because its heap was exhausted."""

    code = "engine.memory"
    remedy = "set spark.memory to more, or source.max_row to less: larger rows are poison then"


class TransformInvalid(PenstockError):
    """Spark cannot understand the transform, or it raised on a change."""

    code = "transform.invalid"


def kinds(root: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    """Every kind of error below this one."""
    for kind in root.__subclasses__():
        yield kind
        yield from kinds(kind)


def from_text(text: str) -> PenstockError | None:
    """The error of ours that this text carries, as a worker raised it."""
    known = {kind.code: kind for kind in kinds()}
    for found in _PRINTED.finditer(text):
        if kind := known.get(found["code"]):
            return kind(found["message"], found["remedy"] or "")
    return None
