"""The comparison of arrivals with the log and the tables of the shop, without any report of the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.change import Change
from penstock.testing import oracle
from penstock.testing.oracle import Delivery

Tables = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Audited:
    """A property, whether it holds, and the evidence."""

    question: str
    holds: bool
    finding: str


def judge(logged: Iterable[Change], seen: Sequence[Delivery], tables: Tables) -> tuple[Audited, ...]:
    """The verdicts on the logged changes, the deliveries in order of arrival, and the rows of the tables."""
    log = {change.position: _facts(change) for change in logged}
    repeats = len(seen) - len({delivery.position for delivery in seen})
    keys = len({row for delivery in seen for row in delivery.rows()})
    rows = ", ".join(f"{len(found)} {table}" for table, found in tables.items())
    return (
        _verdict("nothing lost", oracle.completeness(seen, log), f"all {len(log)} committed changes arrived unaltered"),
        _verdict("in order", oracle.order(seen), f"no change overtook an earlier one of its key ({keys} keys)"),
        _verdict("same tables", oracle.rebuilt(seen, tables), f"rebuilt from deliveries: {rows}"),
        _verdict("honest repeats", oracle.repeats(seen), f"{repeats} changes arrived again with the same bytes"),
    )


def _verdict(question: str, breaches: Sequence[str], finding: str) -> Audited:
    return Audited(question, not breaches, f"{len(breaches)} breaches; first: {breaches[0]}" if breaches else finding)


def _facts(change: Change) -> dict[str, Any]:
    documents = {"key": change.key, "before": change.before, "after": change.after}
    return {"table": change.table, "op": change.op, **{name: text and orjson.loads(text) for name, text in documents.items()}}
