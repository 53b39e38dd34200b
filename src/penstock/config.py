"""The pipeline file: the only place that parses one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import timedelta
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from penstock import document
from penstock.complaint import complaints, keys, one_of, parts, unknown
from penstock.coordinators import COORDINATORS, SCHEMES
from penstock.document import NO_HOME, Document, Key
from penstock.duration import Duration
from penstock.errors import ConfigInvalid, ConfigUnsupported
from penstock.pipeline import Pipeline, SparkSettings, Transform
from penstock.settings import settings
from penstock.sink import TransactionalSink
from penstock.sinks import SINKS
from penstock.sources import READERS, SOURCES
from penstock.unread import unread

KINDS: Mapping[str, Mapping[str, str]] = {"source": SOURCES, "sink": SINKS}

LATER_KINDS = {
    "source": ("postgres", "rqlite", "scylla", "feed"),
    "sink": ("feed", "table", "consumer", "stdout"),
}
LATER_STATES = ("rqlite",)

PATHS = (
    ("database",),
    ("tls", "ca", "cert", "key"),
    ("config", *(f"ssl.{what}.location" for what in ("ca", "certificate", "crl", "key", "keystore"))),
)
"""Keys of a source or a sink that name files; behind a key with others below it, those of them that do."""

PROBE = ("ssl.ca.location", "probe")
"""No path but librdkafka's own word: look where certificates usually lie."""

_FOR_DELIVERY = ("sink", "transform", "spark")
"""The parts that commands without a delivery do not use."""

_LEAST_TERM = timedelta(seconds=5)  # a barrier gives records back after 4 s, so that they are not sent after a term
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@settings
class PipelineFile:
    """The keys of a pipeline file; what stands below `source` and `sink` depends on their `type`."""

    name: str
    source: Mapping[str, Any]
    sink: Mapping[str, Any]
    transform: Transform = field(default_factory=Transform)
    state: str = "penstock.db"
    term: Duration | None = None
    mode: Literal["live", "batch"] = "live"
    spark: SparkSettings = field(default_factory=SparkSettings)


def load(path: str | Path, *, delivers: bool = True) -> Pipeline:
    """The pipeline in this file; to look at it, its sink needs no secrets. Raises ConfigInvalid, ConfigUnsupported."""
    return _build(document.read(Path(path), optional=() if delivers else _FOR_DELIVERY))


def references(path: str | Path) -> Mapping[str, str]:
    """The keys of this file whose values have the contents of files in them, with these values as they are written."""
    written = document.read(Path(path)).written
    return {".".join(key): text for key, text in written.items() if "${file:" in text}


def written(path: str | Path, part: str) -> Mapping[str, str]:
    """The keys of this part of this file whose values have references, with these values as they are written."""
    given = document.read(Path(path), optional=_FOR_DELIVERY).written
    return {key[1]: text for key, text in given.items() if key[0] == part and len(key) == 2}


def parse(values: Mapping[str, Any], folder: str | Path = ".") -> Pipeline:
    """The pipeline of these values; relative paths are relative to the folder."""
    return _build(Document("the pipeline", Path(folder).resolve(), values))


def known_keys() -> Iterator[Key]:
    """Every key of a pipeline file, of every kind of source and sink."""
    yield from (key for key in keys(PipelineFile) if key[0] not in KINDS)
    for part, kinds in KINDS.items():
        yield (part, "type")
        for kind in dict.fromkeys([*kinds.values(), *(READERS.values() if part == "source" else ())]):
            yield from keys(resolve_name(kind), (part,))


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
        raise _invalid(given, _veiled(given, found) if given.written else found)
    folder = str(given.folder) if file.transform.function else None
    return Pipeline(file.name, source, sink, _coordinator(given, file), file.transform, file.mode, file.spark, folder)


def _checked(given: Document) -> tuple[Any, Any, Any, dict[Key, str]]:
    """The file, its source and its sink, each None if it is wrong, and all complaints."""
    found: dict[Key, str] = {}
    file = _validated(PipelineFile, given.values, (), found)
    source = _part(given, "source", found)
    sink = _unread(given) or _part(given, "sink", found)
    if file:
        found |= _contradictions(given, file, source) | _barrier_complaints(file, source, sink)
    return file, source, sink, {key: said for key, said in found.items() if key not in given.missing or file is None}


