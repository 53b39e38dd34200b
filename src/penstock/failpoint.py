"""Named places where a test may stop or kill a process; inert unless PENSTOCK_FAILPOINTS names a folder.

A file of a point's name in that folder arms it: its text is `kill` or `pause`; a pause lasts until the file is gone, and whoever
pauses says so by a line with the number of its process in `POINT.reached`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_folder = os.environ.get("PENSTOCK_FAILPOINTS")

POINTS = (
    "reader.read",
    "reader.yielded",
    "writer.claiming",
    "writer.claimed",
    "sink.sending",
    "sink.sent",
    "sink.purging",
    "writer.parking",
    "writer.parked",
    "writer.advancing",
    "writer.advanced",
    "source.settling",
)


def reach(point: str) -> None:
    """Say that the code has come to this point."""
    if _folder:
        _obey(Path(_folder, point))


def _obey(order: Path) -> None:
    try:
        deed = order.read_text()
        if deed == "kill":
            order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    except FileNotFoundError:
        return
    with order.with_name(f"{order.name}.reached").open("a") as reached:
        reached.write(f"{os.getpid()}\n")
    while order.exists():
        time.sleep(0.005)
