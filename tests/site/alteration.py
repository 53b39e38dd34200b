"""Alters modules as they are imported: production code has no switches for tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Alter = Callable[[ModuleType], None]


def of(altered: Mapping[str, Alter]) -> None:
    """Alter these modules, each by its name, after their own code has run."""
    sys.meta_path.insert(0, _Altering(altered))


class _Altering(MetaPathFinder):
    def __init__(self, altered: Mapping[str, Alter]) -> None:
        self._altered = dict(altered)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module as it is found without this finder, with the alteration after its own code."""
        if not (alter := self._altered.pop(name, None)):
            return None
        spec = importlib.util.find_spec(name)
        assert spec
        assert spec.loader
        run = spec.loader.exec_module

        def altered(module: ModuleType) -> None:
            run(module)
            alter(module)

        spec.loader.exec_module = altered  # type: ignore[method-assign]
        return spec
