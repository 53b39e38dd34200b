"""What the demo counts, from what the receiver wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.demo.figures import Arrival, Arrivals, Figures, percentile
from penstock.testing.request import Request, line_of


def request(*positions: int, is_taken: bool = True) -> str:
    changes = [{"position": position, "at": "1970-01-01T00:01:40.000Z"} for position in positions]
    body = json.dumps({"changes": changes}).encode()
    return b"".join(line_of(Request(100.25, 1, "/", {}, body, is_taken), body)).decode()


def arrival(position: int, committed_at: float, received_at: float, is_repeat: bool = False) -> Arrival:
    minutes, seconds = divmod(committed_at, 60)
    change: dict[str, Any] = {"position": position, "at": f"1970-01-01T00:{int(minutes):02}:{seconds:06.3f}Z"}
    return Arrival(change, received_at, is_repeat)


def test_arrivals_are_read_once_and_only_when_their_line_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "received"
    arrivals = Arrivals(out)
    assert arrivals.read() == []
    whole, torn = request(1, 2), request(3)
    out.write_text(whole + torn[:20])
    assert [each.position for each in arrivals.read()] == [1, 2]
    out.write_text(whole + torn)
    assert [each.position for each in arrivals.read()] == [3]
    assert arrivals.read() == []


def test_what_the_receiver_did_not_take_has_not_arrived(tmp_path: Path) -> None:
    out = tmp_path / "received"
    out.write_text(request(1) + request(2, is_taken=False) + request(2))
    assert [(each.position, each.is_repeat) for each in Arrivals(out).read()] == [(1, False), (2, False)]


def test_a_change_that_comes_again_is_a_repeat(tmp_path: Path) -> None:
    out = tmp_path / "received"
    out.write_text(request(1, 2) + request(1, 2, 3))
    assert [each.is_repeat for each in Arrivals(out).read()] == [False, False, True, True, False]


def test_latency_runs_from_the_change_to_its_receipt(tmp_path: Path) -> None:
    out = tmp_path / "received"
    out.write_text(request(1))
    assert Arrivals(out).read()[0].latency == pytest.approx(0.25)


def test_the_backlog_is_what_is_committed_and_has_not_arrived() -> None:
    figures = Figures()
    for each in (arrival(1, 0, 1), arrival(2, 0, 1), arrival(2, 0, 1, is_repeat=True)):
        figures.take(each)
    figures.look(committed=10)
    figures.look(committed=5)
    assert (figures.delivered, figures.repeats, figures.backlog, figures.most_waiting) == (2, 1, 3, 8)


def test_changes_made_during_an_outage_do_not_count_as_calm() -> None:
    figures = Figures()
    figures.take(arrival(1, committed_at=1, received_at=1.5))
    figures.broke(at=2)
    figures.take(arrival(2, committed_at=3, received_at=9))
    figures.repaired(at=8, awaited=2)
    figures.take(arrival(3, committed_at=7, received_at=9))
    figures.take(arrival(4, committed_at=9, received_at=9.25))
    assert list(figures.calm) == [0.5, 0.25]


def test_an_outage_is_drained_when_what_had_waited_is_there() -> None:
    figures = Figures()
    figures.broke(at=2)
    figures.repaired(at=8, awaited=5)
    assert figures.outage
    assert figures.outage.seconds == 6
    for position, received_at in ((4, 8.5), (5, 9.0), (6, 9.5)):
        figures.take(arrival(position, committed_at=7, received_at=received_at))
    assert figures.outage.drain_seconds == 1.0


def test_percentiles() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0], 99) == 3.0
    assert percentile([float(i) for i in range(100)], 50) == 50
    assert percentile([float(i) for i in range(100)], 99) == 99
