"""The figures beside the peers are made right of what the receiver has written; the runs themselves are `make bench-peers`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers.arrivals import arrivals, newest, rows
from bench.peers.report import BEGIN, END, PAGE, fragment, inserted
from bench.peers.results import (
    AGAIN,
    DEFAULT,
    OURS,
    PLAIN,
    TUNED,
    Drain,
    Paced,
    Result,
    control,
    drain,
    markdown,
    pace,
    sentence,
    verdicts,
)


def paced(offered: int, p50: float, rate: float = 0) -> Paced:
    return Paced(offered, offered * 15, offered, rate or offered, p50, p50 * 3, 50.0, 20.0)


def measured(p50: float, saturation: float) -> Result:
    return Result((paced(1_000, p50), paced(5_000, p50)), Drain(300_000, saturation))


GOOD = {OURS: measured(4, 40_000), TUNED: measured(20, 10_000), AGAIN: measured(5, 36_000)}


def request(at: float, body: object) -> str:
    return json.dumps({"at": at, "body": body}) + "\n"


def row(number: int, sent: float) -> dict[str, object]:
    return {"id": number, "note": "x", "at": f"{sent:.6f}"}


@pytest.mark.parametrize(
    "body",
    [
        {"pipeline": "bench", "changes": [{"position": 1, "after": {"id": 7}}]},
        [{"before": None, "after": {"id": 7}, "op": "c"}],
        [{"schema": {}, "payload": {"before": None, "after": {"id": 7}, "op": "c"}}],
        [{"position": 1, "op": "insert", "after": {"id": 7}}],
    ],
    ids=["ours", "tuned", "default", "plain"],
)
def test_rows_are_found_in_what_each_contender_posts(body: object) -> None:
    assert rows(body) == [{"id": 7}]


def test_a_row_that_comes_again_counts_once_and_warming_up_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "requests"
    bodies = [[1, 2], [3], [3, 4]]
    out.write_text(
        "".join(request(100.0 + at, [{"after": row(n, 99.5)} for n in some]) for at, some in enumerate(bodies)) + '{"at": 1'
    )
    assert [(at, number) for at, number, _ in arrivals(out, 2, 4)] == [(100.0, 2), (101.0, 3), (102.0, 4)]
    assert newest(out) == 4


def test_a_request_larger_than_the_first_look_is_seen(tmp_path: Path) -> None:
    out = tmp_path / "requests"
    assert newest(out) == 0
    large = [{"after": {**row(n, 1.0), "note": "n" * 1_000}} for n in range(1, 1_001)]
    for requests in ([1.0], [1.0, 2.0]):
        out.write_text("".join(request(at, large) for at in requests))
        assert newest(out) == 1_000


def test_lateness_is_taken_from_the_row_and_the_rate_at_the_receiver() -> None:
    came = [(10 + n / 100, n, 10 + n / 100 - (0.5 if n == 99 else 0.004)) for n in range(100)]
    found = pace(100, came, engine_seconds=0.01, other_seconds=0.005)
    assert found.p50 == pytest.approx(4, abs=0.01)
    assert found.p99 == pytest.approx(500, abs=0.01)
    assert found.rate == pytest.approx(100 / 0.99)
    assert not found.is_behind
    assert (found.engine_us, found.other_us) == pytest.approx((100, 50))


def test_the_first_third_of_a_backlog_does_not_count() -> None:
    slow = [(float(n), n, 0.0) for n in range(100)]
    fast = [(100 + n / 1_000, n, 0.0) for n in range(201)]
    assert drain(slow + fast, began=0.0).rate == pytest.approx(1_000, rel=0.01)


def test_a_backlog_that_comes_in_one_request_is_counted_from_the_start() -> None:
    assert drain([(5.0, n, 0.0) for n in range(300)], began=2.0).rate == pytest.approx(100)


def test_bars_are_kept_by_the_worse_of_our_two_runs() -> None:
    kept = verdicts(GOOD)
    assert [round(figure.value, 2) for figure in kept] == [0.25, 0.25, 3.6]
    assert all(figure.is_kept for figure in kept)
    assert not any(figure.is_kept for figure in verdicts({**GOOD, AGAIN: measured(11, 29_000)}))
    assert sentence(kept[2]) == "saturation, against tuned Debezium: 3.60x: kept (bar >= 3)"


def test_without_the_peer_there_is_no_verdict() -> None:
    assert verdicts({OURS: GOOD[OURS]}) == []
    assert control({OURS: GOOD[OURS], TUNED: GOOD[TUNED]}) == []
    assert verdicts({OURS: Result((paced(10_000, 4),)), TUNED: GOOD[TUNED]}) == []


def test_the_control_says_how_far_equal_runs_lie_apart() -> None:
    assert [round(figure.value, 3) for figure in control(GOOD)] == [1.25, 1.25, 1.111]


def test_the_table_goes_by_rates_and_names_who_fell_behind() -> None:
    late = {**GOOD, DEFAULT: Result((paced(5_000, 900, rate=3_000),)), PLAIN: Result((paced(1_000, 250),))}
    lines = markdown(late).splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == ["1,000"] * 4 + ["5,000"] * 4 + ["backlog"] * 3
    assert [line.startswith("| Debezium, default") for line in lines if "(behind)" in line] == [True]


def test_a_writer_that_could_not_keep_up_is_not_held_against_the_contender() -> None:
    some = replace(paced(10_000, 5, rate=6_000), written=6_100)
    assert not some.is_behind
    assert "| 6,100 of 10,000 | 6,000 |" in markdown({OURS: Result((some,))})


def test_a_new_table_replaces_the_old_one_and_nothing_else() -> None:
    once = inserted(f"# Page\n{BEGIN}\nold\n{END}\nrest\n", fragment(GOOD, verdicts(GOOD), "a machine"))
    assert once.startswith(f"# Page\n{BEGIN}\n\nMeasured on a machine.\n\n| ")
    assert once.endswith(f"\n\n{END}\nrest\n")
    assert "old" not in once
    assert inserted(once, fragment(GOOD, verdicts(GOOD), "a machine")) == once
    with pytest.raises(ValueError, match="lacks"):
        inserted("# Page\n", "table")


def test_the_page_has_its_marks() -> None:
    page = PAGE.read_text()
    assert inserted(page, "x") != page
