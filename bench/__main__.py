"""Run the measurements and print their figures beside the bars they must keep."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from rich.console import Console

from bench import revision
from bench.rig import Figure

ALL = (
    "coldstart",
    "idle",
    "capture_cost",
    "engine",
    "path",
    "trust",
    "saturation",
    "parallel",
    "drain",
    "batch",
    "snapshot",
    "transform",
    "poison",
    "takeover",
    "promptness",
    "outbox",
    "goharvest",
    "message",
    *(["revision"] if revision.BASE else ()),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", default=ALL, metavar="NAME", help=", ".join(ALL))
    names = parser.parse_args().names
    console = Console()
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start; a quiet machine gives honest figures")
    figures = [figure for name in names for figure in _measure(console, name)]
    broken = [figure for figure in figures if not figure.is_kept]
    console.print(f"{len(figures)} figures, {len(broken)} below their bar")
    return 1 if broken else 0


def _measure(console: Console, name: str) -> list[Figure]:
    with console.status(f"measuring {name}"):
        figures = importlib.import_module(f"bench.{name}").measure()
    for figure in figures:
        verdict = "" if not figure.bar else ("kept  " if figure.is_kept else "BROKEN") + f" {figure.bar}"
        line = f"  {name:12} {figure.name:38} {figure.value:12,.1f} {figure.unit:12} {verdict}"
        console.print(line, highlight=False, soft_wrap=True)
    return figures


if __name__ == "__main__":
    sys.exit(main())
