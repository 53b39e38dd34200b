"""Sharing the interpreter between the caller of a delivery and its threads."""

from __future__ import annotations

import sys

_SWITCH_SECONDS = 0.00001


def share_interpreter() -> None:
    """Shorten the switch interval: by default a busy caller releases the interpreter to a thread with an answer only every 5 ms."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
