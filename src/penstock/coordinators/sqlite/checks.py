"""The check of `doctor` for a state file: other users cannot open it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.coordinators.sqlite import guard
from penstock.files import privacy
from penstock.finding import Check, Finding, ok, warning

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline


def checks(pipeline: Pipeline, *, probes: bool) -> Mapping[str, Check]:
    """All checks by name."""
    return {"state file": partial(state, Path(pipeline.state.path))}  # type: ignore[attr-defined]


def state(path: Path) -> Iterator[Finding]:
    """Whether only its owner, or a group of its owner's choice, can open the state file and its journals."""
    found = [(file, seen.st_mode) for file, seen in guard.files(path)]
    wide = [str(file) for file, mode in found if privacy.is_wide(mode)]
    if wide:
        fact = f"other users can open {', '.join(wide)}, and dead letters are rows of the source"
        yield warning("state file", fact, f"chmod 600 {' '.join(wide)}; to share them with their group: chmod 660")
    elif any(privacy.is_shared(mode) for _, mode in found):
        yield ok("state file", f"{path} is shared with its group (mode 660)")
    else:
        yield ok("state file", f"only its owner can open {path}" if found else f"{path} does not exist yet")
