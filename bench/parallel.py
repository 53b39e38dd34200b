"""How many changes a second arrive at a receiver that takes 5 ms for a request: one request at a time, and eight."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

from bench.rig import Figure, at_least, keep, penstock_run, row, shop, wait_until
from bench.saturation import last_position
from penstock.testing.receiver import ReceiverProcess
from penstock.testing.request import Request

SLOW, LINES, ROWS = 0.005, 8, 500


def measure() -> list[Figure]:
    """Each twice; the worse of the eight against the better of the one, so that chance counts against the bar."""
    ones, eights = [_run(1, 1, 2_000) for _ in range(2)], [_run(LINES, 1, 12_000) for _ in range(2)]
    batches = [_run(lines, 100, changes) for lines, changes in ((1, 150_000), (LINES, 300_000))]
    figures = [
        Figure("one request at a time, one change each", max(ones), "changes/s"),
        Figure("one request at a time, A/A", max(ones) / min(ones), "x"),
        Figure("eight at a time, one change each", min(eights), "changes/s"),
        Figure("eight at a time, A/A", max(eights) / min(eights), "x"),
        at_least("eight against one", min(eights) / max(ones), "x", 6),
        Figure("eight against one, batches of 100", batches[1] / batches[0], "x"),
    ]
    keep("parallel", figures, {"ones": ones, "eights": eights, "batches": batches})
    return figures


def _run(parallel: int, size: int, changes: int) -> float:
    """Counted at the receiver, between the first fifth and the end."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ReceiverProcess(folder / "requests", slow=SLOW) as receiver:
            sink = f"{{type: webhook, url: '{receiver.url}', parallel: {parallel}, batch: {{size: {size}}}}}"
            database = shop(folder, sink, ROWS)
            database.execute("begin")
            updates = ((*row(number)[1:], number % ROWS + 1) for number in range(changes))
            columns = "customer = ?, status = ?, total = ?, quantity = ?, note = ?, at = ?"
            database.executemany(f"update orders set {columns} where id = ?", updates)
            database.execute("commit")
            with penstock_run(folder):
                wait_until(lambda: last_position(folder / "requests") >= changes - LINES * size, 300, every=0.5)
            requests = receiver.requests
    arrived = [request.at for request in requests for _ in request.positions()][changes // 5 :]
    _check_order(requests)
    return len(arrived) / (arrived[-1] - arrived[0])


def _check_order(requests: list[Request]) -> None:
    rows = defaultdict(list)
    for request in requests:
        for change in request.changes():
            rows[change["key"]["id"]].append(change["position"])
    assert all(positions == sorted(set(positions)) for positions in rows.values()), "a row out of order"
