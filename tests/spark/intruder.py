"""A stranger on the same host: what Spark's ports give to one who has no secret."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import psutil

from deadline import PATIENCE

_CHUNK_REQUEST, _CHUNK, _RPC_REQUEST, _RPC_RESPONSE = 0, 1, 3, 4
_OPEN_BLOCKS = 0


def ports(process: psutil.Process) -> list[int]:
    """The TCP ports on which a process listens."""
    return [one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]


def blocks(port: int, most: int = 30) -> Iterator[bytes]:
    """The broadcast blocks that a port gives away: each is opened and fetched as an executor of Spark does it."""
    for number in range(most):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            if block := _fetched(connection, f"broadcast_{number}_piece0"):
                yield block


def _fetched(connection: socket.socket, block: str) -> bytes | None:
    application = _text("app\n")  # a gateway of py4j reads lines, and answers this one
    opening = struct.pack(">b", _OPEN_BLOCKS) + application + _text("driver") + struct.pack(">i", 1) + _text(block)
    connection.sendall(_frame(_RPC_REQUEST, struct.pack(">qi", 7, len(opening)) + opening))
    kind, body = _received(connection)
    if kind != _RPC_RESPONSE:
        return None
    stream = struct.unpack(">q", body[13:21])[0]  # after the number of the request, a size, and the type of the answer
    connection.sendall(_frame(_CHUNK_REQUEST, struct.pack(">qi", stream, 0)))
    kind, body = _received(connection)
    return body[12:] if kind == _CHUNK else None


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def _frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">qb", 9 + len(body), kind) + body


def _received(connection: socket.socket) -> tuple[int, bytes]:
    """The type and the rest of an answer; no type where there is none."""
    data = b""
    while len(data) < 8 or len(data) < struct.unpack(">q", data[:8])[0]:
        more = connection.recv(1 << 16)
        if not more:
            return -1, b""
        data += more
    return data[8], data[9:]
