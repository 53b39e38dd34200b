"""A process that campaigns, leads for a moment, and then resigns or dies, until there were enough terms; it notes each.

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
from contextlib import closing
from typing import Any

from penstock.coordinators.sqlite import store


def _lead(candidate: Any, epoch: int, notes: int, arena: str, rounds: random.Random, is_mortal: bool) -> None:
    with open(arena, "w") as place:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.write(notes, b"twice\n")
        os.write(notes, f"{epoch}\n".encode())
        for _ in range(rounds.randrange(4)):
            candidate.renew()
        if is_mortal and rounds.random() < 0.03:
            os.kill(os.getpid(), 9)
    candidate.resign()


def main() -> None:
    faulthandler.dump_traceback_later(900, exit=True)  # shows where a process hangs
    store.PATIENCE = 900.0  # one of them may be stopped while it writes
    coordinator, terms, seed, folder = pickle.loads(base64.b64decode(sys.argv[1]))
    rounds = random.Random(seed)
    notes = os.open(f"{folder}/notes", os.O_APPEND | os.O_CREAT | os.O_RDWR)
    with closing(coordinator.candidate("p", f"contender {seed}")) as candidate:
        while os.pread(notes, 1 << 16, 0).count(b"\n") < terms:
            if term := candidate.campaign():
                _lead(candidate, term.epoch, notes, f"{folder}/arena", rounds, is_mortal=seed > 0)  # one gets them to the end
            else:
                time.sleep(rounds.random() / 500)


if __name__ == "__main__":
    main()
