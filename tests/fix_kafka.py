"""One Kafka broker for all tests that need one; a test that stops it starts it again. Topics are each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from penstock.coordinators.kafka import log
from penstock.testing.broker import Broker, Identity


@pytest.fixture(autouse=True)
def _let_go_of_states() -> Iterator[None]:
    """A process keeps its clients of a state for ever, thirty descriptors each, and nearly every test has a state of its own."""
    yield
    log._open.clear()


@pytest.fixture(scope="session")
def kafka_authority() -> trustme.CA:
    """Who vouches for the broker and for its clients."""
    return trustme.CA()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, kafka_authority: trustme.CA) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("kafka")
    with Broker(folder, identified(kafka_authority, folder)) as started:
        yield started


def identified(authority: trustme.CA, folder: Path) -> Identity:
    """A certificate for the loopback; its key as Java takes it."""
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    made = Identity(folder / "broker.pem", folder / "authority.pem")
    made.certificate.write_bytes(pkcs8 + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    authority.cert_pem.write_to_path(str(made.authority))
    return made
