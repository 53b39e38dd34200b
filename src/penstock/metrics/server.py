"""The HTTP server of `/metrics`, `/healthz` and `/livez`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from penstock.errors import ConfigInvalid
from penstock.event import Observer
from penstock.metrics.exposition import registry
from penstock.metrics.health import STALLED_SECONDS, ailment
from penstock.metrics.watch import Watch
from penstock.pipeline import Pipeline
from penstock.text import duration
from penstock.text.printable import as_json

_ADDRESS = re.compile(r"(?:(?P<host>\[[^\]]+\]|[^:\[\]]+):)?(?P<port>\d{1,5})")
_PATIENCE = 10.0  # seconds for a client to send its request


def address(text: str) -> tuple[str, int]:
    """Host and port of `[HOST:]PORT`; the default host is 127.0.0.1. Raises ConfigInvalid."""
    found = _ADDRESS.fullmatch(text)
    if not found or not 1 <= int(found["port"]) <= 65535:
        raise ConfigInvalid(f"metrics: {text!r} is not an address", "write PORT or HOST:PORT, such as 9464 or 0.0.0.0:9464")
    return (found["host"] or "127.0.0.1").strip("[]"), int(found["port"])


@contextmanager
def serving(pipelines: Sequence[Pipeline], at: str) -> Iterator[Observer]:
    """Serve metrics and health of these pipelines; the observer must receive all their events."""
    watch = Watch(pipelines)
    server = _listening(address(at), _handler(watch, registry(watch)))
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield watch.on_event
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _listening(at: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in at[0] else ThreadingHTTPServer.address_family

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exception(), OSError):  # an OSError: the client has closed the connection
                super().handle_error(request, client_address)

    try:
        return Server(at, handler)
    except OSError as error:
        raise ConfigInvalid(
            f"metrics: cannot listen on {at[0]}, port {at[1]}: {error.strerror}", "choose another address, or free this one"
        ) from error


def _handler(watch: Watch, served: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if asked.path == "/metrics":
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                self._answer(200, kind, encode(served))
            elif asked.path == "/healthz":
                self._answer_json(*health(watch, asked.query))
            elif asked.path == "/livez":
                self._answer_json(200, {"alive": True})
            else:
                self._answer_json(404, {"error": "use /metrics, /healthz or /livez"})

        def _answer_json(self, code: int, said: Mapping[str, object]) -> None:
            self._answer(code, "application/json", as_json(said).encode() + b"\n")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes arrive every few seconds."""

    return Handler


def health(watch: Watch, query: str = "") -> tuple[int, Mapping[str, object]]:
    """Status code and body of /healthz: 200 if all pipelines are healthy. `stalled=30s` sets the time limit for progress."""
    try:
        [patience] = parse_qs(query).get("stalled", [f"{STALLED_SECONDS:g}s"])
        seconds = duration.parse(patience).total_seconds()
    except ValueError as error:
        return 400, {"error": f"stalled: {error}"}
    found = {}
    for one in watch.sights():
        facts = {"state": one.tally.role, "epoch": one.status.epoch, "backlog": one.status.backlog}
        found[one.status.name] = {**facts, "reason": ailment(one, seconds), "trouble": one.trouble}
    is_well = not any(one["reason"] for one in found.values())
    return 200 if is_well else 503, {"healthy": is_well, "pipelines": found}
