"""Which secrets sign requests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from penstock import signature
from penstock.settings import settings


@settings
class Signing:
    """One secret, or several while receivers change from an old one to a new one: each signs every request."""

    secret: str | list[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.secret is not None and not self.secrets:
            raise ValueError("signing.secret is empty: give a secret, or remove the key")
        try:
            self.signer()
        except ValueError as error:
            raise ValueError(f"signing.secret {error}") from None

    @property
    def secrets(self) -> list[str]:
        """All of them."""
        return [self.secret] if isinstance(self.secret, str) else self.secret or []

    def signer(self) -> Signer | None:
        """What signs, if anything is to be signed."""
        return Signer([signature.key(secret) for secret in self.secrets]) if self.secrets else None


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs requests with all keys."""

    keys: list[bytes] = field(repr=False)

    def headers(self, name: str, body: bytes) -> dict[str, str]:
        """What signs this body, called so, now."""
        return signature.signed(self.keys, name, body, int(time.time()))
