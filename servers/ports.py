"""Ports for servers that are started a while after theirs were chosen."""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack

_FIRST, _EACH, _PROCESSES = 15_000, 277, 64
"""Below those that systems give to clients by themselves; processes started one after the other choose among different ones."""


def free_port() -> int:
    """A free port of the loopback."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """This many different ports."""
    with ExitStack() as held:
        return [_bound(held.enter_context(socket.socket())) for _ in range(count)]


def _bound(one: socket.socket) -> int:
    first = _FIRST + os.getpid() % _PROCESSES * _EACH
    for port in random.SystemRandom().sample(range(first, first + _EACH), _EACH):
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise OSError(f"all ports of the loopback from {first} to {first + _EACH - 1} are taken")
