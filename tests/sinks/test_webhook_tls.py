"""Webhooks over https: the system's authorities, or one's own through SSL_CERT_FILE."""

import ssl
from datetime import timedelta

import pytest
import trustme

from penstock.change import Change, Op, to_batch
from penstock.errors import DeliveryExhausted
from penstock.retry import Retry
from penstock.sinks.webhook import Batch
from penstock.testing.receiver import Receiver

ONCE = Retry(tries=1)
CHANGE = to_batch([Change(1, Op.INSERT, "orders", '{"id":1}', None, '{"id":1}')])


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def listening(authority, *names):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return Receiver(tls=context)


@pytest.fixture
def trusting(authority, tmp_path, monkeypatch):
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


@pytest.mark.usefixtures("trusting")
def test_https_delivers_over_one_connection(authority, deliver):
    with listening(authority, "localhost") as receiver:
        delivery = deliver(receiver.url)
        for _ in range(3):
            delivery.offer(CHANGE, wait=1)
            assert delivery.drain(10)
        assert len(receiver.changes()) == 3
        assert receiver.connections == 1
        delivery.close()


@pytest.mark.usefixtures("trusting")
def test_https_delivers_over_several_connections_at_once(authority, deliver):
    with listening(authority, "localhost") as receiver:
        receiver.turn(slow=0.02)
        delivery = deliver(receiver.url, parallel=3, batch=Batch(size=1))
        delivery.offer(to_batch(Change(n, Op.INSERT, "orders", f'{{"id":{n}}}', None, "{}") for n in range(1, 31)), wait=1)
        assert delivery.drain(30)
        assert len(receiver.changes()) == 30
        assert receiver.connections == 3
        delivery.close()


def test_a_certificate_of_an_unknown_authority_is_refused_and_the_way_out_named(authority, deliver):
    with listening(authority, "localhost") as receiver:
        delivery = deliver(receiver.url, retry=ONCE)
        delivery.offer(CHANGE, wait=1)
        with pytest.raises(DeliveryExhausted, match=r"its certificate is not trusted: .* \(SSL_CERT_FILE may name"):
            delivery.drain(10)
        assert not receiver.requests


@pytest.mark.usefixtures("trusting")
def test_a_certificate_for_another_host_is_refused(authority, deliver):
    with listening(authority, "example.org") as receiver:
        delivery = deliver(receiver.url, retry=ONCE)
        delivery.offer(CHANGE, wait=1)
        with pytest.raises(DeliveryExhausted, match="not trusted: Hostname mismatch"):
            delivery.drain(10)
        assert not receiver.requests


@pytest.mark.usefixtures("trusting")
def test_https_to_a_silent_receiver_ends_with_the_timeout(authority, deliver):
    with listening(authority, "localhost") as receiver:
        receiver.turn(hang_rate=1)
        delivery = deliver(receiver.url, retry=ONCE, timeout=timedelta(seconds=0.3))
        delivery.offer(CHANGE, wait=1)
        with pytest.raises(DeliveryExhausted, match="no answer within"):
            delivery.drain(10)


def test_https_to_a_plain_server_is_a_failure(receiver, deliver):
    delivery = deliver(receiver.url.replace("http://", "https://"), retry=ONCE, timeout=timedelta(seconds=0.5))
    delivery.offer(CHANGE, wait=1)
    with pytest.raises(DeliveryExhausted):
        delivery.drain(10)
