"""An HTTP server on a loopback port that receives webhooks, records them, and fails as its dials demand.

    with Receiver() as receiver:
        ...  # deliver to receiver.url
        receiver.wait_for(lambda: len(receiver.changes()) == 3, within=5)

`python -m penstock.testing.receiver --out FILE` is the same as a separate process, with a line of JSON for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from threading import TIMEOUT_MAX, Condition, Thread
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import urlsplit

import orjson
from httptools import HttpRequestParser

from penstock.testing.dials import Dials, Reaction, judge
from penstock.testing.request import Record, Request, line_of

_DIALS_PATH = "/_dials"
_TURN_SECONDS = 900.0
_BEGIN = b'{"position":'


class Receiver:
    """The server, on its own thread, from `start` to `stop` or as a context manager."""

    def __init__(self, port: int = 0, *, tls: ssl.SSLContext | None = None, out: Path | None = None, **dials: Any) -> None:
        self.port, self.connections, self._tls = port, 0, tls
        self.dials, self._random = Dials(), Random(0)
        self._requests: list[Request] = []
        self._positions: set[int] = set()
        self._held: list[tuple[Request, Callable[[Request], None]]] = []
        self._answers: list[Callable[[], None]] = []
        self._out = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if out else None
        self._changed = Condition()
        self._open: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="receiver", daemon=True)
        self.turn(**dials)

    @property
    def url(self) -> str:
        """The URL for deliveries."""
        return f"https://localhost:{self.port}/" if self._tls else f"http://127.0.0.1:{self.port}/"

    def turn(self, **dials: Any) -> None:
        """Set these dials; the others stay."""
        with self._changed:
            self.dials = replace(self.dials, **dials)
            if "seed" in dials:
                self._random = Random(self.dials.seed)
            answers, self._answers = (self._answers, []) if "holds_answers" in dials else ([], self._answers)
        for answer in answers:
            self._loop.call_soon_threadsafe(answer)
        if not self.dials.holds:
            self.release()

    @property
    def held(self) -> list[Request]:
        """The held requests, in the order of arrival."""
        with self._changed:
            return [request for request, _ in self._held]

    def hold(self, request: Request, react: Callable[[Request], None]) -> None:
        """Hold a request until it is released; react at once if holding ended meanwhile."""
        with self._changed:
            if is_held := self.dials.holds:
                self._held.append((request, react))
                self._changed.notify_all()
        if not is_held:
            react(request)

    def release(self) -> None:
        """Continue with the requests that are held now."""
        with self._changed:
            held, self._held = self._held, []
        for request, react in held:
            self._loop.call_soon_threadsafe(react, request)

    def respond(self, status: int, answer: Callable[[], None]) -> None:
        """Send an answer of this status: now, or when the dial that holds it is set again."""
        with self._changed:
            if status in self.dials.holds_answers:
                self._answers.append(answer)
                return
        answer()

    @property
    def requests(self) -> list[Request]:
        """All requests in the order of arrival, accepted or not. Not kept if they are written to a file."""
        with self._changed:
            return list(self._requests)

    def changes(self) -> list[dict[str, Any]]:
        """The accepted changes, in the order of acceptance, with repeats."""
        return [change for request in self.requests if request.is_taken for change in request.changes()]

    def wait_for(self, condition: Callable[[], bool], within: float) -> None:
        """Wait until the condition holds. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(condition, within):
                raise TimeoutError(f"not within {within} s; {len(self._requests)} requests arrived")

    def reset(self) -> None:
        """Forget all requests; the dials stay."""
        with self._changed:
            self._requests.clear()
            self._positions.clear()

    def hang_up(self) -> None:
        """Close every open connection."""
        asyncio.run_coroutine_threadsafe(self._abort(), self._loop).result()

    def start(self) -> Self:
        """Listen; from here on `port` is set."""
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port, ssl=self._tls)
        )
        self._server, self.port = server, server.sockets[0].getsockname()[1]
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close everything."""
        self._loop.call_soon_threadsafe(self._server.close)
        self.hang_up()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._out is not None:
            os.close(self._out)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _abort(self) -> None:
        for transport in self._open:
            transport.abort()
        while self._open:
            await asyncio.sleep(0)

    def opened(self, transport: asyncio.Transport) -> int:
        """Register a connection; its number."""
        self._open.add(transport)
        with self._changed:
            self.connections += 1
            self._changed.notify_all()
        return self.connections

    def closed(self, transport: asyncio.Transport) -> None:
        """Remove a connection."""
        self._open.discard(transport)

    def take(self, request: Request) -> Reaction:
        """Decide about a request and record it, before any answer."""
        dials, content = self.dials, request.content
        places = [found.start() for found in re.finditer(re.escape(dials.poison).encode(), content)] if dials.poison else []
        verdict = judge(replace(dials, fail_rate=1.0) if places else dials, self._random.random())
        if dials.script:
            self.turn(script=dials.script[1:])
        if dials.largest is not None and len(request.body) > dials.largest:
            verdict = Reaction(False, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if verdict.is_taken and dials.refuses_repeats:
            positions = set(request.positions())
            if positions & self._positions:
                verdict = Reaction(False, HTTPStatus.CONFLICT)
            else:
                self._positions |= positions
        verdict = verdict._replace(refused=_named(content, places) if dials.names_poison else [])
        record = replace(
            request, is_taken=verdict.is_taken, status=verdict.status, refused=verdict.refused if verdict.is_taken else ()
        )
        if self._out is not None:
            os.writev(self._out, line_of(record, content))
        with self._changed:
            if self._out is None:
                self._requests.append(record)
            self._changed.notify_all()
        return verdict


def _named(content: bytes, places: Collection[int]) -> list[int]:
    """The positions of the changes around these offsets, found without parsing."""
    found = (content.rfind(_BEGIN, 0, place) for place in places)
    begins = [at + len(_BEGIN) for at in found if at >= 0]
    return list(dict.fromkeys(int(content[begin : content.index(b",", begin)]) for begin in begins))


class _Connection(asyncio.Protocol):
    """Parses the requests of one connection."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver, self._parser, self._served = receiver, HttpRequestParser(self), 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._number = transport, self._receiver.opened(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._receiver.closed(self._transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = b"", dict[str, str](), bytearray()

    def on_url(self, piece: bytes) -> None:
        self._path += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self._body += piece

    def on_message_complete(self) -> None:
        self._come(Request(time.time(), self._number, self._path.decode("latin-1"), self._headers, bytes(self._body)))

    def _come(self, request: Request) -> None:
        dials, self._served = self._receiver.dials, self._served + 1
        if request.path == _DIALS_PATH:
            self._receiver.turn(**orjson.loads(request.body))
            self._answer(HTTPStatus.NO_CONTENT)
        elif dials.drops_kept and self._served > 1:
            self._transport.abort()
        elif dials.holds:
            self._receiver.hold(request, self._react)
        elif dials.slow:
            asyncio.get_running_loop().call_later(dials.slow, self._react, request)
        else:
            self._react(request)

    def _react(self, request: Request) -> None:
        verdict = self._receiver.take(request)
        if verdict.is_closed:
            self._transport.close()
        elif verdict.status is not None:
            named = {"Penstock-Refused": " ".join(map(str, verdict.refused))} if verdict.refused else {}
            self._receiver.respond(verdict.status, partial(self._answer, verdict.status, named))

    def _answer(self, status: int, more: Mapping[str, str] = MappingProxyType({})) -> None:
        given = {**self._receiver.dials.headers, **more}
        headers = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self._transport.write(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Length: 0\r\n{headers}\r\n".encode())


class ReceiverProcess:
    """The receiver as a separate process, which ends with its parent."""

    def __init__(self, out: Path, port: int = 0, **dials: Any) -> None:
        self.out, self.url = out, ""
        self._port, self._dials = port, dials
        self._record = Record(out)

    def start(self) -> Self:
        """Start, and wait until it listens."""
        options = ["--with-parent", f"--port={self._port}", f"--out={self.out}"]
        command = [sys.executable, "-m", "penstock.testing.receiver", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()
        self.turn(**self._dials)
        return self

    def turn(self, **dials: Any) -> None:
        """Set these dials; the others stay."""
        with closing(HTTPConnection(urlsplit(self.url).netloc, timeout=_TURN_SECONDS)) as connection:
            connection.request("POST", _DIALS_PATH, orjson.dumps(dials))
            connection.getresponse()

    @property
    def requests(self) -> list[Request]:
        """The requests written so far."""
        return self._record.requests()

    def stop(self) -> None:
        """Kill it, if it is alive."""
        with self.process:
            self.process.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> None:
    """Receive until stopped; the first line of output is the URL."""
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.receiver", description="A receiver of webhooks, for tests.")
    parser.add_argument("--port", type=int, default=0, help="0, the default, for any free port")
    parser.add_argument("--out", type=Path, required=True, help="a file that gets a line of JSON for each request")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    options = parser.parse_args()
    with Receiver(options.port, out=options.out) as receiver, suppress(KeyboardInterrupt):
        sys.stdout.write(receiver.url + "\n")
        sys.stdout.flush()
        if options.with_parent:
            sys.stdin.read()
        else:
            receiver.wait_for(lambda: False, within=TIMEOUT_MAX)


if __name__ == "__main__":
    main()
