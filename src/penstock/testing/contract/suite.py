"""The base of all suites: each test states a rule of the contract, and names the rule when it fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import getdoc
from typing import Any, ClassVar

import pytest


class Contract:
    """The docstring of a test is a rule. `patience`: seconds that a test waits for an event before it fails."""

    patience: ClassVar[float] = 60.0

    @pytest.fixture
    def rig(self) -> Any:
        """The implementation under test."""
        raise NotImplementedError("define the fixture `rig` in the subclass: see docs/testing.md")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in [*vars(cls).items()]:
            if name.startswith("test_"):
                setattr(cls, name, naming_the_rule(test))


def naming_the_rule(test: Callable[..., None]) -> Callable[..., None]:
    """The same test, whose failure ends with the rule."""

    @wraps(test)
    def judged(*given: Any, **named: Any) -> None:
        __tracebackhide__ = True
        try:
            test(*given, **named)
        except BaseException as failure:  # pytest's own failures are no Exception
            failure.add_note(f"The implementation breaks this rule of the contract: {getdoc(test)}")
            raise

    return judged
