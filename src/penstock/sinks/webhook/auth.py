"""The header Authorization, from keys of the pipeline file."""

from __future__ import annotations

import base64
import re
from dataclasses import field

from penstock.settings import settings

_TOKEN = re.compile(r"[!-~]+")


@settings
class Basic:
    """A user and a password."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            missing = "user" if self.user is None else "password"
            raise ValueError(f"auth.basic.{missing} is missing: give user and password")
        if ":" in (self.user or ""):
            raise ValueError("auth.basic.user has a colon, which ends the name of a user: use another user")
        if not (self.user or "").isprintable() or not (self.password or "").isprintable():
            raise ValueError("auth.basic has a character that cannot be seen: was a line break copied with the password?")


@settings
class Auth:
    """One way to authenticate, or none."""

    basic: Basic = Basic()
    bearer: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.bearer is not None and self.basic.user is not None:
            raise ValueError("auth.basic and auth.bearer are both given: keep one")
        if self.bearer is not None and not _TOKEN.fullmatch(self.bearer):
            raise ValueError("auth.bearer is empty or has a blank, a line break or another character that a token cannot hold")

    @property
    def header(self) -> str | None:
        """The value of the header Authorization."""
        if self.bearer is not None:
            return f"Bearer {self.bearer}"
        if self.basic.user is not None and self.basic.password is not None:
            return basic(self.basic.user.encode(), self.basic.password.encode())
        return None


def basic(user: bytes, password: bytes) -> str:
    """The header for a user and a password."""
    return "Basic " + base64.b64encode(user + b":" + password).decode()
