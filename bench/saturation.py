"""How many changes a second arrive over HTTP when there are always more: batches of 100, and one change a request."""

from __future__ import annotations

import tempfile
from pathlib import Path

import orjson

from bench.rig import Figure, at_least, keep, penstock_run, row, shop, wait_until
from penstock.testing.receiver import ReceiverProcess


def measure() -> list[Figure]:
    """Each twice; the better one counts, the spread is printed."""
    batches, singles = [run(300_000, 100) for _ in range(2)], [run(20_000, 1) for _ in range(2)]
    figures = [
        at_least("batches of 100", max(batches), "changes/s", 20_000),
        Figure("batches of 100, A/A", max(batches) / min(batches), "x"),
        at_least("one change a request", max(singles), "changes/s", 1_500),
        Figure("one change a request, A/A", max(singles) / min(singles), "x"),
    ]
    keep("saturation", figures, {"batches": batches, "singles": singles})
    return figures


def run(changes: int, size: int, **environment: str) -> float:
    """Changes per second, counted at the receiver, between the first fifth and the end."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ReceiverProcess(folder / "requests") as receiver:
            database = shop(folder, f"{{type: webhook, url: '{receiver.url}', batch: {{size: {size}}}}}")
            database.execute("begin")
            database.executemany("insert into orders values (?,?,?,?,?,?,?)", (row(number) for number in range(1, changes + 1)))
            database.execute("commit")
            with penstock_run(folder, **environment):
                wait_until(lambda: last_position(folder / "requests") >= changes, 180, every=0.5)
            arrived = [(request.at, position) for request in receiver.requests for position in request.positions()]
    assert [position for _, position in arrived] == list(range(1, changes + 1))
    counted = arrived[changes // 5 :]
    return len(counted) / (counted[-1][0] - counted[0][0])


def last_position(out: Path) -> int:
    """Of the last line only, so that the receiver is not disturbed."""
    lines = _tail(out, 200_000).split(b"\n")
    return orjson.loads(lines[-2])["body"]["changes"][-1]["position"] if len(lines) > 2 else 0


def _tail(out: Path, size: int) -> bytes:
    if not out.exists():
        return b""
    with out.open("rb") as lines:
        lines.seek(max(0, out.stat().st_size - size))
        return lines.read()
