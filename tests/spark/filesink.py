"""A sink that appends what it gets to a file, one line for each change, and can be told to misbehave."""

import os
import time

from penstock import failpoint
from penstock.change import Change, from_batch
from penstock.errors import CaptureBroken, DeliveryExhausted
from penstock.retry import Retry
from penstock.settings import settings
from penstock.sink import Sink
from penstock.source import Span, Window
from penstock.sources.synthetic import LANE, SyntheticSource


@settings
class FileSink(Sink):
    path: str
    fail_at: int = -1  # raise an error of no kind of ours at this position, once
    halt_at: int = -1  # raise one that only a person can mend
    linger: float = 0.0  # seconds between having delivered a batch and knowing it
    condemn_at: int = -1  # say that this position is poison
    is_lazy: bool = False  # write nothing before it is asked to drain
    retry: Retry = Retry()
    failpoints: str = ""  # a folder with orders for the process that delivers

    def open(self, assignment):
        failpoint._folder = self.failpoints or None
        return FileDelivery(self, assignment)


class FileDelivery:
    def __init__(self, sink, assignment):
        self.sink, self.assignment, self.last = sink, assignment, None
        self.held = []

    def offer(self, changes, wait):
        self.held += from_batch(changes)
        if not self.sink.is_lazy:
            self.flush()
        time.sleep(self.sink.linger)
        return True

    def flush(self):
        held, self.held = self.held, []
        for change in held:
            self.write(change)

    def write(self, change: Change):
        if change.position == self.sink.fail_at and not os.path.exists(self.sink.path + ".failed"):
            open(self.sink.path + ".failed", "w").close()
            raise RuntimeError("the sink of this test has failed")
        if change.position == self.sink.halt_at:
            raise DeliveryExhausted(f"position {change.position} was refused")
        if change.position == self.sink.condemn_at:
            self.assignment.poison.condemn(change, DeliveryExhausted(f"position {change.position} was refused"))
            self.last = change
            return
        facts = (change.position, self.assignment.epoch, self.assignment.attempt, time.time() - change.at / 1e6, change.after)
        facts += (change.op, change.ordinal)
        with open(self.sink.path, "a") as out:
            out.write("\t".join(map(str, facts)) + "\n")
        self.last = change

    def delivered(self):
        return self.last

    def drain(self, wait):
        self.flush()
        return True

    def close(self):
        pass


@settings
class GapSource(SyntheticSource):
    """Gives everything up to a position, and then cannot go on."""

    gap: int = 0

    def _follow(self, position):
        yield None
        if position < self.gap - 1:
            yield Window(self._batch(position + 1, self.gap - 1), None, idle=False)
        raise CaptureBroken(f"nothing is known of position {self.gap}")

    def read(self, span, reader):
        yield from super().read(Span(span.lane, span.after, self.begin(span.lane, str(self.gap - 1))), reader)
        raise CaptureBroken(f"nothing is known of position {self.gap}")


@settings
class StepSource(SyntheticSource):
    """Gives nothing at all, not even a sign of life, before the change that it gave last is written to this file."""

    path: str = ""

    def _follow(self, after):
        yield None
        for position in range(after + 1, self.total + 1):
            yield Window(self._batch(position, position), self.begin(LANE, str(position)), idle=True)
            while position not in positions(self.path):
                time.sleep(0.01)
        yield from super()._follow(self.total)


@settings
class SlowSource(SyntheticSource):
    """Takes its time for every change, so that a batch of thousands does not end before a test has seen it at work."""

    pause: float = 0.0

    def read(self, span, reader):
        for part in self.split(span, self.total):
            time.sleep(self.pause)
            yield from super().read(part, reader)


def written(path) -> list[list[str]]:
    try:
        with open(path) as lines:
            return [line.rstrip("\n").split("\t") for line in lines]
    except FileNotFoundError:
        return []


def positions(path) -> list[int]:
    return [int(line[0]) for line in written(path)]
