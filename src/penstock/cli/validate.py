"""`penstock validate`: check pipeline files and show their settings."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import penstock
from penstock import registry
from penstock.cli import terminal
from penstock.cli.options import AsJson, Files
from penstock.text.size import Bytes

if TYPE_CHECKING:
    from penstock.kind import Kind
    from penstock.pipeline import Pipeline

_MILLISECOND = timedelta(milliseconds=1)
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1), "ms": _MILLISECOND}
_STARS = "***"
_SECRETS = re.compile(r"(?<=://)[^/?#\s]*(?=@)|(?<=\?)[^#]+")


class Setting(NamedTuple):
    """A key of a pipeline file with its value."""

    key: str
    value: str | int | float | None
    is_default: bool
    absent: str = ""  # the effect of a key without a value


def validate(files: Files, as_json: AsJson = False) -> None:
    """Check pipeline files and show all settings, without starting a pipeline.

    Exit code 2 if a file is invalid; every mistake is listed with its key, its line and the remedy.

    Example: `penstock validate pipeline.yaml`
    """
    from penstock.config import document
    from penstock.transform.user_function import try_out

    for file in files:
        pipeline = penstock.load(file)
        try_out(pipeline)
        written = {".".join(key): text for key, text in document.read(file).written.items() if "${file:" in text}
        found = [as_written(setting, written) for setting in described(pipeline, file.resolve().parent)]
        warnings = [f"sink.{said}" for said in pipeline.sink.warnings]
        if as_json:
            settings = [{"key": one.key, "value": one.value, "is_default": one.is_default} for one in found]
            terminal.say_json({"file": str(file), "settings": settings, "warnings": warnings})
        else:
            terminal.say(f"{file} is valid")
            terminal.show(terminal.table(("key", "value", ""), [_row(setting) for setting in found]))
            terminal.say(*(f"warning: {warning}" for warning in warnings))


def described(pipeline: Pipeline, folder: Path) -> Iterator[Setting]:
    """Every setting of a pipeline, in the order of the file."""
    state = pipeline.state.address
    yield Setting("name", pipeline.name, False)
    yield from _kind(pipeline.source, registry.sources(), "source")
    yield from _settings(pipeline.transform, "transform")
    yield from _kind(pipeline.sink, registry.sinks(), "sink")
    yield Setting("state", state, state == str(folder / "penstock.db"))
    yield Setting("mode", pipeline.mode, pipeline.mode == "live")
    yield from _settings(pipeline.spark, "spark")


def as_written(setting: Setting, written: Mapping[str, str]) -> Setting:
    """A setting with its references to files in place of their contents."""
    if setting.value == _STARS:
        return setting
    if setting.key in written:
        return setting._replace(value=spelled(written[setting.key]))
    below = {key.removeprefix(f"{setting.key}."): text for key, text in written.items() if key.startswith(f"{setting.key}.")}
    if not below:
        return setting
    values: dict[str, Any] = json.loads(str(setting.value))
    shown = {name: text for name, text in below.items() if values.get(name, _STARS) != _STARS}
    return setting._replace(value=spelled(values | shown))


def _kind(part: Any, kinds: Mapping[str, Kind], prefix: str) -> Iterator[Setting]:
    if kind := registry.kind_of(part, kinds):
        yield Setting(f"{prefix}.type", kind[0], False)
    yield from _settings(part, prefix)


def _settings(part: Any, prefix: str) -> Iterator[Setting]:
    for field in dataclasses.fields(part):
        value, key = getattr(part, field.name), f"{prefix}.{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _settings(value, key)
        elif value is not None or "absent" in field.metadata:
            yield Setting(key, _shown(field, value), value == _default(field), field.metadata.get("absent", ""))


def _shown(field: dataclasses.Field[Any], value: Any) -> str | int | float | None:
    """A value as a pipeline file spells it; `***` for a secret."""
    if field.repr or field.name == "url":
        return spelled(value)
    return spelled(dict.fromkeys(value, _STARS)) if isinstance(value, Mapping) else _STARS


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def spelled(value: Any) -> str | int | float | None:
    """A value as a pipeline file spells it, without the secrets of a URL."""
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Bytes):
        return str(value)
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    return _SECRETS.sub(_STARS, value) if isinstance(value, str) and "://" in value else value


def _duration(value: timedelta) -> str:
    for unit, size in _UNITS.items():
        if value >= size and not value % size:
            return f"{value // size}{unit}"
    return f"{value / _MILLISECOND:.15g}ms"


def _row(one: Setting) -> tuple[str, str, str]:
    return one.key, one.absent if one.value is None else str(one.value), "default" if one.is_default else ""
