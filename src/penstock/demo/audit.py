"""What came against what was committed: judged from the shop's log and tables, and from nothing the pipeline says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.change import Change

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question, answered."""

    question: str
    holds: bool
    finding: str


def judge(logged: Sequence[Change], arrived: Sequence[Row], tables: Mapping[str, Sequence[Row]]) -> list[Verdict]:
    """Every verdict over what was logged, what arrived in the order it came, and what the tables hold now."""
    return [_complete(logged, arrived), _ordered(arrived), _rebuilt(arrived, tables), _repeats(arrived)]


def _complete(logged: Sequence[Change], arrived: Sequence[Row]) -> Verdict:
    came = {row["position"]: row for row in arrived}
    lost = [change.position for change in logged if not _is_same(change, came.get(change.position))]
    found = f"{len(logged) - len(lost)} of {len(logged)} committed changes arrived"
    return Verdict("nothing lost", not lost, found + (f"; the first that did not: {lost[0]}" if lost else ""))


def _is_same(change: Change, row: Row | None) -> bool:
    if row is None:
        return False
    documents = ((change.key, "key"), (change.before, "before"), (change.after, "after"))
    same = all((text and orjson.loads(text)) == row.get(name) for text, name in documents)
    return same and (change.op, change.table) == (row["op"], row["table"])


def _ordered(arrived: Sequence[Row]) -> Verdict:
    highest: dict[tuple[str, bytes], int] = {}
    seen: set[int] = set()
    overtaken = 0
    for row in arrived:
        if row["position"] not in seen:
            key = _key(row)
            overtaken += row["position"] < highest.get(key, 0)
            highest[key] = max(row["position"], highest.get(key, 0))
            seen.add(row["position"])
    found = f"{overtaken} of {len(seen)} overtook an earlier change of their key ({len(highest)} keys)"
    return Verdict("in order", not overtaken, found)


def _rebuilt(arrived: Sequence[Row], tables: Mapping[str, Sequence[Row]]) -> Verdict:
    firsts = {row["position"]: row for row in reversed(arrived)}
    rebuilt: dict[tuple[str, bytes], Row] = {}
    for position in sorted(firsts):
        row = firsts[position]
        rebuilt.pop(_key(row), None)
        if "after" in row:
            rebuilt[_key(row)] = row["after"]
    counts = []
    holds = True
    for table, rows in tables.items():
        made = [after for (name, _), after in rebuilt.items() if name == table]
        holds &= sorted(map(orjson.dumps, made)) == sorted(map(orjson.dumps, rows))
        counts.append(f"{table} {len(made)}")
    return Verdict("same tables", holds, f"rebuilt from what arrived: {', '.join(counts)} rows")


def _repeats(arrived: Sequence[Row]) -> Verdict:
    firsts: dict[int, Row] = {}
    repeats = changed = 0
    for row in arrived:
        first = firsts.setdefault(row["position"], row)
        repeats += first is not row
        changed += first != row
    return Verdict("honest repeats", not changed, f"{repeats} repeats, {repeats - changed} of them the same as the first time")


def _key(row: Row) -> tuple[str, bytes]:
    return row["table"], orjson.dumps(row["key"])
