"""What was measured, as values: percentiles, rates, verdicts and the table. Nothing here touches a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.peers.arrivals import Arrival
from bench.rig import Figure, at_least, at_most, quantile

OURS, AGAIN, STOCK, TUNED, DEFAULT, PLAIN = "ours", "again", "ours-default", "tuned", "default", "plain"
NAMES = {
    OURS: "Penstock, tuned",
    AGAIN: "Penstock, tuned, again (A/A)",
    STOCK: "Penstock, default",
    TUNED: "Debezium, tuned",
    DEFAULT: "Debezium, default",
    PLAIN: "Spark micro-batches",
}


@dataclass(frozen=True)
class Paced:
    """Lateness in milliseconds at an offered rate; CPU in microseconds for a change."""

    offered: int
    changes: int
    written: float
    rate: float
    p50: float
    p99: float
    engine_us: float
    other_us: float

    @property
    def is_behind(self) -> bool:
        """Whether changes came slower than they were written."""
        return self.rate < 0.95 * min(self.offered, self.written)


@dataclass(frozen=True)
class Drain:
    """A backlog, and at what rate it came."""

    changes: int
    rate: float


@dataclass(frozen=True)
class Result:
    """All of one contender."""

    paced: tuple[Paced, ...]
    drain: Drain | None = None

    def at(self, rate: int) -> Paced | None:
        return next((some for some in self.paced if some.offered == rate), None)


def pace(offered: int, came: Sequence[Arrival], engine_seconds: float, other_seconds: float) -> Paced:
    """Of everything that came at an offered rate."""
    late = [(at - sent) * 1000 for at, _, sent in came]
    written, arrived = _rate([sent for _, _, sent in came]), _rate([at for at, _, _ in came])
    engine_us, other_us = (seconds / len(came) * 1e6 for seconds in (engine_seconds, other_seconds))
    return Paced(offered, len(came), written, arrived, quantile(late, 0.5), quantile(late, 0.99), engine_us, other_us)


def drain(came: Sequence[Arrival], began: float) -> Drain:
    """Without the first third, which warms up; what came in one piece is counted from the start on."""
    times = [at for at, _, _ in came[len(came) // 3 :]]
    is_one = times[0] == times[-1]
    return Drain(len(came), len(came) / (times[0] - began) if is_one else _rate(times))


def _rate(times: Sequence[float]) -> float:
    return len(times) / (max(times) - min(times))


def verdicts(results: Mapping[str, Result]) -> list[Figure]:
    """The bars. The worse of our two runs is held against the tuned peer, so that chance counts against us."""
    ours, tuned = [results[name] for name in (OURS, AGAIN) if name in results], results.get(TUNED)
    if not ours or tuned is None:
        return []
    figures = []
    for rate in (1_000, 5_000):
        mine, theirs = [some for one in ours if (some := one.at(rate))], tuned.at(rate)
        if mine and theirs:
            ratio = max(some.p50 for some in mine) / theirs.p50
            figures.append(at_most(f"p50 at {rate:,} changes/s, against tuned Debezium", ratio, "x", 0.5))
    drains = [one.drain.rate for one in ours if one.drain]
    if drains and tuned.drain:
        figures.append(at_least("saturation, against tuned Debezium", min(drains) / tuned.drain.rate, "x", 3))
    return figures


def control(results: Mapping[str, Result]) -> list[Figure]:
    """How far two equal runs lie apart."""
    if OURS not in results or AGAIN not in results:
        return []
    one, two = results[OURS], results[AGAIN]
    pairs = [(f"p50 at {some.offered:,} changes/s", some.p50, same.p50) for some in one.paced if (same := two.at(some.offered))]
    if one.drain and two.drain:
        pairs.append(("saturation", one.drain.rate, two.drain.rate))
    return [Figure(f"A/A, {name}", max(a, b) / min(a, b), "x") for name, a, b in pairs]


HEADER = ("", "offered /s", "arrived /s", "p50 ms", "p99 ms", "CPU us/change", "with database and writer")


def table(results: Mapping[str, Result]) -> list[tuple[str, ...]]:
    """The cells, rate by rate; a contender or a writer that fell behind is shown to."""
    rates = sorted({some.offered for result in results.values() for some in result.paced})
    lines = [_line(NAMES[name], some) for rate in rates for name, one in results.items() if (some := one.at(rate))]
    backlogs = [(NAMES[name], "backlog", f"{one.drain.rate:,.0f}", "", "", "", "") for name, one in results.items() if one.drain]
    return lines + backlogs


def _line(name: str, some: Paced) -> tuple[str, ...]:
    offered = f"{some.offered:,}" if some.written > 0.95 * some.offered else f"{some.written:,.0f} of {some.offered:,}"
    arrived = f"{some.rate:,.0f}" + (" (behind)" if some.is_behind else "")
    cpu = (f"{some.engine_us:,.0f}", f"{some.engine_us + some.other_us:,.0f}")
    return name, offered, arrived, f"{some.p50:,.1f}", f"{some.p99:,.1f}", *cpu


def markdown(results: Mapping[str, Result]) -> str:
    rows = [HEADER, ("---", *["---:"] * (len(HEADER) - 1)), *table(results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def sentence(figure: Figure) -> str:
    """A figure with its verdict, as it is printed and documented."""
    kept = f": {'kept' if figure.is_kept else 'BROKEN'} (bar {figure.bar})" if figure.bar else ""
    return f"{figure.name}: {figure.value:.2f}{figure.unit}{kept}"
