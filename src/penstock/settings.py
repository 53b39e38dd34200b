"""The declaration of a part of the pipeline file: a frozen dataclass whose fields are the keys, with their defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[T]) -> type[T]:
    """A frozen, keyword-only dataclass; in a file, unknown keys and wrong types are errors."""
    strict: Any = {"extra": "forbid", "strict": True}
    made = dataclass(frozen=True, kw_only=True)(cls)
    made.__pydantic_config__ = strict  # type: ignore[attr-defined]
    return made


@dataclass(frozen=True, slots=True)
class Spelled:
    """In `Annotated`: the function with which the parser of files reads a value from text."""

    parse: Callable[[object], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The schema for pydantic."""
        from pydantic_core import core_schema  # here, since workers do not parse files and start faster without it

        return core_schema.no_info_plain_validator_function(self.parse)


def absent(means: str) -> Any:
    """The default None of a key, with a description of its effect for `penstock validate`."""
    return field(default=None, metadata={"absent": means})


def refuse(*wrong: str | Literal[False]) -> None:
    """Raise ValueError with the given complaints, one on each line; a complaint may begin with the key that it concerns."""
    if said := [one for one in wrong if one]:
        raise ValueError("\n".join(said))
