"""The commands of `penstock capture` on SQLite databases."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from penstock.errors import ConfigInvalid
from penstock.sources.sqlite.database import repair_remedy
from penstock.sources.sqlite.install import disable, enable
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.survey import survey
from penstock.sources.sqlite.suspend import resume, suspend
from penstock.sources.sqlite.verify import verify

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _existing(command: Callable[Concatenate[str, _P], _T]) -> Callable[Concatenate[str, _P], _T]:
    """A command that raises ConfigInvalid if there is no database."""

    @wraps(command)
    def checked(path: str, /, *arguments: _P.args, **more: _P.kwargs) -> _T:
        if not Path(path).is_file():
            raise ConfigInvalid(f"there is no database {path}", "check the path; capture never creates a database")
        return command(path, *arguments, **more)

    return checked


class SqliteCapture:
    """See penstock.capture."""

    enable = staticmethod(_existing(enable))
    disable = staticmethod(_existing(disable))
    survey = staticmethod(_existing(survey))
    suspend = staticmethod(_existing(suspend))
    resume = staticmethod(_existing(resume))
    repair = staticmethod(_existing(repair))
    verify = staticmethod(_existing(verify))
    repair_command = staticmethod(repair_remedy)

    def serves(self, address: str) -> bool:
        """A path, not a URL."""
        return "://" not in address
