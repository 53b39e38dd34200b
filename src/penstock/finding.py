"""The findings of the checks of `doctor`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from subprocess import SubprocessError

from penstock.errors import PenstockError

MACHINE = "machine"


class Severity(StrEnum):
    """The severity of a finding: a warning can wait, a failure prevents a pipeline from running."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `about` is its pipeline file, or the machine."""

    check: str
    verdict: Severity
    said: str
    remedy: str = ""
    about: str = MACHINE

    def facts(self) -> dict[str, str]:
        """The fields, for JSON."""
        result = self.verdict.value
        return {"about": self.about, "check": self.check, "result": result, "finding": self.said, "remedy": self.remedy}


def ok(check: str, said: str) -> Finding:
    """A finding without a problem."""
    return Finding(check, Severity.OK, said)


def warning(check: str, said: str, remedy: str) -> Finding:
    """A problem that can wait."""
    return Finding(check, Severity.WARNING, said, remedy)


def failed(check: str, said: str, remedy: str) -> Finding:
    """A problem that prevents a pipeline from running."""
    return Finding(check, Severity.FAILED, said, remedy)


Check = Callable[[], Iterable[Finding]]


def examined(name: str, check: Check, about: str = MACHINE) -> Iterator[Finding]:
    """The findings of a check; an error that it raises is a finding."""
    try:
        yield from (replace(found, about=about) if found.about == MACHINE else found for found in check())
    except PenstockError as error:
        yield replace(failed(name, error.message, error.remedy), about=about)
    except (OSError, ValueError, sqlite3.Error, SubprocessError) as error:
        yield replace(failed(name, str(error), "check that it exists, and that this user has access to it"), about=about)
