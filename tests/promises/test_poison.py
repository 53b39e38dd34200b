"""Poison of the receiver, of the expressions and of the function in one running pipeline: parked, waited for, killed, redriven."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from stories import Part, Story, Way, paused, strike

from deadline import PATIENCE, until
from fix_rig import Rig
from penstock.cli import main
from penstock.testing import oracle
from program import Program, status

RETRY = {"tries": 3, "min": "10ms", "max": "100ms", "then": "dead-letter"}
TRANSFORM = {"where": "after is null or after:total::double >= 0", "function": "poison_rules:checked"}
RULES = """
def checked(change):
    if change.after and '"customer":13' in change.after.replace(" ", ""):
        raise ValueError("nobody sells to 13")
    return change
"""
MENDED = {"where": "after is null or true", "function": "mended_rules:checked"}
KEY = f"key={json.dumps({'id': 37})}"
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


def penstock(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of a command."""
    with redirect_stdout(StringIO()) as said:
        return main(list(map(str, arguments))), said.getvalue()


def letters(rig: Rig) -> list[dict[str, Any]]:
    code, said = penstock("dead", "list", rig.file, "--json")
    assert code == 0
    return [json.loads(line) for line in said.splitlines()]


def redrive_all(rig: Rig) -> None:
    """In a process of its own, which starts Spark for what the expressions raised on."""
    command = [sys.executable, "-m", "penstock", "dead", "redrive", str(rig.file), "all"]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)


class Poisoned(Part):
    """All kinds of poison; workers and the process are killed; then everything is mended and sent again."""

    def way(self) -> Way:
        self.live = rig = self.rig("poisoned", transform=TRANSFORM, retry=RETRY)
        (rig.folder / "poison_rules.py").write_text(RULES)
        (rig.folder / "mended_rules.py").write_text("def checked(change):\n    return change\n")
        rig.receiver.turn(poison=REFUSED, statuses=(422, 500))
        trade(rig, range(1, 100))
        program = yield [rig.file]
        rig.until_settled()
        program.arm("sink.sent", "pause")
        trade(rig, range(100, 150))
        strike(program, rig, "sink.sent")
        yield
        yield [rig.file]
        rig.until_settled()
        self.parked, self.seen, self.made = letters(rig), rig.deliveries(), set(rig.shop.log)
        _, [self.status] = status(rig.file)
        self.too_early, _ = penstock("dead", "redrive", rig.file, KEY)
        self.still_parked = letters(rig)
        yield
        rig.receiver.turn(poison="")
        rig.write(transform=MENDED, retry=RETRY)
        yield []
        yield
        yield [rig.file]
        self.redriven = penstock("dead", "redrive", rig.file, KEY)
        trade(rig, range(200, 240))
        redrive_all(rig)
        rig.until_settled()
        self.left = letters(rig)
        until(lambda: rig.pipeline_state().redriven == len(self.parked))
        yield

    def brink(self, program: Program) -> None:
        trade(self.live, range(150, 200))
        paused(program, self.live, "writer.advancing")


def test_every_change_is_delivered_or_parked_once_and_a_redrive_makes_the_copy_whole(interrupted: Story) -> None:
    poisoned = interrupted.of(Poisoned)
    rig, parked = poisoned.live, poisoned.parked
    bad = {number for number in range(1, 200) if is_bad(number)}
    assert {letter["key"]["id"] for letter in parked} == bad
    assert len(parked) == 2 * len(bad), "each is parked with the change that follows it"
    assert {letter["stage"] for letter in parked if not letter["behind"]} == {"sql", "function", "sink"}
    arrived = {delivery.position for delivery in poisoned.seen}
    assert arrived | {letter["position"] for letter in parked} == poisoned.made
    assert arrived.isdisjoint(letter["position"] for letter in parked)
    assert oracle.order(poisoned.seen) == []
    said = poisoned.status
    assert (said["dead"], said["error"], said["state"]) == (len(parked), None, "leading")

    assert poisoned.too_early == 1, "nothing was mended"
    assert len(poisoned.still_parked) == len(parked)

    code, said = poisoned.redriven
    assert (code, "2 of 2 dead letters are removed." in said) == (0, True)
    assert poisoned.left == []
    seen = rig.deliveries()
    assert oracle.completeness(seen, rig.shop.log) + oracle.order(seen) + oracle.rebuilt(seen, rig.shop.tables()) == []
    assert [program.process.returncode for program in poisoned.programs[1:]] == [0, 0]
