"""A process that campaigns, leads for a moment, and then resigns, leaves or dies, again and again; it notes every term it had.

Two leaders at once would both want the kernel's lock on the same file: the second notes `twice`.
"""

from __future__ import annotations

import base64
import faulthandler
import fcntl
import os
import pickle
import random
import sys
import time
from typing import Any

from penstock.coordinators.sqlite import store


def _lead(candidate: Any, epoch: int, notes: int, arena: str, rounds: random.Random) -> None:
    with open(arena, "w") as place:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.write(notes, b"twice\n")
        os.write(notes, f"{epoch}\n".encode())
        for _ in range(rounds.randrange(4)):
            candidate.renew()
        if rounds.random() < 0.03:
            os.kill(os.getpid(), 9)
    candidate.resign()


def main() -> None:
    faulthandler.dump_traceback_later(900, exit=True)  # whoever does not end says where it was
    store.PATIENCE = 900.0  # one of them may be stopped while it writes
    coordinator, seconds, terms, seed, folder = pickle.loads(base64.b64decode(sys.argv[1]))
    rounds, end = random.Random(seed), time.monotonic() + seconds
    notes = os.open(f"{folder}/notes", os.O_APPEND | os.O_CREAT | os.O_RDWR)
    candidate = coordinator.candidate("p", f"contender {seed}")
    while time.monotonic() < end or os.pread(notes, 1 << 16, 0).count(b"\n") <= terms:
        if term := candidate.campaign():
            _lead(candidate, term.epoch, notes, f"{folder}/arena", rounds)
        else:
            time.sleep(rounds.random() / 500)


if __name__ == "__main__":
    main()
