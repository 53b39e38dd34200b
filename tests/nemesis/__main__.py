"""A long campaign of the nemesis, with a report: `make nemesis`, or `python tests/nemesis --steps 10000 --kills 100 --seed 7`."""

from __future__ import annotations

import argparse
import json
import platform
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from math import ceil
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from relay import DELIVERIES, Clerks, Relay, RelayNemesis, relay_rig  # noqa: E402
from wide import WideNemesis, wide_rig  # noqa: E402

from fix_rig import Rig, Sampler  # noqa: E402
from nemesis import Nemesis  # noqa: E402
from penstock.testing import oracle  # noqa: E402
from shop import Keeper  # noqa: E402

Writers = Keeper | Clerks


class Relentless(Nemesis):
    """Kills more often, where that costs no start of Spark."""

    STEPS = (*Nemesis.STEPS, *(Nemesis._kill_a_worker,) * 8, *(Nemesis._kill_at_a_point,) * 4)


@dataclass(frozen=True)
class Phase:
    """What was done to one pipeline, what it delivered, and what the oracles say of that."""

    title: str
    seconds: float
    commits: int
    rollbacks: int
    faults: Mapping[str, int]
    kills: Mapping[str, int]
    terms: int
    head: int
    requests: int
    deliveries: int
    repeats: int
    deposed: int
    verdicts: Mapping[str, list[str]]

    @property
    def steps(self) -> int:
        """Committed writes and faults."""
        return self.commits + sum(self.faults.values())

    @property
    def breaches(self) -> int:
        """Of all promises together."""
        return sum(map(len, self.verdicts.values()))


class Teller:
    """Says now and then how far a phase has come."""

    def __init__(self, title: str, steps: int, kills: int, out: Callable[[str], object]) -> None:
        self._title, self._steps, self._kills, self._out, self._told = title, steps, kills, out, 0.0

    def is_enough(self, nemesis: Nemesis, keeper: Writers) -> bool:
        """Whether both bars are reached."""
        steps, kills = keeper.commits + nemesis.counts.total(), nemesis.kills.total()
        if time.monotonic() - self._told > 15:
            self._told = time.monotonic()
            self._out(f"{time.strftime('%T')} {self._title}: {steps} of {self._steps} steps, {kills} of {self._kills} kills")
        return steps >= self._steps and kills >= self._kills


def ordinary(rig: Rig, seed: int, teller: Teller) -> Phase:
    """A leader and a standby on a plain pipeline, judged by every oracle."""
    began = time.monotonic()
    with Sampler(rig) as sampler:
        nemesis, keeper = _tormented(Relentless(rig, seed), rig, Keeper(rig.shop, seed, rest=0.04), teller)
    return _phase("ordinary", began, rig, nemesis, keeper, rig.verdicts(sampler.marks))


def wide(rig: Rig, seed: int, teller: Teller) -> Phase:
    """Everything a pipeline can do, a second one on its log, migrations and rewinds."""
    began, nemesis = time.monotonic(), WideNemesis(rig, seed)
    _, keeper = _tormented(nemesis, rig, Keeper(rig.shop, seed, rest=0.04), teller)
    return _phase("wide", began, rig, nemesis, keeper, nemesis.verdicts())


def relay(rig: Relay, seed: int, teller: Teller) -> Phase:
    """From an outbox to Kafka, twice: exactly once and at least once."""
    began = time.monotonic()
    nemesis, keeper = _tormented(RelayNemesis(rig, seed), rig, Clerks(rig, seed, rest=0.04), teller)
    came = [len(rig.records(name)) for name in DELIVERIES]
    return Phase(
        title="outbox to Kafka",
        seconds=round(time.monotonic() - began, 1),
        commits=keeper.commits,
        rollbacks=keeper.rollbacks,
        faults=dict(nemesis.counts.most_common()),
        kills=dict(nemesis.kills.most_common()),
        terms=rig.pipeline_state().epoch,
        head=rig.position,
        requests=0,
        deliveries=sum(came),
        repeats=sum(came) - len(came) * sum(map(len, rig.made().values())),
        deposed=0,
        verdicts=rig.verdicts(),
    )


def _tormented(nemesis: Nemesis, rig: Rig, keeper: Writers, teller: Teller) -> tuple[Nemesis, Writers]:
    keeper.start()
    try:
        nemesis.torment_until(lambda: teller.is_enough(nemesis, keeper))
    finally:
        keeper.stop()
    nemesis.heal()
    rig.until_settled()
    if (codes := nemesis.end()) != [0, 0]:
        raise RuntimeError(f"asked to stop, they ended with {codes}\n{rig.tails()}")
    return nemesis, keeper


def _phase(title: str, began: float, rig: Rig, nemesis: Nemesis, keeper: Writers, verdicts: Mapping[str, list[str]]) -> Phase:
    seen = rig.deliveries()
    current = oracle.current(seen)
    return Phase(
        title=title,
        seconds=round(time.monotonic() - began, 1),
        commits=keeper.commits,
        rollbacks=keeper.rollbacks,
        faults=dict(nemesis.counts.most_common()),
        kills=dict(nemesis.kills.most_common()),
        terms=rig.pipeline_state().epoch,
        head=rig.shop.head,
        requests=len(rig.receiver.requests),
        deliveries=len(seen),
        repeats=len(current) - len({one.place for one in current}),
        deposed=len(seen) - len(current),
        verdicts=verdicts,
    )


