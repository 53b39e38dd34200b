"""Named points at which a test can pause or kill a process; inert unless PENSTOCK_FAILPOINTS names a folder.

A file with the name of a point and the text `kill` or `pause` arms it. A pause lasts until the file is removed; the process
appends its number to `POINT.reached`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_folder = os.environ.get("PENSTOCK_FAILPOINTS")


def reach(point: str) -> None:
    """Pause or die here, if this point is armed."""
    if not _folder:
        return
    order = Path(_folder, point)
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
