"""The wire formats of changes: one module for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa


@dataclass(frozen=True)
class Format(ABC):
    """Changes of a pipeline as the body of a request.

    - The text of a change depends only on the change and its predecessor: it is the same in every repeat and every batch.
    - A change that the format cannot express has no text: None.
    - Every body is strict JSON in UTF-8.
    """

    pipeline: str
    incarnation: str = ""
    service: str | None = None
    content_type: ClassVar[str] = "application/json"

    @abstractmethod
    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """The changes, each as JSON; `previous` is the position sent before the first of them."""

    def body(self, texts: Iterable[str]) -> bytes:
        """The body of a request with these texts: an array, unless the format has an envelope; it may join some of them."""
        return f"[{','.join(texts)}]".encode()
