"""The output of the demo: a picture on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from penstock.demo.figures import Arrival, Figures, percentile
from penstock.demo.story import ACTS, PROOF, Summary, View
from penstock.text.printable import printable

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = {"insert": "green", "update": "cyan", "delete": "magenta"}
_SECONDS_PER_LINE = 1.0


class Picture:
    """A picture that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()
        self._spinner, self._done = Spinner("dots"), 0

    def step(self, done: Sequence[str], doing: str, seconds: float) -> None:
        """Show the completed steps of the start, and the current one with its seconds."""
        for text in done[self._done :]:
            self._live.console.print(Text.assemble(("✓ ", "green"), printable(text)))
        self._done = len(done)
        self._spinner.update(text=Text.assemble(f" {printable(doing)} ", (f"{seconds:.0f} s", "dim")))
        self._live.update(self._spinner, refresh=True)

    def show(self, view: View) -> None:
        """Draw a view."""
        self._live.update(picture(view), refresh=True)

    def close(self) -> None:
        """Leave the last picture on the terminal."""
        self._live.stop()


class Lines:
    """One line per second, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: list[str] = []
        self._act, self._next = "", 0.0
        self._troubles: set[str] = set()

    def step(self, done: Sequence[str], doing: str, seconds: float) -> None:
        """Print each step once."""
        for text in [*done, doing]:
            if text not in self._shown:
                self._shown.append(text)
                self._console.print(printable(text), markup=False)

    def show(self, view: View) -> None:
        """Print new acts and new kinds of trouble at once, and figures every second."""
        if view.act.name != self._act:
            self._act, self._troubles = view.act.name, set()
            self._console.print(f"-- {view.act.name}: {view.act.said}", markup=False)
        kind = view.trouble.partition("; ")[0]
        if view.seconds >= self._next or kind not in {"", *self._troubles}:
            self._troubles.add(kind)
            self._next = view.seconds + _SECONDS_PER_LINE
            self._console.print(printable(line(view)), markup=False)

    def close(self) -> None:
        """Do nothing: all lines are printed."""


Screen = Picture | Lines


def line(view: View) -> str:
    """A view as one line."""
    figures = view.figures
    latency = f"p50 {milliseconds(percentile(figures.latencies, 50))} p99 {milliseconds(percentile(figures.latencies, 99))}"
    counts = f"committed {view.committed} delivered {figures.delivered} backlog {figures.backlog} repeats {figures.repeats}"
    return f"{view.seconds:5.1f} s  {counts} {latency}  {view.trouble or _last(figures)}"


def _last(figures: Figures) -> str:
    if not figures.recent:
        return ""
    last = figures.recent[-1]
    return f"last: {last.change['table']} {last.change['op']} {shown_key(last)} after {milliseconds(last.latency)}"


def picture(view: View) -> RenderableType:
    """A view as a picture."""
    return Group(
        Text(),
        _acts(view),
        Text(f"\n{view.act.said}\n"),
        _counters(view),
        Text.assemble(("\nbacklog  ", "dim"), (bars(view.figures.backlogs), "yellow")),
        _trouble(view),
        _changes(view.figures),
    )


def _acts(view: View) -> Text:
    text = Text(f"{int(view.seconds) // 60}:{int(view.seconds) % 60:02}  ", style="dim")
    for act in [*ACTS, PROOF]:
        colour = "bold green" if act.is_well else "bold red"
        text.append(f" {act.name} ", f"{colour} reverse" if act.name == view.act.name else "dim")
        text.append(" " if act is PROOF else " → ", "dim")
    return text


def _counters(view: View) -> Table:
    figures = view.figures
    counts = {"committed": view.committed, "delivered": figures.delivered, "backlog": figures.backlog, "repeats": figures.repeats}
    late = {name: milliseconds(percentile(figures.latencies, share)) for name, share in (("latency p50", 50), ("p99", 99))}
    cells = counts | late
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name in cells:
        table.add_column(name, justify="right", header_style="dim", min_width=9)
    table.add_row(*(Text(str(cell), style="bold") for cell in cells.values()))
    return table


def _trouble(view: View) -> Text:
    return Text.assemble(
        ("receiver ", "dim"), (printable(view.trouble), "red") if view.trouble else ("accepts requests", "green"), "\n"
    )


def _changes(figures: Figures) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name, width in (("position", 8), ("table", 9), ("op", 6), ("key", 26), ("latency", 10)):
        justify = "right" if name in ("position", "latency") else "left"
        table.add_column(name, justify=justify, width=width, no_wrap=True, header_style="dim")  # type: ignore[arg-type]
    for arrival in figures.recent:
        change = arrival.change
        late = Text("repeat", style="yellow") if arrival.is_repeat else Text(milliseconds(arrival.latency))
        table_name, op = Text(printable(change["table"])), Text(printable(change["op"]), _COLOURS[change["op"]])
        table.add_row(str(arrival.position), table_name, op, Text(printable(shown_key(arrival))), late)
    for _ in range((figures.recent.maxlen or 0) - len(figures.recent)):
        table.add_row()
    return table


def summary(found: Summary, folder: Path | None) -> RenderableType:
    """The result of the demo, and the next steps."""
    figures, outage = found.figures, found.figures.outage
    facts = Table.grid(padding=(0, 3, 0, 0))
    facts.add_row("committed", f"{found.commits} transactions; {found.rollbacks} rolled back and not delivered")
    facts.add_row("delivered", f"{figures.delivered} changes, and {figures.repeats} repeats")
    late = (milliseconds(percentile(figures.calm, share)) for share in (50, 99))
    facts.add_row("latency", "p50 {}, p99 {} outside of the outage".format(*late))
    if outage:
        drained = "" if outage.drain_seconds is None else f", delivered {outage.drain_seconds:.1f} s after it"
        facts.add_row("outage", f"{outage.seconds:.0f} s, {found.retries} retries; {figures.most_waiting} waited{drained}")
    for verdict in found.verdicts:
        mark = Text(f"✓ {verdict.question}", "green") if verdict.holds else Text(f"✗ {verdict.question}", "bold red")
        facts.add_row(mark, Text(printable(verdict.finding)))
    kept = f"\nThe files of this demo are in {printable(str(folder))}" if folder else ""
    return Group(Text(), facts, Text(kept + NEXT))


NEXT = """
With your own database:
  penstock init --database your.db --url http://127.0.0.1:8080/changes
  penstock capture enable your.db --wal
  penstock run pipeline.yaml"""


def shown_key(arrival: Arrival) -> str:
    """A key as text."""
    return ", ".join(f"{name} {value}" for name, value in arrival.change["key"].items())


def milliseconds(seconds: float | None) -> str:
    """A latency as text, in milliseconds or seconds."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def bars(values: Sequence[int]) -> str:
    """Numbers as bars, at a scale of at least 100."""
    most = max(*values, 100)
    return "".join(_BARS[value * len(_BARS) // (most + 1)] for value in values)
