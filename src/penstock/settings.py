"""How a part of the pipeline file is declared: a frozen dataclass whose fields are its keys, with their defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[T]) -> type[T]:
    """Frozen, keyword-only, and strict when read from a file: unknown keys and wrong types are errors."""
    strict: Any = {"extra": "forbid", "strict": True}
    made = dataclass(frozen=True, kw_only=True)(cls)
    made.__pydantic_config__ = strict  # type: ignore[attr-defined]
    return made


@dataclass(frozen=True, slots=True)
class Spelled:
    """Of a type whose values are written as text: the parser of files calls this function. Goes into `Annotated`."""

    parse: Callable[[object], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """How pydantic is given the function."""
        from pydantic_core import core_schema  # only the parser of files needs it; workers start faster without

        return core_schema.no_info_plain_validator_function(self.parse)


def absent(means: str) -> Any:
    """The default of a key that may be missing, with a description of the effect, which `penstock validate` shows."""
    return field(default=None, metadata={"absent": means})


def refuse(*wrong: str | Literal[False]) -> None:
    """Raise ValueError with all of this that is wrong, a line each; one that begins with a key is about that key."""
    if said := [one for one in wrong if one]:
        raise ValueError("\n".join(said))
