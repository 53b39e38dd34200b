"""What must never show: an endpoint may say back to us what we sent, and its answers are in errors and logs."""

from __future__ import annotations

import html
import json
from urllib.parse import quote, unquote, urlsplit

from penstock.sinks.webhook.sink import WebhookSink


class Hider:
    """Takes secrets out of texts."""

    def __init__(self, sink: WebhookSink) -> None:
        # The longest first, so that no part of one is left standing.
        self._secrets = sorted(
            {spelled for secret in _secrets(sink) if secret for spelled in _spellings(secret)}, key=len, reverse=True
        )

    def __call__(self, text: str) -> str:
        """This text with stars in the place of secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _secrets(sink: WebhookSink) -> list[str]:
    parts, auth = urlsplit(sink.url), sink.auth
    query = [parts.query, *(pair.split("=", 1)[-1] for pair in parts.query.split("&"))]
    passwords = [parts.password or "", auth.basic.password or "", auth.bearer or ""]
    return [*query, *passwords, *sink.headers.values(), *sink.signing.secrets, (sink.authorization or "").rpartition(" ")[2]]


def _spellings(secret: str) -> set[str]:
    """How a page, a document or a URL would write it."""
    plain = unquote(secret)
    return {
        secret,
        plain,
        quote(plain, safe=""),
        *(way for one in (secret, plain) for way in (html.escape(one), json.dumps(one)[1:-1])),
    }
