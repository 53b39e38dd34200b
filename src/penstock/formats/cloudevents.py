"""The format `cloudevents`: structured events in a JSON batch, with the change of format `penstock` as data."""

from __future__ import annotations

import json
from urllib.parse import quote

import pyarrow as pa

from penstock.formats import Format
from penstock.formats.penstock import PenstockFormat
from penstock.formats.text import columns, instant, quoted

_SHOWN = ("position", "op", "table", "key", "at", "ordinal")


class CloudEventsFormat(Format):
    """CloudEvents 1.0. An id is the incarnation of the source and the place in it, so it is the same in every repeat."""

    content_type = "application/cloudevents-batch+json"

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> list[str]:
        """The changes, each as an event."""
        data = PenstockFormat(self.pipeline).texts(changes, previous)
        opening = f'{{"specversion":"1.0","source":"/penstock/{quote(self.pipeline, safe="")}","datacontenttype":"application/json"'
        return [
            f'{opening},"id":{json.dumps(self._id(position, ordinal))},"type":"penstock.{op}","subject":{quoted(table)},'
            f'"time":"{instant(at)}","partitionkey":{json.dumps(f"{table}/{key}")},"data":{text}}}'
            for text, position, op, table, key, at, ordinal in zip(data, *columns(changes, *_SHOWN), strict=True)
        ]

    def _id(self, position: int, ordinal: int | None) -> str:
        return f"{self.incarnation}-{position}" + ("" if ordinal is None else f".{ordinal}")
