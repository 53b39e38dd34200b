"""Advisory locks: their numbers, and the lives that they prove."""

from __future__ import annotations

import hashlib

ALIVE = "case when seat is not null then not pg_try_advisory_xact_lock_shared(seat) end"
"""Whether the session in this seat, which is the number of its lock, lives. Observers share the lock for that moment."""


def number_of(*names: object) -> int:
    """The number of the lock with these names."""
    text = "\0".join(map(str, ("penstock", *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)
