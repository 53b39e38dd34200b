"""The verdicts: each fails when what it is about is not so."""

from __future__ import annotations

import json
from typing import Any

from penstock.change import Change, Op
from penstock.demo.audit import judge
from penstock.testing.oracle import Delivery

LOG = [
    Change(1, Op.INSERT, "orders", '{"id":1}', after='{"id":1,"status":"new"}'),
    Change(2, Op.INSERT, "orders", '{"id":2}', after='{"id":2,"status":"new"}'),
    Change(3, Op.UPDATE, "orders", '{"id":1}', before='{"id":1,"status":"new"}', after='{"id":1,"status":"paid"}'),
    Change(4, Op.DELETE, "orders", '{"id":2}', before='{"id":2,"status":"new"}'),
]
TABLES = {"orders": [{"id": 1, "status": "paid"}]}


def delivered(*positions: int, **altered: Any) -> list[Delivery]:
    """These changes of the log, in this order, each in a request of its own; the last one altered."""
    made = []
    for number, position in enumerate(positions):
        change = LOG[position - 1]
        documents = {"key": change.key, "before": change.before, "after": change.after}
        sent: dict[str, Any] = {name: json.loads(text) for name, text in documents.items() if text}
        sent |= {"position": position, "previous": position - 1 or None, "table": change.table, "op": str(change.op)}
        sent |= altered if number == len(positions) - 1 else {}
        made.append(Delivery(float(number), 1, number, f"parcel-{position}", json.dumps(sent), sent))
    return made


def failing(seen: list[Delivery]) -> set[str]:
    return {verdict.question for verdict in judge(LOG, seen, TABLES) if not verdict.holds}


def test_a_faithful_delivery_passes_every_verdict() -> None:
    assert failing(delivered(1, 2, 3, 4)) == set()


def test_repeats_pass_and_are_counted() -> None:
    seen = delivered(1, 2, 2, 3, 4)
    assert failing(seen) == set()
    assert judge(LOG, seen, TABLES)[-1].finding == "1 changes arrived again with the same bytes"


def test_a_lost_change_is_found() -> None:
    assert "nothing lost" in failing(delivered(1, 2, 3))


def test_an_altered_change_is_found() -> None:
    assert "nothing lost" in failing(delivered(1, 2, 3, 4, op="insert"))


def test_a_change_that_overtook_an_earlier_one_of_its_key_is_found() -> None:
    assert "in order" in failing(delivered(2, 3, 1, 4))


def test_a_table_that_differs_is_found() -> None:
    assert {verdict.question for verdict in judge(LOG, delivered(1, 2, 3, 4), {"orders": []}) if not verdict.holds} == {
        "same tables"
    }


def test_a_repeat_with_other_bytes_is_found() -> None:
    assert "honest repeats" in failing(delivered(1, 2, 3, 4, 4, at="later"))