def _veiled(given: Document, found: Mapping[Key, str]) -> dict[Key, str]:
    """These complaints with references in place of what they stand for: it may be secret, whatever the key is."""
    plain = _checked(given.as_written())[3]
    kept: dict[Key, str] = {}
    for key, said in found.items():
        about = [text for written, text in given.written.items() if written[: len(key)] == key or key[: len(written)] == written]
        kept[key] = plain.get(key, f"cannot be what {', '.join(about)} stands for") if about else said
    return kept


def _unread(given: Document) -> Any:
    """What stands in for a sink with a reference that cannot be resolved; None for any other."""
    missing = [f"{given.where(key)} {said}" for key, said in given.missing.items() if key[0] == "sink"]
    place = SINKS.get(str(_value(given, ("sink", "type"))))
    kind = TransactionalSink if ("sink", "type") in given.missing else resolve_name(place) if place else None
    return unread(kind, f"{given.name}: {'; '.join(missing)}") if missing and kind else None


def _refuse_later(given: Document) -> None:
    """Say of everything that a later version will have, that this one has not."""
    later = [f"{name}.type: {kind}" for name, kinds in LATER_KINDS.items() if (kind := _value(given, (name, "type"))) in kinds]
    later += [f"state: {scheme}://" for scheme in LATER_STATES if str(_value(given, ("state",))).startswith(f"{scheme}://")]
    if later:
        raise ConfigUnsupported(f"{given.name}: not supported yet: {', '.join(later)}")


def _part(given: Document, name: str, found: dict[Key, str]) -> Any:
    """The source or the sink, or None with the reasons added to those found."""
    values = given.values.get(name)
    if not isinstance(values, Mapping):
        return None
    kinds = KINDS[name]
    kind = values.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        found[name, "type"] = f"is missing: {one_of(list(kinds))}" if kind is None else f"{kind} {unknown(str(kind), list(kinds))}"
        return None
    rest = {key: value for key, value in values.items() if key != "type"}
    place = READERS.get((kind, str(rest.get("reader"))), kinds[kind])
    return _validated(resolve_name(place), _located(given, rest), (name,), found)


def _located(given: Document, values: Mapping[str, Any]) -> dict[str, Any]:
    """These values with the paths among them as seen from the folder of the file."""
    moved = dict(values)
    for name, *inner in PATHS:
        if inner and isinstance(within := moved.get(name), Mapping):
            named = {key: within[key] for key in inner if isinstance(within.get(key), str)}
            paths = {key: path for key, path in named.items() if (key, path) != PROBE}
            moved[name] = dict(within) | {key: _path(given, path) for key, path in paths.items()}
        elif isinstance(path := moved.get(name), str):
            moved[name] = _path(given, path)
    return moved


