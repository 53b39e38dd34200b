"""Further headers of a user's choice: which are possible."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?")
_OURS = re.compile(r"penstock-.*|webhook-.*|idempotency-key|user-agent|content-(type|length|encoding)")
_OF_HTTP = re.compile(r"host|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect|accept-encoding|proxy-.*")


def check(headers: Mapping[str, str]) -> None:
    """Raise ValueError for one that cannot be sent. Values are not quoted: they may be secret."""
    seen: set[str] = set()
    for name, value in headers.items():
        _check_name(name)
        if name.lower() in seen:
            raise ValueError(f"headers.{name} is given twice, in different cases: keep one")
        seen.add(name.lower())
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"headers.{name} is empty, begins or ends with a blank, or has a line break or a character beyond ASCII: "
                "a header cannot hold that; encode the value, or remove the header"
            )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"headers.{name!r} is no name of a header: use letters, digits and -")
    if _OURS.fullmatch(name.lower()):
        raise ValueError(f"headers.{name} is written by Penstock itself: remove it")
    if _OF_HTTP.fullmatch(name.lower()):
        raise ValueError(f"headers.{name} belongs to the connection, not to the request: remove it")


def has_authorization(headers: Mapping[str, str]) -> bool:
    """Whether they authenticate."""
    return "authorization" in map(str.lower, headers)
