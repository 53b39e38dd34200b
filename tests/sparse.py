"""A source whose positions are times, far apart: the distance between two of them says nothing about the changes between."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from penstock.settings import settings
from penstock.source import Backlog, at_most
from penstock.sources.synthetic import SyntheticSource

APART = 1_000_000
"""Microseconds from one change to the next."""


@settings
class SparseSource(SyntheticSource):
    """Change n stands at position n * APART; all of them are there."""

    rate: float = 1e9

    def begin(self, lane, start):
        return super().begin(lane, str(self.total * APART) if start == "now" else start)

    def head(self, lane):
        return self.begin(lane, "now")

    def read(self, span, reader):
        first, last = (self.position(end) // APART for end in (span.after, span.upto))
        if last > first:
            batch = self._batch(first + 1, last)
            places = pc.multiply(batch.column(0), pa.scalar(APART))
            yield batch.set_column(0, batch.schema.field(0), places)

    def backlog(self, lane, after, upto=None, most=None):
        head = self.position(upto or self.head(lane))
        waiting = at_most(head // APART - self.position(after) // APART, most)
        return Backlog(head, waiting, datetime.now(UTC) if waiting else None)
