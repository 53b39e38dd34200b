"""What must never show: an endpoint may say back to us what we sent, and its answers are in errors and logs."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.sinks.webhook.sink import WebhookSink


class Hider:
    """Takes secrets out of texts."""

    def __init__(self, sink: WebhookSink) -> None:
        # The longest first, so that no part of one is left standing.
        self._secrets = sorted(filter(None, set(_secrets(sink))), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """This text with stars in the place of secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _secrets(sink: WebhookSink) -> list[str]:
    parts, auth = urlsplit(sink.url), sink.auth
    query = [parts.query, unquote(parts.query), *(value for _, value in parse_qsl(parts.query))]
    passwords = [parts.password or "", unquote(parts.password or ""), auth.basic.password or "", auth.bearer or ""]
    return [*query, *passwords, *sink.headers.values(), *sink.signing.secrets, (sink.authorization or "").rpartition(" ")[2]]