def versions() -> dict[str, str]:
    """What it was run with."""
    commit = subprocess.run(["git", "-C", TESTS, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "penstock": f"{version('penstock')} ({commit.stdout.strip() or 'no commit'})",
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
    }


def markdown(seed: int, at: str, phases: list[Phase]) -> str:
    """The report as people read it."""
    kills, faults = (sum((Counter(getattr(one, what)) for one in phases), Counter[str]()) for what in ("kills", "faults"))
    found = [(name, len(breaches)) for one in phases for name, breaches in one.verdicts.items()]
    lost = sum(count for name, count in found if name.startswith(("completeness", "rebuilt")))
    disorder = sum(count for name, count in found if name.startswith("order"))
    lines = [
        "# A campaign of the nemesis",
        "",
        f"**{sum(one.steps for one in phases):,} steps** (committed writes and faults) with **{kills.total()} process kills**: "
        f"**{lost} lost, {disorder} out of order**, {sum(one.repeats for one in phases):,} repeats. "
        f"Breaches of any promise: {sum(one.breaches for one in phases)}.",
        "",
        f"Seed {seed}, begun {at}. " + ", ".join(f"{name} {text}" for name, text in versions().items()) + ".",
        f"Again: `make nemesis SEED={seed}`. A seed fixes the choices, not the scheduling.",
        "",
        "| | " + " | ".join(one.title for one in phases) + " |",
        "|---|" + "---:|" * len(phases),
        *_rows(phases),
        "",
        "| kill -9 of | times |",
        "|---|---:|",
        *(f"| {name} | {times} |" for name, times in kills.most_common()),
        "",
        "| fault | times |",
        "|---|---:|",
        *(f"| {name.replace('_', ' ')} | {times} |" for name, times in faults.most_common()),
        "",
        "| oracle | " + " | ".join(one.title for one in phases) + " |",
        "|---|" + "---:|" * len(phases),
        *_verdicts(phases),
    ]
    return "\n".join(lines) + "\n"


def _rows(phases: list[Phase]) -> Iterator[str]:
    shown: dict[str, Callable[[Phase], float]] = {
        "seconds": lambda one: one.seconds,
        "steps": lambda one: one.steps,
        "transactions committed": lambda one: one.commits,
        "rolled back": lambda one: one.rollbacks,
        "faults": lambda one: sum(one.faults.values()),
        "of them process kills": lambda one: sum(one.kills.values()),
        "terms: changes of leader, and decisions": lambda one: one.terms,
        "changes in the log": lambda one: one.head,
        "requests": lambda one: one.requests,
        "deliveries": lambda one: one.deliveries,
        "repeats": lambda one: one.repeats,
        "late, of deposed leaders": lambda one: one.deposed,
    }
    for name, of in shown.items():
        yield f"| {name} | " + " | ".join(f"{of(one):,}" for one in phases) + " |"


def _verdicts(phases: list[Phase]) -> Iterator[str]:
    for name in dict.fromkeys(name for one in phases for name in one.verdicts):
        found = (f"{len(one.verdicts[name])} breaches" if name in one.verdicts else "-" for one in phases)
        yield f"| {name} | " + " | ".join(found) + " |"


def _report(folder: Path, seed: int, at: str, phases: list[Phase]) -> None:
    facts = {"seed": seed, "at": at, "versions": versions(), "phases": [asdict(one) for one in phases]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nemesis.json").write_text(json.dumps(facts, indent=1) + "\n")
    (folder / "nemesis.md").write_text(markdown(seed, at, phases))


def _out(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """All of it to an ordinary pipeline, a tenth more to a wide one, a third to a relay; fails if any promise was broken."""
    parser = argparse.ArgumentParser(prog="python tests/nemesis", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="committed writes and faults (10000)")
    parser.add_argument("--kills", type=int, default=100, help="process kills (100)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--report", type=Path, default=TESTS.parent / "bench" / "reports", help="a folder (bench/reports)")
    options = parser.parse_args()
    at, phases = time.strftime("%FT%TZ", time.gmtime()), list[Phase]()
    _out(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        for torment, rigged, share in ((ordinary, Rig, 1.0), (wide, wide_rig, 0.1), (relay, relay_rig, 0.33)):
            steps, kills = ceil(options.steps * share), ceil(options.kills * share)
            with rigged(Path(folder, torment.__name__)) as rig:
                phases.append(torment(rig, options.seed, Teller(torment.__name__, steps, kills, _out)))
            _report(options.report, options.seed, at, phases)
    _out(markdown(options.seed, at, phases))
    for breach in (breach for one in phases for found in one.verdicts.values() for breach in found[:20]):
        _out(breach)
    return 1 if any(one.breaches for one in phases) else 0


if __name__ == "__main__":
    sys.exit(main())