@cache
def _adapter(part: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(part)


def _validated(part: type[Any], values: Mapping[str, Any], inside: Key, found: dict[Key, str]) -> Any:
    try:
        # As JSON, because pydantic's strict Python mode wants finished objects where a file has mappings.
        return _adapter(part).validate_json(json.dumps(values, default=str))  # type: ignore[arg-type]
    except ValidationError as error:
        found |= complaints(part, error.errors(), inside)
        failed = {str(one["loc"][0]) for one in error.errors() if one["loc"]}
        if failed and failed <= set(parts(part)):  # what is wrong beside them is not known yet
            _validated(part, {key: value for key, value in values.items() if key not in failed}, inside, found)
        return None


def _contradictions(given: Document, file: PipelineFile, source: Any) -> dict[Key, str]:
    """What no single key can tell."""
    found: dict[Key, str] = {}
    if not _NAME.fullmatch(file.name):
        found[("name",)] = f"{file.name!r} must be 1 to 64 letters, digits or _ . -"
    if file.spark.memory is not None and "spark.driver.memory" in file.spark.config:
        found["spark", "memory"] = "and spark.config.spark.driver.memory exclude each other: remove the latter"
    return found | _transform_complaints(file.transform) | _state_complaint(given, file.state, source) | _term_complaint(file)


def _transform_complaints(transform: Transform) -> dict[Key, str]:
    """What can be told without Spark and without importing anything."""
    found: dict[Key, str] = {}
    if transform.where is not None and not transform.where.strip():
        found["transform", "where"] = "is empty: write a condition, or remove the key"
    if transform.select is not None and not transform.select:
        found["transform", "select"] = "is empty: name a field and its expression, or remove the key"
    for name, expression in (transform.select or {}).items():
        if not expression.strip():
            found["transform", "select", name] = "is empty: write an expression, or remove the field"
    if transform.function is not None and not _FUNCTION.fullmatch(transform.function):
        found["transform", "function"] = f"{transform.function!r} must be module:name, such as shop.rules:enrich"
    return found


def _barrier_complaints(file: PipelineFile, source: Any, sink: Any) -> dict[Key, str]:
    """A barrier falls when a row is purged: that needs a table of which nobody else reads, and one change for each of its rows."""
    if getattr(sink, "delivery", None) != "barrier" or source is None:
        return {}
    if not source.row_lease:
        fix = "it is for source.type outbox with reader: mark; use exactly-once or at-least-once here"
        return {("sink", "delivery"): f": barrier purges each message from a table that no other pipeline reads: {fix}"}
    if file.transform.function:
        return {("transform", "function"): "cannot be there with sink.delivery: barrier, which purges a row with its one change"}
    return {}


def _state_complaint(given: Document, state: str, source: Any) -> dict[Key, str]:
    path, scheme = _path(given, state), _scheme(state)
    if scheme in SCHEMES:
        return {}
    if scheme:
        return {("state",): f"{scheme}:// {unknown(scheme, list(SCHEMES))}, or the path of a file"}
    if os.path.isdir(path):
        return {("state",): f"{state} is a folder: name a file in it, such as {state.rstrip('/')}/penstock.db"}
    if os.path.realpath(path) == os.path.realpath(getattr(source, "database", "") or os.devnull):
        return {("state",): "is the source's own database: name another file"}
    return {}


def _term_complaint(file: PipelineFile) -> dict[Key, str]:
    if file.term is None:
        return {}
    if _scheme(file.state) == "kafka":
        return {("term",): "cannot be set with state: kafka://, where session-timeout in the address is the length of a term"}
    return {} if file.term >= _LEAST_TERM else {("term",): f"must be {_LEAST_TERM.total_seconds():.0f}s or longer"}


def _coordinator(given: Document, file: PipelineFile) -> Any:
    kind = SCHEMES.get(_scheme(file.state), "sqlite")
    try:
        made = resolve_name(COORDINATORS[kind])
    except ImportError as error:
        what = f"{given.where(('state',))} needs a package that is not installed: {error}"
        raise ConfigInvalid(f"{given.name}: {what}", f"pip install 'penstock[{kind}]'") from error
    try:
        return made(_path(given, file.state), **({"ttl": file.term.total_seconds()} if file.term else {}))
    except ConfigInvalid:
        if "${file:" not in (text := given.written.get(("state",), "")):
            raise
        raise _invalid(given, {("state",): f"cannot be what {text} stands for"}) from None


def _scheme(state: str) -> str:
    """What stands before `://`; nothing for a path."""
    return state.partition("://")[0] if "://" in state else ""


def _invalid(given: Document, found: Mapping[Key, str]) -> ConfigInvalid:
    lines = [
        f"{given.where(key)} {said}".replace(" : ", ": ")
        for key, said in sorted(found.items(), key=lambda item: given.line(item[0]))
    ]
    remedy = "correct the key" if len(lines) == 1 else f"correct these {len(lines)} keys"
    return ConfigInvalid(f"{given.name}: " + "; ".join(lines), f"{remedy}; docs/pipeline-file.md has them all")


def _path(given: Document, text: str) -> str:
    if "\0" in text:
        raise ConfigInvalid(f"{given.name}: the path {text!r} has a NUL in it", "remove it")
    try:
        return text if "://" in text else str(given.folder / Path(text).expanduser())
    except RuntimeError as error:
        raise ConfigInvalid(f"{given.name}: {text}: {NO_HOME}", "correct the path") from error


def _value(given: Document, key: Key) -> Any:
    value: Any = given.values
    for name in key:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
