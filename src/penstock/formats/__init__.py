"""How changes look on the wire: one module for each format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa


class Format(Protocol):
    """Changes as the body of a request.

    - The text of a change depends on the change and its predecessor alone, so it is the same in every repeat, in whatever batch.
    - A change that the format has no words for has no text: None.
    - Every body is strict JSON in UTF-8.
    """

    @property
    def content_type(self) -> str:
        """What the header Content-Type says of a body."""

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """The changes, each as JSON; `previous` is the position sent before the first of them."""

    def body(self, texts: Iterable[str]) -> bytes:
        """One request of these; a format may join some that belong together."""
