"""Names as the numbers on which Postgres takes advisory locks."""

from __future__ import annotations

import hashlib


def number_of(*names: object) -> int:
    """A number that identifies these names."""
    text = "\0".join(map(str, ("penstock", *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)
