"""The pipeline file: its parts, with all errors in one exception."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from penstock import registry
from penstock.config import document
from penstock.config.document import Document, Key
from penstock.config.errors import keys
from penstock.config.parts import coordinator, invalid, kinds, part_of, validated, value_at
from penstock.config.rules import contradictions
from penstock.config.unread import UnreadSink
from penstock.errors import ConfigInvalid, ConfigUnsupported
from penstock.pipeline import Pipeline, SparkSettings, Transform
from penstock.settings import settings
from penstock.sink import TransactionalSink
from penstock.text.duration import Duration

LATER_KINDS = {
    "source": ("postgres", "rqlite", "scylla", "feed"),
    "sink": ("feed", "table", "consumer", "stdout"),
}
LATER_STATES = ("rqlite",)

_FOR_DELIVERY = ("sink", "transform", "spark")
"""The parts that commands without delivery do not use."""


@settings
class PipelineFile:
    """The keys of a pipeline file; those below `source` and `sink` depend on their `type`."""

    name: str
    source: Mapping[str, Any]
    sink: Mapping[str, Any]
    transform: Transform = field(default_factory=Transform)
    state: str = "penstock.db"
    term: Duration | None = None
    mode: Literal["live", "batch"] = "live"
    spark: SparkSettings = field(default_factory=SparkSettings)


def load(path: str | Path, *, delivers: bool = True) -> Pipeline:
    """The pipeline in this file; unless it delivers, its sink needs no secrets. Raises ConfigInvalid, ConfigUnsupported."""
    return _build(document.read(Path(path), optional=() if delivers else _FOR_DELIVERY))


def written(path: str | Path, part: str) -> Mapping[str, str]:
    """The values of a part of this file that contain references, as they are written."""
    given = document.read(Path(path), optional=_FOR_DELIVERY).written
    return {key[1]: text for key, text in given.items() if key[0] == part and len(key) == 2}


def parse(values: Mapping[str, Any], folder: str | Path = ".") -> Pipeline:
    """The pipeline of these values; relative paths are relative to the folder."""
    return _build(Document("the pipeline", Path(folder).resolve(), values))


def known_keys() -> Iterator[Key]:
    """Every key of a pipeline file, including all kinds of sources and sinks."""
    parts = ("source", "sink")
    yield from (key for key in keys(PipelineFile) if key[0] not in parts)
    for part in parts:
        yield (part, "type")
        for kind in kinds(part).values():
            for place in kind.classes():
                yield from keys(resolve_name(place), (part,))


def _build(given: Document) -> Pipeline:
    try:
        return _made(given)
    except ConfigInvalid as error:
        if not given.contents:
            raise
        raise ConfigInvalid(given.veiled(error.message), given.veiled(error.remedy)) from None


def _made(given: Document) -> Pipeline:
    _refuse_later(given)
    file, source, sink, found = _checked(given)
    if found or file is None:
        raise invalid(given, _veiled(given, found) if given.written else found)
    folder = str(given.folder) if file.transform.function else None
    state = coordinator(given, file.state, file.term)
    return Pipeline(file.name, source, sink, state, file.transform, file.mode, file.spark, folder)


def _checked(given: Document) -> tuple[Any, Any, Any, dict[Key, str]]:
    """The file, its source and its sink, each None if invalid, and all complaints."""
    found: dict[Key, str] = {}
    file = validated(PipelineFile, given.values, (), found)
    source = part_of(given, "source", found)
    sink = _unread(given) or part_of(given, "sink", found)
    if file:
        found |= contradictions(given, file, source, sink)
    return file, source, sink, {key: said for key, said in found.items() if key not in given.missing or file is None}


def _veiled(given: Document, found: Mapping[Key, str]) -> dict[Key, str]:
    """These complaints with references in place of their values, which may be secret."""
    plain = _checked(given.as_written())[3]
    kept: dict[Key, str] = {}
    for key, said in found.items():
        about = [text for written, text in given.written.items() if written[: len(key)] == key or key[: len(written)] == written]
        kept[key] = plain.get(key, f"cannot have the value of {', '.join(about)}") if about else said
    return kept


def _unread(given: Document) -> Any:
    """A placeholder for a sink with an unresolved reference; None for other sinks."""
    missing = [f"{given.where(key)} {said}" for key, said in given.missing.items() if key[0] == "sink"]
    kind = registry.sinks().get(str(value_at(given.values, ("sink", "type")))) if missing else None
    made = TransactionalSink if ("sink", "type") in given.missing else resolve_name(kind.settings) if kind else None
    return UnreadSink(f"{given.name}: {'; '.join(missing)}", issubclass(made, TransactionalSink)) if made else None


def _refuse_later(given: Document) -> None:
    """Raise ConfigUnsupported for kinds of later versions."""
    later = [
        f"{name}.type: {kind}" for name, kinds in LATER_KINDS.items() if (kind := value_at(given.values, (name, "type"))) in kinds
    ]
    later += [
        f"state: {scheme}://" for scheme in LATER_STATES if str(value_at(given.values, ("state",))).startswith(f"{scheme}://")
    ]
    if later:
        raise ConfigUnsupported(f"{given.name}: not supported yet: {', '.join(later)}")
