"""Removal of secrets from texts: an endpoint may return parts of a request, and errors and logs quote its answers."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from functools import reduce
from urllib.parse import quote, unquote, urlsplit

from penstock.signature import PREFIX
from penstock.sinks.webhook.settings import WebhookSettings


def redactor(sink: WebhookSettings) -> Callable[[str], str]:
    """A function that puts stars in place of the secrets of these settings."""
    found = {spelled for secret in _secrets(sink) for spelled in _spellings(secret) if spelled}
    secrets = sorted(found, key=len, reverse=True)  # the longest first: a secret may contain another one
    return lambda text: reduce(lambda shown, secret: shown.replace(secret, "***"), secrets, text)


def _secrets(sink: WebhookSettings) -> list[str]:
    parts, auth = urlsplit(sink.url), sink.auth
    query = [parts.query, *(pair.split("=", 1)[-1] for pair in parts.query.split("&"))]
    passwords = [parts.password or "", auth.basic.password or "", auth.bearer or ""]
    signing = [part for secret in sink.signing.secrets for part in (secret, secret.removeprefix(PREFIX))]
    return [*query, *passwords, *sink.headers.values(), *signing, *_credentials(sink)]


def _credentials(sink: WebhookSettings) -> list[str]:
    """The value of the header Authorization without its scheme, from any setting, and the password in a basic one."""
    given = next((value for name, value in sink.headers.items() if name.lower() == "authorization"), sink.authorization or "")
    scheme, _, said = given.partition(" ")
    return [said.strip(), _password(said) if scheme.lower() == "basic" else ""]


def _password(basic: str) -> str:
    try:
        return base64.b64decode(basic).decode().partition(":")[2]
    except ValueError:
        return ""


def _spellings(secret: str) -> set[str]:
    """The secret as HTML, JSON or a URL spells it, and without its unprintable characters."""
    plain = unquote(secret)
    return {
        secret,
        plain,
        quote(plain, safe=""),
        "".join(filter(str.isprintable, secret)),
        *(way for one in (secret, plain) for way in (html.escape(one), json.dumps(one)[1:-1])),
    }
