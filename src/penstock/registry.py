"""The kinds of sources, sinks and state stores: folders of this package, and entry points of other packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules, resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import ConfigInvalid
from penstock.kind import Kind, SinkKind, SourceKind, StateKind

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline

K = TypeVar("K", bound=Kind)


@cache
def sources() -> Mapping[str, SourceKind]:
    """The kinds of sources by `type`. Raises ConfigInvalid if another package is broken."""
    return _all("sources", SourceKind)


@cache
def sinks() -> Mapping[str, SinkKind]:
    """The kinds of sinks by `type`. Raises ConfigInvalid if another package is broken."""
    return _all("sinks", SinkKind)


@cache
def states() -> Mapping[str, StateKind]:
    """The kinds of state stores by name."""
    return dict(_own("coordinators", StateKind))


def schemes() -> Mapping[str, StateKind]:
    """The kinds of state stores that have addresses, by scheme."""
    return {scheme: kind for kind in states().values() for scheme in kind.schemes}


def kind_of(part: Any, kinds: Mapping[str, K]) -> tuple[str, K] | None:
    """The name and the kind of a part of a pipeline; None for an unknown class."""
    mine = {f"{one.__module__}:{one.__qualname__}" for one in type(part).__mro__}
    return next(((name, kind) for name, kind in kinds.items() if mine & set(kind.classes())), None)


def parts(pipeline: Pipeline) -> Iterator[tuple[Any, Kind | None]]:
    """The source, the state and the sink of a pipeline, each with its kind; None for an unknown class."""
    for part, kinds in ((pipeline.source, sources()), (pipeline.state, states()), (pipeline.sink, sinks())):
        found = kind_of(part, kinds)
        yield part, found[1] if found else None


def files_of(part: Any, kind: Kind | None, *, secret: bool = False) -> Iterator[str]:
    """The paths in the settings of a part; with `secret`, those of secret files."""
    for file in kind.files if kind else ():
        if (path := file.value(part)) and (file.is_secret or not secret):
            yield path


def _all(folder: str, wanted: type[K]) -> Mapping[str, K]:
    found = dict(_own(folder, wanted))
    for name, point in _others(f"penstock.{folder}").items():
        if name in found:
            raise ConfigInvalid(f"{_package(point)} has a kind {name}, and so does Penstock: {point.value}", _UNINSTALL)
        found[name] = _loaded(point, wanted)
    return found


_UNINSTALL = "uninstall one of the packages, or give its kind another name"


def _own(folder: str, wanted: type[K]) -> Iterator[tuple[str, K]]:
    for module in iter_modules(import_module(f"penstock.{folder}").__path__):
        if module.ispkg and isinstance(kind := getattr(import_module(f"penstock.{folder}.{module.name}"), "KIND", None), wanted):
            yield module.name, kind


def _others(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of other packages. One that is listed twice, as with an editable installation, counts once."""
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        if (first := found.setdefault(point.name, point)).value != point.value:
            raise ConfigInvalid(f"{_package(first)} and {_package(point)} both have a kind {point.name}", _UNINSTALL)
    return found


def _loaded(point: EntryPoint, wanted: type[K]) -> K:
    try:
        kind = resolve_name(point.value)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigInvalid(f"{_package(point)} cannot be used: {point.value}: {error}", "repair or uninstall it") from error
    if not isinstance(kind, wanted):
        raise ConfigInvalid(f"{_package(point)}: {point.value} is not a {wanted.__name__}", "repair or uninstall it")
    return kind


def _package(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist else "a package"
