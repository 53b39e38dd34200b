"""Functions that the tests of transforms name; workers import them from here."""

import ctypes
import json
import os
import signal
import threading
from dataclasses import replace


def spread(change):
    """Every third change vanishes, every third stays, of every third two are made, one of them for another table."""
    if change.position % 3 == 0:
        return None
    return (
        change
        if change.position % 3 == 1
        else [change, replace(change, table="audit", op="delete", before=change.after, after=None)]
    )


def twice_up_to_1500(change):
    """Doubles what it gets, until it cannot."""
    total = json.loads(change.after)["total"] if change.position < 1500 else {}["total"]
    return [change, replace(change, after=json.dumps({"twice": 2 * total}))]


def doubled_unless_large(change):
    """Makes two of each change; a large one would end its process."""
    if len(change.after) > 100_000:
        os._exit(7)
    return [change, change]


def rename_key(change):
    return replace(change, key="{}") if change.position == 1500 else replace(change, table="renamed", at=change.at + 1)


def refuse_bad(change):
    """Raises on what an expression before it has called bad."""
    if json.loads(change.after)["bad"]:
        raise ValueError("bad")
    return change


def refuse_1500(change):
    """Raises on one change; gives every other row another table, and of some makes a second one that stays."""
    if change.position == 1500:
        raise ValueError("refused")
    elsewhere = replace(change, table="elsewhere")
    return [elsewhere, change] if change.position % 5 == 0 else elsewhere


BAD = {1, 1500, 1501, 3000}


def exits(change):
    """Ends its process on the first change, two in the middle, and the last one."""
    if change.position in BAD:
        os._exit(7)
    return change


def crashes(change):
    """Reads where there is nothing."""
    if change.position == 1500:
        ctypes.string_at(0)
    return change


def is_killed(change):
    """Ends as if memory had run out."""
    if change.position == 1500:
        os.kill(os.getpid(), signal.SIGKILL)
    return change


def waits(change):
    """Sleeps for ever on one change."""
    if change.position == 1500:
        threading.Event().wait()
    return change


def hangs_in_c(change):
    """Never returns from C, and keeps every other thread of Python from running."""
    if change.position == 1500:
        ctypes.PyDLL(None).pause()
    return change
