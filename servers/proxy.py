"""A TCP proxy that can be cut: for tests of what a network does to a connection."""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from threading import Event, Thread
from typing import Self

TICK = 0.02
ROOM = 1 << 16


class Proxy:
    """Carries bytes between a port of its own, by default a free one, and that of a server, each connection in a thread."""

    def __init__(self, port: int, host: str = "127.0.0.1", own: int = 0) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", own))
        self.port = int(self._listener.getsockname()[1])
        self._cut, self._closing = Event(), Event()
        self._sockets: set[socket.socket] = set()
        self._threads = [Thread(target=self._accept, daemon=True, name="proxy")]

    def cut(self) -> None:
        """Carry nothing any more, and tell nobody: connections stay open, new ones get no answer."""
        self._cut.set()

    def heal(self) -> None:
        """Carry again, also what has waited meanwhile."""
        self._cut.clear()

    def sever(self) -> None:
        """End all connections; new ones are carried."""
        for one in list(self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def altered(self, data: bytes) -> bytes:
        """What the server says, as the client is to hear it; for subclasses that lie."""
        return data

    def close(self) -> None:
        """End everything."""
        self._closing.set()
        self.sever()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            if _ready(self._listener) and not self._cut.is_set():
                client, _ = self._listener.accept()
                thread = Thread(target=self._carry, args=(client,), daemon=True, name="proxied")
                self._threads.append(thread)
                thread.start()

    def _carry(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._target) as server:
            ends = {client: server, server: client}
            self._sockets.update(ends)
            try:
                self._pump(client, server)
            finally:
                self._sockets.difference_update(ends)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        while not self._closing.is_set():
            ready = [] if self._cut.is_set() else _ready(client, server)
            if self._cut.is_set():
                self._closing.wait(TICK)
                continue
            for end in ready:
                if not (data := end.recv(ROOM)):
                    return
                (server if end is client else client).sendall(data if end is client else self.altered(data))


def _ready(*ends: socket.socket) -> list[socket.socket]:
    """Those with something to take, within a tick; by `poll`, since `select` knows no descriptor above 1023."""
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    told = {descriptor for descriptor, _ in poll.poll(TICK * 1000)}
    return [end for end in ends if end.fileno() in told]
