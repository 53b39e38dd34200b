"""The proxy of the tests carries, whatever else its process has open."""

import os
import socket
from threading import Thread

from deadline import PATIENCE
from servers.proxy import Proxy

MANY = 1100  # more descriptors than `select` knows


def test_a_connection_is_carried_both_ways_though_a_thousand_descriptors_are_in_use():
    with socket.create_server(("127.0.0.1", 0)) as server, Proxy(server.getsockname()[1]) as proxy:
        taken = [os.dup(server.fileno()) for _ in range(MANY)]
        try:
            Thread(target=_echo, args=(server,), daemon=True).start()
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE) as client:
                client.sendall(b"there and back")
                assert client.recv(100) == b"there and back"
        finally:
            for descriptor in taken:
                os.close(descriptor)


def _echo(server):
    with server.accept()[0] as end:
        end.sendall(end.recv(100))
