"""Sharing the interpreter between the caller of a delivery and its thread."""

from __future__ import annotations

import sys

_SWITCH_SECONDS = 0.00001


def share_interpreter() -> None:
    """Let a thread that asks for it after every answer have it soon: by default a busy caller gives it away every 5 ms."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
