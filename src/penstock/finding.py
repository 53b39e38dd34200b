"""What a check has found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from subprocess import SubprocessError

from penstock.errors import PenstockError

MACHINE = "machine"


class Verdict(StrEnum):
    """How serious it is: a warning can wait, a failure keeps a pipeline from its work."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer; `about` is the pipeline file it concerns, or the machine."""

    check: str
    verdict: Verdict
    said: str
    remedy: str = ""
    about: str = MACHINE

    def facts(self) -> dict[str, str]:
        """For JSON."""
        return {
            "about": self.about,
            "check": self.check,
            "result": self.verdict.value,
            "finding": self.said,
            "remedy": self.remedy,
        }


def ok(check: str, said: str) -> Finding:
    """All is well."""
    return Finding(check, Verdict.OK, said)


def warning(check: str, said: str, remedy: str) -> Finding:
    """It works, and yet somebody should know."""
    return Finding(check, Verdict.WARNING, said, remedy)


def failed(check: str, said: str, remedy: str) -> Finding:
    """It does not work like this."""
    return Finding(check, Verdict.FAILED, said, remedy)


Check = Callable[[], Iterable[Finding]]


def examined(name: str, check: Check, about: str = MACHINE) -> Iterator[Finding]:
    """What a check finds; what it raises is its finding."""
    try:
        yield from (replace(found, about=about) if found.about == MACHINE else found for found in check())
    except PenstockError as error:
        yield replace(failed(name, error.message, error.remedy), about=about)
    except (OSError, ValueError, sqlite3.Error, SubprocessError) as error:
        yield replace(failed(name, str(error), "see that it is there and may be used by this user"), about=about)
