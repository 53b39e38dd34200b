"""Condition, fields and function from a pipeline file: killed, resumed, halted at a row that cannot be, and mended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fix_rig import Rig, Sampler
from penstock.cli import main
from penstock.testing import oracle
from program import status

TRANSFORM = {
    "where": "op <> 'delete' or try_variant_get(before, '$.total', 'double') < 100",
    "select": {"total": "after:total::double", "order": "after:id"},
    "function": "order_rules:spread",
}
RULES = '''
from dataclasses import replace
from order_prices import doubled


def spread(change):
    """By the order's number: nothing, the same for another table, or one for the books behind it."""
    number = int(change.key.removeprefix('{"id":').removesuffix("}"))
    if number % 3 == 0:
        return None
    if number % 3 == 1:
        return change.replace(table="sales")
    return [change, replace(change, table="books", op="refresh", after=doubled(change.after))]
'''
PRICES = """
import json


def doubled(after):
    return after and json.dumps({"doubled": 2 * json.loads(after)["total"]})
"""


def expected(log: dict[int, dict[str, Any]]) -> dict[oracle.Place, dict[str, Any]]:
    """What the transform above makes of what was committed, in plain Python."""
    found: dict[oracle.Place, dict[str, Any]] = {}
    for position, fact in log.items():
        after = fact["after"] and {"total": fact["after"]["total"], "order": fact["after"]["id"]}
        way, one = fact["key"]["id"] % 3, fact | {"after": after}
        if (fact["op"] == "delete" and fact["before"]["total"] >= 100) or way == 0:
            continue
        if way == 1:
            found[position, 0] = one | {"table": "sales"}
        else:
            books = {"table": "books", "op": "refresh", "after": after and {"doubled": 2 * after["total"]}}
            found |= {(position, 1): one, (position, 2): one | books}
    return found


def trade(rig: Rig, orders: range) -> None:
    for number in orders:
        with rig.shop.transaction() as work:
            row = {"id": number, "customer": 1, "total": number / 4, "note": None}
            work.put("orders", **row)
            work.alter("orders", row, total=number / 2)
            if number % 5 == 0:
                work.drop("orders", row | {"total": number / 2})


def test_what_a_function_makes_survives_kills_and_repeats_are_the_same(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig, Sampler(rig) as sampler:
        (tmp_path / "order_rules.py").write_text(RULES)
        (tmp_path / "order_prices.py").write_text(PRICES)
        rig.write(transform=TRANSFORM)
        trade(rig, range(1, 200))
        program = rig.start()
        for blow in range(3):
            program.arm("writer.advancing", "kill")
            program.until_reached("writer.advancing")
            trade(rig, range(200 + 100 * blow, 300 + 100 * blow))
            if blow == 1:
                program.kill_tree()
                program = rig.start()
        rig.until_settled()
        seen = rig.deliveries()
        assert oracle.completeness(seen, expected(rig.shop.log)) == []
        assert oracle.order(seen) + oracle.chain(seen) == []
        assert oracle.repeats(seen, sampler.marks) + oracle.resolved(seen, sampler.marks) == []
        assert len(seen) > len(list(oracle.firsts(seen))), "nothing was repeated, so no kill came in time"
        assert program.terminate() == 0


@pytest.fixture
def bad(tmp_path: Path) -> Any:
    """A shop whose fourth order has a total that is no number."""
    with Rig(tmp_path) as rig:
        rig.shop.sell(3)
        with rig.shop.transaction() as work:
            work.put("orders", id=7, customer=1, total="a lot", note=None)
        rig.shop.sell(3)
        yield rig


def test_a_row_that_cannot_be_is_named_and_a_person_decides(bad: Rig, tmp_path: Path) -> None:
    bad.write(transform={"select": {"total": "after:total::double"}})
    program = bad.start("--available-now")
    assert program.exit_code() == 1
    _, [said] = status(bad.file)
    assert said["state"] == "halted"
    assert said["position"] == 3
    assert said["error"]["code"] == "transform.invalid"
    assert said["error"]["message"].startswith(
        'transform.select.total: after:total::double raised on change 4 of orders, key {"id":7}'
    )
    assert "try_variant_get" in said["error"]["remedy"]
    assert bad.positions() == [1, 2, 3]
    assert "Py4J" not in program.said()

    (tmp_path / "row_rules.py").write_text("def half(change):\n    return [] if float(change.after[9:-1]) < 1 else change\n")
    bad.write(transform={"select": {"total": "try_variant_get(after, '$.total', 'double')"}, "function": "row_rules:half"})
    program = bad.start()
    assert program.exit_code() == 1
    [halted] = program.events("Halted")
    place = f"{tmp_path}/row_rules.py:2"
    assert (
        f"row_rules:half raised ValueError: could not convert string to float: 'null' at {place} on change 4" in halted["message"]
    )
    assert halted["remedy"].endswith("penstock run FILE --from 4")
    assert bad.positions() == [1, 2, 3]

    program = bad.start("--from", "4")
    bad.until_settled()
    assert bad.positions() == [1, 2, 3, 5, 6, 7]
    assert [json.loads(one.text)["after"] for one in bad.deliveries()] == [{"total": 9.5}] * 6
    assert program.terminate() == 0


def test_a_function_that_is_not_there_is_told_by_validate_and_before_anything_starts(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "p.yaml").write_text(
        "name: p\nsource: {type: sqlite, database: x.db}\nsink: {type: discard}\ntransform: {function: 'no_rules:f'}\n"
    )
    for command in ("validate", "run"):
        assert main([command, str(tmp_path / "p.yaml")]) == 2
        assert f"transform.function: there is no module no_rules in {tmp_path}" in capsys.readouterr().err
