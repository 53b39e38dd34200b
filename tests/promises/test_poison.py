"""Poison of the receiver, of the expressions and of the function in one running pipeline: parked, waited for, killed, redriven."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from deadline import until
from fix_rig import Rig
from penstock.cli import main
from penstock.testing import oracle
from program import status

RETRY = {"tries": 3, "min": "10ms", "max": "100ms", "then": "dead-letter"}
TRANSFORM = {"where": "after is null or after:total::double >= 0", "function": "poison_rules:checked"}
RULES = """
def checked(change):
    if change.after and '"customer":13' in change.after.replace(" ", ""):
        raise ValueError("nobody sells to 13")
    return change
"""
MENDED = {"where": "after is null or true", "function": "mended_rules:checked"}
REFUSED = '"customer":666'


def trade(rig: Rig, orders: range) -> None:
    """Each order is made and altered: some have a total that is no number, or a customer the function or the receiver refuses."""
    for number in orders:
        row = {"id": number, "customer": 13 if number % 41 == 0 else 666 if number % 37 == 0 else 1, "total": 1.0, "note": None}
        with rig.shop.transaction() as work:
            work.put("orders", **row | ({"total": "a lot"} if number % 43 == 0 else {}))
        with rig.shop.transaction() as work:
            work.alter("orders", row | ({"total": "a lot"} if number % 43 == 0 else {}), customer=2, total=2.0)


def is_bad(number: int) -> bool:
    return number % 41 == 0 or number % 37 == 0 or number % 43 == 0


def letters(rig: Rig, capsys: Any) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["dead", "list", str(rig.file), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def redrive_all(rig: Rig) -> None:
    """In a process of its own, which starts Spark for what the expressions raised on."""
    command = [sys.executable, "-m", "penstock", "dead", "redrive", str(rig.file), "all"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def test_every_change_is_delivered_or_parked_once_and_a_redrive_makes_the_copy_whole(tmp_path: Path, capsys: Any) -> None:
    with Rig(tmp_path) as rig:
        (tmp_path / "poison_rules.py").write_text(RULES)
        (tmp_path / "mended_rules.py").write_text("def checked(change):\n    return change\n")
        rig.receiver.turn(poison=REFUSED, statuses=(422, 500))
        rig.write(transform=TRANSFORM, retry=RETRY)
        trade(rig, range(1, 100))
        program = rig.start()
        rig.until_settled(180)
        for blow in range(2):
            program.arm("sink.sent", "kill")
            trade(rig, range(100 + 50 * blow, 150 + 50 * blow))
            program.until_reached("sink.sent")
            if blow:
                program.kill_tree()
                program = rig.start()
        rig.until_settled(180)

        parked = letters(rig, capsys)
        bad = {number for number in range(1, 200) if is_bad(number)}
        assert {letter["key"]["id"] for letter in parked} == bad
        assert len(parked) == 2 * len(bad), "each is parked with the change that follows it"
        assert {letter["stage"] for letter in parked if not letter["behind"]} == {"sql", "function", "sink"}
        seen = rig.deliveries()
        arrived = {delivery.position for delivery in seen}
        assert arrived | {letter["position"] for letter in parked} == set(rig.shop.log)
        assert arrived.isdisjoint(letter["position"] for letter in parked)
        assert oracle.order(seen) == []
        _, [said] = status(rig.file)
        assert (said["dead"], said["error"], said["state"]) == (len(parked), None, "leading")

        key = f"key={json.dumps({'id': 37})}"
        assert main(["dead", "redrive", str(rig.file), key]) == 1, "nothing was mended"
        assert len(letters(rig, capsys)) == len(parked)

        rig.receiver.turn(poison="")
        assert program.terminate() == 0
        rig.write(transform=MENDED, retry=RETRY)
        program = rig.start()
        assert main(["dead", "redrive", str(rig.file), key]) == 0
        assert "2 of 2 dead letters are gone." in capsys.readouterr().out
        trade(rig, range(200, 240))
        redrive_all(rig)
        rig.until_settled(180)
        assert letters(rig, capsys) == []
        seen = rig.deliveries()
        assert oracle.completeness(seen, rig.shop.log) + oracle.order(seen) + oracle.rebuilt(seen, rig.shop.tables()) == []
        until(lambda: rig.standing().redriven == len(parked))
        assert program.terminate() == 0
