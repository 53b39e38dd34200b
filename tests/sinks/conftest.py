import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from ending import Clock

from deadline import PATIENCE
from penstock.change import Lane
from penstock.delivery.driver import Driver
from penstock.errors import PenstockError
from penstock.event import Event
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.webhook import connection
from penstock.sinks.webhook.sink import WebhookSink
from penstock.testing.receiver import Receiver


class Told:
    """The events that a delivery told of."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def all(self, events: Sequence[Event]) -> None:
        for event in events:
            self(event)

    def await_events(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, PATIENCE), f"only {len(self.events)} events"


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that decides whether a request is late."""
    clock = Clock()
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=clock, time=time.time))
    return clock


@pytest.fixture
def deliver(told: Told) -> Iterator[Callable[..., Driver]]:
    """Open a delivery to a URL, with quick retries unless told otherwise."""
    opened: list[Driver] = []

    def deliver(url: str, *, previous: int | None = None, **settings: Any) -> Driver:
        quick = Retry(tries="forever", min=timedelta(milliseconds=1), max=timedelta(milliseconds=4))
        sink = WebhookSink(url=url, **{"retry": quick, "timeout": timedelta(seconds=PATIENCE), **settings})
        delivery = sink.open(Assignment("orders", Lane("main"), 7, 0, "cafe", previous, told))
        opened.append(delivery)
        return delivery

    yield deliver
    for delivery in opened:
        with suppress(PenstockError):
            delivery.close()


class _Answering(BaseHTTPRequestHandler):
    """Answers with what `verdict` says of a request: a status and a text."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, text = self.verdict()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Echo(_Answering):
    def verdict(self) -> tuple[int, str]:
        said = [self.path, *(self.headers.get(name, "") for name in ("Authorization", "X-Api-Key"))]
        return 404, f"cannot POST {' '.join(said)}"


@contextmanager
def _serving(handler: type[_Answering]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def echo() -> Iterator[str]:
    """The URL of a receiver that refuses everything, and says back what it was sent."""
    with _serving(_Echo) as url:
        yield url


class _Parrot(_Answering):
    """Says the credentials back in a header."""

    header: tuple[int, str, str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, name, text = self.header
        self.send_response(status)
        self.send_header(name, text.format(self.headers["Authorization"].partition(" ")[2]))
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def parrot() -> Iterator[Callable[[int, str, str], str]]:
    """Open a receiver that answers with this status and header, in which {} stands for the credentials; its URL."""
    with ExitStack() as opened:
        yield lambda *header: opened.enter_context(_serving(type("Parrot", (_Parrot,), {"header": header})))


@pytest.fixture
def locked() -> Iterator[Callable[[str], str]]:
    """Open a receiver that takes what comes with this header Authorization, and nothing else; its URL."""
    with ExitStack() as opened:

        def locked(key: str) -> str:
            class Locked(_Answering):
                def verdict(self) -> tuple[int, str]:
                    return (200, "") if self.headers["Authorization"] == key else (401, "who are you?")

            return opened.enter_context(_serving(Locked))

        yield locked
