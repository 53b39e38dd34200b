"""The checks of `doctor` for a webhook: the endpoint can be reached and is trusted; a probe sends an empty batch."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.finding import Check, Finding, failed, ok, warning
from penstock.formats.named import FORMATS
from penstock.sinks.webhook.certificate import end_of
from penstock.sinks.webhook.endpoint import Endpoint, parse
from penstock.sinks.webhook.redaction import redactor
from penstock.sinks.webhook.request import compressed, headers_with
from penstock.sinks.webhook.tls import explained

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline
    from penstock.sinks.webhook.sink import WebhookSink

SOON_DAYS = 14  # a certificate that ends sooner should be renewed
LISTENING = 0.5  # seconds to wait for a refusal of the client certificate
_RENEW = "renew it there"
_RENEW_OURS = "have it renewed, and put the new one, with its key, into the files of tls.cert and tls.key"


def checks(pipeline: Pipeline, *, probes: bool) -> Mapping[str, Check]:
    """The checks by name; the probe sends a request."""
    sink: WebhookSink = pipeline.sink  # type: ignore[assignment]
    found: dict[str, Check] = {"endpoint": partial(endpoint, sink)}
    return {**found, "probe": partial(probe, sink, pipeline.name)} if probes else found


def endpoint(sink: WebhookSink) -> Iterator[Finding]:
    """Connect, complete the TLS handshake, listen, and close; nothing is sent. Then check the client certificate."""
    yield from _reached(sink, parse(sink.url))
    if sink.tls.cert is not None:
        yield judged_own(sink.tls.cert, end_of(Path(sink.tls.cert).read_bytes()), datetime.now(UTC))


def _reached(sink: WebhookSink, place: Endpoint) -> Iterator[Finding]:
    try:
        with connected(sink, place) as line:
            until = _expiry(line) if isinstance(line, ssl.SSLSocket) else None
            if isinstance(line, ssl.SSLSocket):
                _listen(line)
    except OSError as error:
        yield judged_failure(place, error)
        return
    if until is not None:
        yield _judged_days(f"{place.shown} can be reached; its certificate", until, datetime.now(UTC), _RENEW)
    elif place.scheme == "https":
        yield warning("endpoint", f"{place.shown} answers, and its certificate is not checked", "remove tls.verify: false")
    else:
        yield ok("endpoint", f"{place.shown} can be reached")


def judged_failure(place: Endpoint, error: OSError) -> Finding:
    """The finding for a connection that failed."""
    where = f"{place.host}, port {place.port}"
    if isinstance(error, ssl.SSLError) and (said := explained(error)):
        return failed("endpoint", f"{where}: {said}", "see the keys below sink.tls, and the certificate there")
    if isinstance(error, ssl.SSLError):
        return failed(
            "endpoint", f"{where}: no TLS handshake: {error.reason or error}", "check whether sink.url must begin with http://"
        )
    if isinstance(error, socket.gaierror):
        return failed("endpoint", f"the name {place.host} is not known: {error.strerror}", "check the host in sink.url, and DNS")
    if isinstance(error, TimeoutError):
        return failed("endpoint", f"{where} does not answer", "check firewalls, and that the receiver runs")
    return failed("endpoint", f"{where}: {error.strerror or error}", "start the receiver, or correct sink.url")


def judged_own(path: str, until: datetime, now: datetime) -> Finding:
    """The finding for the end of the client certificate."""
    shown = f"the client certificate in {path}"
    if until <= now:
        return failed("endpoint", f"{shown} has expired: it ended at {until:%Y-%m-%d %H:%M:%S} UTC", _RENEW_OURS)
    return _judged_days(shown, until, now, _RENEW_OURS)


def _judged_days(shown: str, until: datetime, now: datetime, remedy: str) -> Finding:
    days = (until - now).days
    reason = f"{shown} ends in {days} days"
    return warning("endpoint", reason, remedy) if days < SOON_DAYS else ok("endpoint", reason)


def probe(sink: WebhookSink, pipeline: str) -> Iterator[Finding]:
    """POST a batch without changes, marked as a probe."""
    place = parse(sink.url)
    try:
        with connected(sink, place) as line:
            status = _posted(line, sink, place, pipeline)
    except ssl.SSLError as error:
        yield replace(judged_failure(place, error), check="probe")
    except (OSError, HTTPException) as error:
        yield failed("probe", f"no answer to an empty batch: {redactor(sink)(str(error))}", "see the receiver's own log")
    else:
        yield judged_answer(status)


def judged_answer(status: int) -> Finding:
    """The finding for the status of the answer to an empty batch."""
    said = f"status {status} to an empty batch"
    if 200 <= status < 300:
        return ok("probe", said)
    if status in (401, 403, 407):
        return failed("probe", said, "check the credentials")
    if 300 <= status < 400:
        return failed("probe", f"{said}: redirects are not followed", "write the final address into sink.url")
    if status in (404, 405, 410):
        return failed("probe", said, "check the path in sink.url")
    if status >= 500:
        return failed("probe", said, "see the receiver's own log")
    return warning("probe", said, "the receiver may refuse only batches without changes: see the receiver's own log")


@contextmanager
def connected(sink: WebhookSink, place: Endpoint) -> Iterator[socket.socket]:
    """A connection with the settings of deliveries."""
    with socket.create_connection((place.host, place.port), sink.timeout.total_seconds()) as plain:
        if place.scheme == "http":
            yield plain
            return
        with sink.tls.context().wrap_socket(plain, server_hostname=sink.tls.server_name or place.host) as line:
            yield line


def _listen(line: ssl.SSLSocket) -> None:
    """Raise a refusal of the client certificate: in TLS 1.3 it follows the handshake. Silence means acceptance."""
    line.settimeout(LISTENING)
    try:
        is_open = bool(line.recv(1))
    except TimeoutError:
        is_open = True
    except ConnectionError:
        is_open = False  # a reset can overtake its reason
    if not is_open:
        raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "closed after the handshake")


def _expiry(line: ssl.SSLSocket) -> datetime | None:
    """The end of the receiver's certificate; None if it was not verified."""
    facts = line.getpeercert()
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(facts["notAfter"])), UTC) if facts else None


def _posted(line: socket.socket, sink: WebhookSink, place: Endpoint, pipeline: str) -> int:
    form = FORMATS[sink.format](pipeline, service=sink.service_id)
    body = form.body(())
    own = {
        "Penstock-Probe": "1",
        "Host": place.authority,
        "Connection": "close",
        **(sink.signing.headers(f"probe-{uuid4()}", body) if sink.signing.secret else {}),
    }
    headers = headers_with(own, sink, form.content_type, pipeline)
    asking = HTTPConnection(place.host, place.port)
    asking.sock = line
    asking.request("POST", place.target, compressed(body, sink.compression), headers)
    with asking.getresponse() as answer:
        return answer.status
