"""The secrets that sign requests."""

from __future__ import annotations

import time
from dataclasses import field

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
            self._keys()
        except ValueError as error:
            raise ValueError(f"signing.secret {error}") from None

    @property
    def secrets(self) -> list[str]:
        """All secrets; none: requests are not signed."""
        return [self.secret] if isinstance(self.secret, str) else self.secret or []

    def headers(self, name: str, body: bytes) -> dict[str, str]:
        """The headers that sign this body at this moment; `name` becomes the webhook-id."""
        return signature.signed(self._keys(), name, body, int(time.time()))

    def _keys(self) -> list[bytes]:
        return [signature.key(secret) for secret in self.secrets]
