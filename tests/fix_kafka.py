"""One Kafka broker for all tests that need one, and one to stop, kill and cut off. Topics are each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fix_servers import mended, shared
from penstock.coordinators.kafka import log
from servers.broker import Broker, Identity


@pytest.fixture(autouse=True)
def _let_go_of_states() -> Iterator[None]:
    """A process keeps its clients of a state for ever, thirty descriptors each, and nearly every test has a state of its own."""
    yield
    log._open.clear()


def start_broker(folder: Path) -> Broker:
    """A broker with TLS; its authority is kept beside it, for clients' certificates."""
    folder.mkdir()
    authority = trustme.CA()
    authority.private_key_pem.write_to_path(str(folder / "authority.key"))
    return Broker(folder, identified(authority, folder))


@pytest.fixture(scope="session")
def broker() -> Broker:
    """The broker that all workers share; no test stops it."""
    found: Broker = shared("kafka", start_broker)
    return found


@pytest.fixture(scope="session")
def breakable_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker to stop, kill, pause and cut off; each test leaves it running, and if one fails, it is brought back."""
    with start_broker(tmp_path_factory.mktemp("breakable") / "kafka") as started:

        def mend() -> None:
            started.resume()
            if started._process is None or started._process.poll() is not None:
                started.start()

        with mended("breakable_broker", mend):
            yield started


@pytest.fixture(scope="session")
def kafka_authority(broker: Broker) -> trustme.CA:
    """The authority of the shared broker's certificate and of its clients'."""
    kept = broker.folder
    return trustme.CA.from_pem((kept / "authority.pem").read_bytes(), (kept / "authority.key").read_bytes())


def identified(authority: trustme.CA, folder: Path) -> Identity:
    """A certificate for the loopback; its key as Java takes it."""
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    made = Identity(folder / "broker.pem", folder / "authority.pem")
    made.certificate.write_bytes(pkcs8 + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    authority.cert_pem.write_to_path(str(made.authority))
    return made
