"""A far side as its owner would build it: an HTTP server that asks `penstock.receiver` about every request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from threading import Thread
from typing import Any, Self

from penstock.receiver import MemoryStore, Receiver, Verdict
from penstock.testing.request import Request


@dataclass(frozen=True, slots=True)
class Judged:
    """A request, and what was said to it."""

    request: Request
    verdict: Verdict

    @property
    def epoch(self) -> int:
        """The term it was sent under."""
        return int(self.request.headers["penstock-epoch"])

    @property
    def is_accepted(self) -> bool:
        """Whether the far side has it."""
        return self.request.is_taken


class FarSide:
    """The server on a thread of its own; `judged` has every request in the order in which they were judged."""

    def __init__(self, receiver: Receiver | None = None) -> None:
        self.judged: list[Judged] = []
        self.url, self._receiver = "", receiver or Receiver(MemoryStore())

    def start(self) -> Self:
        """Listen."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        Thread(target=self._server.serve_forever, name="far side", daemon=True).start()
        return self

    def stop(self) -> None:
        """Listen no longer."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def requests(self) -> list[Request]:
        """Every request, taken or not."""
        return [one.request for one in list(self.judged)]

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Judge a request; nobody else is judged before it is noted."""
        with self._receiver.accepting(headers, body) as verdict:
            is_taken = verdict.status == 200
            request = Request(time.time(), 0, "/", headers, body, is_taken=is_taken, status=verdict.status)
            self.judged.append(Judged(request, verdict))
        return verdict.status

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        far_side = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = far_side.take({name.lower(): value for name, value in self.headers.items()}, body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


class Lenient(Receiver):
    """A receiver that does not look at epochs, for the oracles to find out."""

    def _judge(self, request: Any) -> Verdict:
        return self._by_lane(request)


def interleaved(judged: Sequence[Judged]) -> list[str]:
    """Where an epoch was accepted behind a later one: at any time there is one whose requests are taken."""
    taken = [one for one in judged if one.is_accepted]
    return [
        f"epoch {after.epoch} was accepted at {after.request.at:.3f}, behind epoch {before.epoch}"
        for before, after in pairwise(taken)
        if after.epoch < before.epoch
    ]


def foreign(judged: Sequence[Judged], epoch: int) -> list[str]:
    """What was accepted under another number than that of the term."""
    return [f"epoch {one.epoch} was accepted in term {epoch}" for one in judged if one.is_accepted and one.epoch != epoch]


def late(judged: Sequence[Judged]) -> list[Judged]:
    """What came of an epoch that was over, and was refused."""
    return [one for one in judged if one.verdict.status == 409 and "is over" in one.verdict.reason]
