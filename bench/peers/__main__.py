"""Penstock beside its peers, in one go on one machine: a table, a plot, and whether the bars hold."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.peers import report
from bench.peers.contenders import Contender, Debezium, MicroBatches, Ours
from bench.peers.measuring import Course
from bench.peers.postgres import postgres, version
from bench.peers.results import AGAIN, DEFAULT, HEADER, NAMES, OURS, PLAIN, STOCK, TUNED, Result, control, sentence, table, verdicts
from bench.rig import keep
from penstock.testing.receiver import ReceiverProcess

RATES = (1_000, 5_000, 10_000)
ORDER = (OURS, TUNED, STOCK, DEFAULT, PLAIN, AGAIN)  # the two equal runs are as far apart as can be


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 120)
    machine = report.machine(version())
    console.print(f"{machine}; a quiet machine gives honest figures", highlight=False)
    with tempfile.TemporaryDirectory() as temporary:
        results = _measure(console, Path(temporary), options)
    figures = [*verdicts(results), *control(results)]
    keep("peers", figures, {name: asdict(result) for name, result in results.items()})
    console.print(_table(results))
    for figure in figures:
        console.print(sentence(figure), highlight=False)
    if set(results) == set(ORDER) and set(options.rates) == set(RATES) and options.backlog:
        report.write(results, figures, machine, f"{options.seconds} s at each rate, a backlog of {options.backlog:,}")
        console.print(f"written: {report.PAGE.relative_to(report.ROOT)}, {report.PLOT.relative_to(report.ROOT)}")
    return 1 if len(results) < len(options.only) or any(not figure.is_kept for figure in figures) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description=__doc__, epilog="Only a whole run writes the docs anew."
    )
    parser.add_argument("--only", type=_names, default=ORDER, metavar="NAME,...", help=f"of {','.join(ORDER)}")
    parser.add_argument("--rates", type=_rates, default=RATES, metavar="N,...", help="changes/s, rising; default 1000,5000,10000")
    parser.add_argument("--seconds", type=int, default=15, metavar="N", help="how long each rate runs; default 15")
    parser.add_argument("--backlog", type=int, default=300_000, metavar="N", help="changes to drain, 0 for none; default 300000")
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    chosen = text.split(",")
    if unknown := set(chosen) - set(ORDER):
        raise argparse.ArgumentTypeError(f"no contender {', '.join(sorted(unknown))}; there are {', '.join(ORDER)}")
    return tuple(name for name in ORDER if name in chosen)


def _rates(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(rate) for rate in text.split(",")))


def _measure(console: Console, folder: Path, options: argparse.Namespace) -> dict[str, Result]:
    """One after the other, all into the same receiver; one that fails is left out of the rest."""
    results = {}
    with ReceiverProcess(folder / "requests") as receiver:
        for name in options.only:
            try:
                results[name] = _run(console, name, folder / name, receiver, options)
            except (RuntimeError, TimeoutError) as error:
                console.print(f"{NAMES[name]} failed: {error}", highlight=False, markup=False)
    return {name: results[name] for name in NAMES if name in results}


def _run(console: Console, name: str, folder: Path, receiver: ReceiverProcess, options: argparse.Namespace) -> Result:
    with ExitStack() as stack, console.status(NAMES[name]) as status:
        contender = _contender(stack, name, folder, receiver.url)
        stack.callback(contender.writer.close)
        course = Course(contender, receiver.out, lambda what: status.update(f"{NAMES[name]}: {what}"))
        paced = course.paced(options.rates, options.seconds)
        result = Result(tuple(paced), course.drained(options.backlog) if options.backlog else None)
    console.print(*_summary(name, result), highlight=False)
    return result


def _summary(name: str, result: Result) -> Sequence[str]:
    backlog = [f"backlog {result.drain.rate:,.0f}/s"] if result.drain else []
    return f"{NAMES[name]:28}", *[f"{some.offered:,}/s p50 {some.p50:,.1f} ms" for some in result.paced], *backlog


def _contender(stack: ExitStack, name: str, folder: Path, url: str) -> Contender:
    if name in (OURS, AGAIN, STOCK):
        return Ours(folder, url, is_tuned=name != STOCK)
    if name == PLAIN:
        return MicroBatches(folder, url)
    return Debezium(folder, url, stack.enter_context(postgres()), is_tuned=name == TUNED)


def _table(results: dict[str, Result]) -> Table:
    shown = Table(title="From a commit to the receiver")
    for number, name in enumerate(HEADER):
        shown.add_column(name, justify="left" if number == 0 else "right")
    for row in table(results):
        shown.add_row(*row)
    return shown


if __name__ == "__main__":
    sys.exit(main())
