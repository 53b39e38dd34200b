"""Errors do not vanish: whoever catches everything raises it again, or is the end of a thread whose owner does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "penstock"
EVERYTHING = {"Exception", "BaseException"}
LAST_WORDS = (
    "harvest/harvest.py",
    "harvest/harvest.py",
    "running/leadership.py",
    "delivery/sender.py",
    "sinks/kafka/transactional.py",
    "sinks/kafka/barrier.py",
)
"""One handler each: its thread, or a function of the user, ends with an error that the owner of the thread raises."""


def swallowed(package: Path) -> list[str]:
    """Where everything is caught and not raised again."""
    return [
        f"{file.relative_to(package)}" for file in sorted(package.rglob("*.py")) for _ in of_module(ast.parse(file.read_text()))
    ]


def of_module(module: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        if isinstance(node, ast.ExceptHandler) and catches_all(node.type) and not isinstance(node.body[-1], ast.Raise):
            yield node
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress") and any(map(catches_all, node.args)):
            yield node


def catches_all(caught: ast.expr | None) -> bool:
    named = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(one is None or ast.unparse(one) in EVERYTHING for one in named)


def test_only_the_ends_of_threads_catch_everything() -> None:
    assert sorted(swallowed(PACKAGE)) == sorted(LAST_WORDS)


@pytest.mark.parametrize(
    "text",
    [
        "try: f()\nexcept Exception: pass",
        "try: f()\nexcept: g()",
        "try: f()\nexcept (OSError, BaseException) as error: print(error)",
        "with suppress(Exception): f()",
        "with contextlib.suppress(OSError, BaseException): f()",
    ],
)
def test_one_that_vanishes_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(text)
    assert swallowed(tmp_path) == ["one.py"]


def test_what_is_raised_again_is_fine(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("try: f()\nexcept BaseException:\n    close()\n    raise")
    assert swallowed(tmp_path) == []
