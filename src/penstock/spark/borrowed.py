"""A source for another process, with references in place of its secrets, which that process resolves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from penstock.config.document import resolved
from penstock.source import Source


@dataclass(frozen=True, slots=True)
class Borrowed:
    """The settings of a source; those in `references` have the text of the pipeline file."""

    kind: type[Any]
    values: Mapping[str, Any]
    references: Mapping[str, str]
    file: str

    def source(self) -> Source:
        """The source with its references resolved in this process. Raises ConfigInvalid if one cannot be resolved."""
        found = {name: resolved(text, ("source", name), Path(self.file)) for name, text in self.references.items()}
        made: Source = self.kind(**{**self.values, **found})
        return made


def borrowed(source: Source, written: Mapping[str, str], file: str) -> Borrowed | Source:
    """The source for other processes; unchanged if the file has no reference for a secret of it."""
    kind: Any = type(source)
    secret = {one.name for one in fields(kind) if not one.repr}
    references = {name: text for name, text in written.items() if name in secret}
    values = {one.name: getattr(source, one.name) for one in fields(kind) if one.name not in references}
    return Borrowed(kind, values, references, file) if references else source
