"""The descriptor of a kind of source, sink or state, which its folder exports as `KIND`.

References have the form `module:name` and are resolved at their first use, so that a descriptor imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.capture import Capture
    from penstock.finding import Check
    from penstock.pipeline import Pipeline
    from penstock.source import Source


@dataclass(frozen=True, slots=True)
class FileKey:
    """A key whose value is a path, relative to the folder of the pipeline file; `words`, and addresses, are no paths."""

    key: tuple[str, ...]
    is_secret: bool = False
    words: Collection[str] = ()

    def value(self, settings: Any) -> str | None:
        """The path in these settings; None without one."""
        value = settings
        for name in self.key:
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        return None if value in self.words or (isinstance(value, str) and "://" in value) else value


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The common part of a descriptor.

    - `settings`: a reference to the class whose fields are the keys of the pipeline file.
    - `page`: the file below `docs/` that describes the kind; for another package the address of a page.
    - `extra`: the extra of pip that the kind needs.
    - `checks`: a reference to a function of a pipeline that returns the checks of `doctor` by name.
    - `imports`: modules that a worker needs and that take long to import: the daemon of the workers imports them once.
    """

    settings: str
    page: str
    extra: str | None = None
    files: Sequence[FileKey] = ()
    checks: str | None = None
    imports: Sequence[str] = ()

    def classes(self) -> Sequence[str]:
        """References to all settings classes of this kind."""
        return (self.settings,)

    def chosen(self, values: Mapping[str, Any]) -> str:
        """The reference to the settings class for these values."""
        return self.settings

    def checks_of(self, pipeline: Pipeline, *, probes: bool) -> Mapping[str, Check]:
        """The checks of `doctor` for this part of a pipeline; with `probes` also those that send data."""
        if self.checks is None:
            return {}
        found: Callable[..., Mapping[str, Check]] = resolve_name(self.checks)
        return found(pipeline, probes=probes)


@dataclass(frozen=True, kw_only=True)
class SourceKind(Kind):
    """A kind of source.

    - `readers`: settings classes other than `settings`, by the value of the key `reader`.
    - `registered`: a reference to a function of an address and the name of a table. It returns a source that lists and forgets
      the pipelines registered at this address, or None for an address of another kind.
    - `capture`: a reference to the implementation of `penstock.capture` for databases of this kind.
    - `layouts`: references to functions of the DSN, the name of the table, and whether inserts notify readers, which return a
      `penstock.outbox.Table`, by the value of `penstock outbox init --layout`. They raise ValueError or ConfigInvalid for an
      address or a name that they cannot use.
    """

    readers: Mapping[str, str] = field(default_factory=dict)
    registered: str | None = None
    capture: str | None = None
    layouts: Mapping[str, str] = field(default_factory=dict)

    def classes(self) -> Sequence[str]:
        """References to the classes of all readers."""
        return (self.settings, *self.readers.values())

    def chosen(self, values: Mapping[str, Any]) -> str:
        """The reference to the class of the reader that the values name."""
        return self.readers.get(str(values.get("reader")), self.settings)

    def capture_commands(self) -> Capture:
        """The implementation of the `capture` commands."""
        assert self.capture, self.settings
        made: Capture = resolve_name(self.capture)()
        return made

    def registered_at(self, address: str, table: str) -> Source | None:
        """A source for the registrations at this address; None for an address of another kind."""
        return resolve_name(self.registered)(address, table) if self.registered else None


@dataclass(frozen=True, kw_only=True)
class SinkKind(Kind):
    """A kind of sink."""


@dataclass(frozen=True, kw_only=True)
class StateKind(Kind):
    """A kind of state store. `settings` is called with the address, and with `ttl` where the file has a `term`.

    - `schemes`: the schemes of its addresses; the address of a kind without schemes is a path.
    - `term`: the complaint about the key `term`, for a kind whose address includes the length of a term.
    """

    schemes: Sequence[str] = ()
    term: str = ""
