"""Durations in the format of Go: 1h2m3.5s, 500ms, 10us, -1s, 0. Pure."""

from __future__ import annotations

import re

_NANOSECONDS = {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 3.6e12}
_PART = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_SPELLING = re.compile(rf"([+-]?)((?:{_PART})+|0)")


def nanoseconds(given: object) -> int:
    """A duration in nanoseconds; a number without a unit is in nanoseconds."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = _SPELLING.fullmatch(given.strip()) if isinstance(given, str) else None
    if not found:
        raise ValueError(f"{given!r} is not a duration: use the format of Go, such as 10ms, 5s or 1m30s")
    total = sum(float(number) * _NANOSECONDS[unit] for number, unit in re.findall(_PART, found[2]))
    return -round(total) if found[1] == "-" else round(total)


def spelled(span: int) -> str:
    """Nanoseconds as a duration of the pipeline file."""
    for unit, size in (("s", 10**9), ("ms", 10**6)):
        if span % size == 0:
            return f"{span // size}{unit}"
    return f"{span / 10**6}ms"
