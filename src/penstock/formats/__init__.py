"""The wire formats of changes: one module for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa


class Format(Protocol):
    """Changes as the body of a request.

    - The text of a change depends only on the change and its predecessor: it is the same in every repeat and every batch.
    - A change that the format cannot express has no text: None.
    - Every body is strict JSON in UTF-8.
    """

    @property
    def content_type(self) -> str:
        """The value of the header Content-Type."""

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """The changes, each as JSON; `previous` is the position sent before the first of them."""

    def body(self, texts: Iterable[str]) -> bytes:
        """The body of a request with these texts; a format may join some of them."""
