"""The further headers of the pipeline file, and their limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?")
_OURS = re.compile(r"penstock-.*|webhook-.*|idempotency-key|user-agent|content-(type|length|encoding)")
_OF_HTTP = re.compile(r"host|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect|accept-encoding|proxy-.*")


def complaints(headers: Mapping[str, str]) -> Iterator[str]:
    """One complaint for each header that cannot be sent. Values are not quoted: they may be secret."""
    seen: set[str] = set()
    for name, value in headers.items():
        if said := _complaint(name, value, name.lower() in seen):
            yield f"headers.{name if _NAME.fullmatch(name) else repr(name)} {said}"
        seen.add(name.lower())


def _complaint(name: str, value: str, is_again: bool) -> str | None:
    if not _NAME.fullmatch(name):
        return "is not the name of a header: use letters, digits and -"
    if _OURS.fullmatch(name.lower()):
        return "is written by Penstock itself: remove it"
    if _OF_HTTP.fullmatch(name.lower()):
        return "belongs to the connection, not to the request: remove it"
    if is_again:
        return "is given twice, in different cases: keep one"
    if not _VALUE.fullmatch(value):
        return (
            "is empty, begins or ends with a blank, or has a line break or a character beyond ASCII: "
            "a header cannot hold that; encode the value, or remove the header"
        )
    return None
