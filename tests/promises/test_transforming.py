"""Condition, fields and function from a pipeline file: killed, resumed, halted at a row that cannot be, and mended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stories import Part, Story, Way, paused, strike

from fix_rig import Rig, Sampler
from penstock.cli import main
from penstock.testing import oracle
from program import Program, status

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
TRIED = "try_variant_get(after, '$.total', 'double')"
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


class Made(Part):
    """The writer is killed three times before it has recorded, and once the whole process."""

    def way(self) -> Way:
        self.live = rig = self.rig("made", transform=TRANSFORM)
        (rig.folder / "order_rules.py").write_text(RULES)
        (rig.folder / "order_prices.py").write_text(PRICES)
        self.sampler = self.opened.enter_context(Sampler(rig))
        trade(rig, range(1, 200))
        program = yield [rig.file]
        for blow in range(2):
            program.arm("writer.advancing", "pause")
            trade(rig, range(200 + 100 * blow, 300 + 100 * blow))
            strike(program, rig, "writer.advancing")
        yield
        self.program = yield [rig.file]
        self.program.arm("writer.advancing", "pause")
        trade(rig, range(500, 600))
        strike(self.program, rig, "writer.advancing")
        rig.until_settled()
        yield

    def brink(self, program: Program) -> None:
        trade(self.live, range(400, 500))
        paused(program, self.live, "writer.advancing")


def test_what_a_function_makes_survives_kills_and_repeats_are_the_same(interrupted: Story) -> None:
    made = interrupted.of(Made)
    seen, marks = made.live.deliveries(), made.sampler.marks
    assert oracle.completeness(seen, expected(made.live.shop.log)) == []
    assert oracle.order(seen) + oracle.chain(seen) == []
    assert oracle.repeats(seen, marks) + oracle.resolved(seen, marks) == []
    assert len(seen) > len(list(oracle.firsts(seen))), "nothing was repeated, so no kill came in time"
    assert made.program.process.returncode == 0


class BadRow(Part):
    """The fourth order has a total that is no number: a function raises on it, then an expression, then a person passes over it."""

    def way(self) -> Way:
        self.live = rig = self.rig("bad")
        rig.shop.sell(3)
        with rig.shop.transaction() as work:
            work.put("orders", id=7, customer=1, total="a lot", note=None)
        rig.shop.sell(3)
        (rig.folder / "row_rules.py").write_text("def half(change):\n    return [] if float(change.after[9:-1]) < 1 else change\n")
        rig.write(transform=(halving := {"select": {"total": TRIED}, "function": "row_rules:half"}))
        program = yield [rig.file]
        self.raised = program.until_event("Halted", pipeline=rig.name)
        yield
        self.before = rig.positions()
        rig.write(transform={"select": {"total": "after:total::double"}})
        yield [rig.file]
        yield
        _, [self.status] = status(rig.file)
        self.after = rig.positions()
        for _ in range(2):
            yield []
            yield
        rig.write(transform=halving)
        yield [rig.file]
        rig.until_settled()
        yield


def test_a_row_that_cannot_be_is_named_and_a_person_decides(halted: Story) -> None:
    bad = halted.of(BadRow)
    live, batch, mended = bad.programs
    place = f"{bad.live.folder}/row_rules.py:2"
    assert (
        f"row_rules:half raised ValueError: could not convert string to float: 'null' at {place} on change 4"
        in bad.raised["message"]
    )
    assert bad.raised["remedy"].endswith("penstock run FILE --from 4")
    assert bad.before == [1, 2, 3]
    assert live.process.returncode == 1

    said = bad.status
    assert (said["state"], said["position"], said["error"]["code"]) == ("halted", 3, "transform.invalid")
    assert said["error"]["message"].startswith(
        'transform.select.total: after:total::double raised on change 4 of orders, key {"id":7}'
    )
    assert "try_variant_get" in said["error"]["remedy"]
    assert bad.after == [1, 2, 3]
    assert "Py4J" not in batch.said()
    assert batch.process.returncode == 1

    assert bad.live.positions() == [1, 2, 3, 5, 6, 7]
    assert [json.loads(one.text)["after"] for one in bad.live.deliveries()] == [{"total": 9.5}] * 6
    assert mended.process.returncode == 0


def test_a_function_that_is_not_there_is_told_by_validate_and_before_anything_starts(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "p.yaml").write_text(
        "name: p\nsource: {type: sqlite, database: x.db}\nsink: {type: discard}\ntransform: {function: 'no_rules:f'}\n"
    )
    for command in ("validate", "run"):
        assert main([command, str(tmp_path / "p.yaml")]) == 2
        assert f"transform.function: there is no module no_rules in {tmp_path}" in capsys.readouterr().err
