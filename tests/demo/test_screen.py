"""The demo's looks: it fits, and it says what matters."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from penstock.demo.audit import Audited
from penstock.demo.figures import Arrival, Figures
from penstock.demo.screen import Lines, bars, milliseconds, picture, summary
from penstock.demo.story import ACTS, PROOF, Act, Summary, View


def figures() -> Figures:
    made = Figures()
    for position in range(123_450, 123_470):
        key = {"order_id": 12_345, "line": 2}
        change: dict[str, Any] = {"position": position, "table": "customers", "op": "update", "key": key}
        made.take(Arrival({**change, "at": "2026-01-01T00:00:00.000Z"}, 1767225600.0123, is_repeat=position % 5 == 0))
    for committed in range(20, 100_000, 1000):
        made.look(committed)
    made.broke(at=1767225610.0)
    made.repaired(at=1767225620.0, awaited=123_500)
    made.take(Arrival({**change, "position": 123_500, "at": "2026-01-01T00:00:15.000Z"}, 1767225621.5, is_repeat=False))
    return made


def drawn(part: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)
    console.print(part)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("act", [*ACTS, PROOF], ids=lambda act: act.name)
def test_the_picture_fits_a_small_terminal_in_every_act(act: Act) -> None:
    trouble = "" if act.is_well else "Remote end closed connection without response; try 14 failed"
    view = View(act, 75.0, 123_470, figures(), trouble)
    small, large = drawn(picture(view), 80), drawn(picture(view), 120)
    assert small == large  # nothing was folded
    assert len(small) <= 22
    assert any("order_id 12345, line 2" in line and "12.3 ms" in line for line in small)


def test_the_summary_fits_and_names_verdicts_and_the_next_steps() -> None:
    verdicts = (
        Audited("nothing lost", True, "all 3220 committed changes arrived unaltered"),
        Audited("in order", False, "2"),
    )
    found = Summary(commits=12_345, rollbacks=321, retries=45, figures=figures(), verdicts=verdicts)
    lines = drawn(summary(found, None), 80)
    assert lines == drawn(summary(found, None), 120)
    assert not found.holds
    assert [line[:14] for line in lines if line.startswith(("✓", "✗"))] == ["✓ nothing lost", "✗ in order    "]
    assert [line.split()[1] for line in lines if line.startswith("  penstock ")] == ["init", "capture", "run"]


def test_elsewhere_than_on_a_terminal_there_is_a_line_a_second_without_control_characters() -> None:
    console = Console(file=io.StringIO(), soft_wrap=True)
    lines = Lines(console)
    lines.step(["a shop"], "Spark starts ...", 1.0)
    lines.step(["a shop"], "Spark starts ...", 2.0)
    for quarter in range(9):
        lines.show(View(ACTS[0], quarter / 4, 123_470, figures(), ""))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "\x1b" not in said
    assert said.splitlines()[:3] == ["a shop", "Spark starts ...", f"-- flow: {ACTS[0].said}"]
    assert len(said.splitlines()) == 3 + 3


def test_elsewhere_than_on_a_terminal_each_kind_of_trouble_of_an_act_has_a_line_at_once() -> None:
    console = Console(file=io.StringIO(), soft_wrap=True)
    lines = Lines(console)
    seen = [(1, ""), (1, "hung up; try 1"), (1, "hung up; try 2"), (2, "hung up; try 3"), (2, "status 503; try 4"), (2, "")]
    for number, (act, trouble) in enumerate(seen):
        lines.show(View(ACTS[act], number / 100, 123_470, figures(), trouble))
    assert isinstance(console.file, io.StringIO)
    told = [line.rpartition("  ")[2] for line in console.file.getvalue().splitlines() if not line.startswith("--")]
    assert told[1:] == ["hung up; try 1", "hung up; try 3", "status 503; try 4"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "-"), (0.00234, "2.3 ms"), (0.25, "250 ms"), (9.04, "9.0 s")], ids=["none", "few", "many", "long"]
)
def test_a_latency_is_said_in_the_unit_that_suits_it(seconds: float | None, said: str) -> None:
    assert milliseconds(seconds) == said


def test_bars_rise_with_the_backlog_and_a_few_changes_are_flat() -> None:
    assert bars([0, 3, 9]) == "▁▁▁"
    assert bars([0, 500, 1000]) == "▁▄█"
