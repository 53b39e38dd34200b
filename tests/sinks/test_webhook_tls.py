"""Webhooks over https: whom they trust, what they show, and what is said of certificates that do not fit."""

import socket
import ssl
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from deadline import PATIENCE
from penstock.change import Change, Op, to_batch
from penstock.cli import main
from penstock.cli.log import text_line
from penstock.config import load, parse
from penstock.delivery.settings import Batch
from penstock.errors import ConfigInvalid, DeliveryExhausted, Directive, SinkUnavailable
from penstock.event import Warned
from penstock.retry import Retry
from penstock.sinks.webhook.tls import Tls
from penstock.testing.receiver import Receiver

ONCE = Retry(tries=1)
CHANGE = to_batch([Change(1, Op.INSERT, "orders", '{"id":1}', None, '{"id":1}')])


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def listening(authority, *names, clients=None, **certificate):
    """A receiver with such a certificate; `clients`: the authority of the certificates that it asks for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **certificate).configure_cert(context)
    if clients:
        clients.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 a refusal may come as a reset
    return Receiver(tls=context)


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory):
    """ca.pem, client.pem, client.key and locked.key (password `opens`), old.pem, stranger.pem and .key of another authority."""
    folder = tmp_path_factory.mktemp("certs")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, issuer in (("client", authority), ("stranger", trustme.CA())):
        issued = issuer.issue_cert("penstock.example.org")
        issued.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        issued.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}-both.pem"))
    old = authority.issue_cert("penstock.example.org", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    old.private_key_and_cert_chain_pem.write_to_path(str(folder / "old.pem"))
    key = load_pem_private_key((folder / "client.key").read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"opens"))
    (folder / "locked.key").write_bytes(locked)
    (folder / "garbled.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n\xff")
    return folder


def failure(delivery):
    delivery.offer(CHANGE, wait=PATIENCE)
    with pytest.raises(DeliveryExhausted) as raised:
        delivery.drain(PATIENCE)
    return raised.value.message


@pytest.fixture
def trusting(authority, tmp_path, monkeypatch):
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


@pytest.mark.usefixtures("trusting")
def test_https_delivers_over_one_connection(authority, deliver):
    with listening(authority, "localhost") as receiver:
        delivery = deliver(receiver.url)
        for _ in range(3):
            delivery.offer(CHANGE, wait=PATIENCE)
            assert delivery.drain(PATIENCE)
        assert len(receiver.changes()) == 3
        assert receiver.connections == 1
        delivery.close()


@pytest.mark.usefixtures("trusting")
def test_https_delivers_over_several_connections_at_once(authority, deliver):
    with listening(authority, "localhost") as receiver:
        receiver.turn(holds=True)
        delivery = deliver(receiver.url, parallel=3, batch=Batch(size=1))
        delivery.offer(to_batch(Change(n, Op.INSERT, "orders", f'{{"id":{n}}}', None, "{}") for n in range(1, 31)), wait=PATIENCE)
        receiver.wait_for(lambda: len(receiver.held) == 3, within=PATIENCE)
        receiver.turn(holds=False)
        assert delivery.drain(PATIENCE)
        assert len(receiver.changes()) == 30
        assert receiver.connections == 3
        delivery.close()


def test_a_certificate_of_an_unknown_authority_is_refused_and_the_way_out_named(authority, deliver):
    with listening(authority, "localhost") as receiver:
        delivery = deliver(receiver.url, retry=ONCE)
        delivery.offer(CHANGE, wait=PATIENCE)
        with pytest.raises(
            DeliveryExhausted, match=r"its certificate is not trusted: .* \(name your own authority in tls.ca or SSL_CERT_FILE\)"
        ):
            delivery.drain(PATIENCE)
        assert not receiver.requests


@pytest.mark.usefixtures("trusting")
def test_a_certificate_for_another_host_is_refused(authority, deliver):
    with listening(authority, "example.org") as receiver:
        delivery = deliver(receiver.url, retry=ONCE)
        delivery.offer(CHANGE, wait=PATIENCE)
        with pytest.raises(DeliveryExhausted, match="not trusted: Hostname mismatch"):
            delivery.drain(PATIENCE)
        assert not receiver.requests


@pytest.mark.usefixtures("trusting")
def test_https_to_a_silent_receiver_ends_with_the_timeout(authority, deliver):
    with listening(authority, "localhost") as receiver:
        receiver.turn(hang_rate=1)
        delivery = deliver(receiver.url, retry=ONCE, timeout=timedelta(seconds=0.3))
        delivery.offer(CHANGE, wait=PATIENCE)
        with pytest.raises(DeliveryExhausted, match="no answer within"):
            delivery.drain(PATIENCE)


def test_https_to_a_plain_server_is_a_failure(receiver, deliver):
    delivery = deliver(receiver.url.replace("http://", "https://"), retry=ONCE, timeout=timedelta(seconds=0.5))
    delivery.offer(CHANGE, wait=PATIENCE)
    with pytest.raises(DeliveryExhausted):
        delivery.drain(PATIENCE)


def test_an_authority_of_ones_own_is_trusted(authority, files, deliver):
    with listening(authority, "localhost") as receiver:
        delivery = deliver(receiver.url, retry=ONCE, tls=Tls(ca=str(files / "ca.pem")))
        delivery.offer(CHANGE, wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        delivery.close()


def test_an_authority_of_ones_own_takes_the_place_of_all_others(files, deliver, tmp_path, monkeypatch):
    other = trustme.CA()
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "other.pem"))
    with listening(other, "localhost") as receiver:
        assert "not trusted: " in failure(deliver(receiver.url, retry=ONCE, tls=Tls(ca=str(files / "ca.pem"))))
        assert not receiver.requests


def test_an_expired_certificate_is_refused(authority, files, deliver):
    with listening(authority, "localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC)) as receiver:
        said = failure(deliver(receiver.url, retry=ONCE, tls=Tls(ca=str(files / "ca.pem"))))
        assert "its certificate is not trusted: certificate has expired (renew it at the receiver)" in said
        assert not receiver.requests


def test_the_server_name_is_what_the_receiver_is_asked_for_and_what_its_certificate_must_have(authority, files, deliver):
    asked = []
    receiver = listening(authority, "hooks.internal")
    receiver._tls.sni_callback = lambda _, name, __: asked.append(name)
    with receiver:
        delivery = deliver(receiver.url, retry=ONCE, tls=Tls(ca=str(files / "ca.pem"), server_name="hooks.internal"))
        delivery.offer(CHANGE, wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        delivery.close()
        said = failure(deliver(receiver.url, retry=ONCE, tls=Tls(ca=str(files / "ca.pem"), server_name="example.org")))
    assert (
        "Hostname mismatch, certificate is not valid for 'example.org'. (set tls.server_name to the name in the certificate)"
        in said
    )
    assert asked == ["hooks.internal", "example.org"]
    assert [request.headers["host"] for request in receiver.requests] == [f"localhost:{receiver.port}"]


def test_without_verification_anybody_is_believed_and_a_warning_says_so(authority, deliver, told):
    with listening(authority, "example.org", not_after=datetime(2020, 1, 1, tzinfo=UTC)) as receiver:
        delivery = deliver(receiver.url, retry=ONCE, tls=Tls(verify=False))
        delivery.offer(CHANGE, wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        delivery.close()
    [event] = told.events
    assert isinstance(event, Warned)
    assert "warning orders: tls.verify is false: any server that answers at the url is trusted" in text_line(
        event, datetime.now(UTC)
    )


@pytest.mark.parametrize(
    "shown", [("client.pem", "client.key", None), ("client-both.pem", None, None), ("client.pem", "locked.key", "opens")]
)
def test_a_receiver_that_asks_for_a_certificate_gets_it(authority, files, deliver, shown):
    cert, key, password = shown
    tls = Tls(ca=str(files / "ca.pem"), cert=str(files / cert), key=key and str(files / key), key_password=password)
    with listening(authority, "localhost", clients=authority) as receiver:
        delivery = deliver(receiver.url, retry=ONCE, tls=tls)
        delivery.offer(CHANGE, wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        delivery.close()


@contextmanager
def refusing(authority, version=ssl.TLSVersion.TLSv1_2):
    """The URL of a server that asks for a certificate and says why it refuses one; asyncio's closes without a word."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, version

    def shake_hands(server):
        connection, _ = server.accept()
        with connection, suppress(ssl.SSLError):
            context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=shake_hands, args=[server])
        thread.start()
        yield f"https://localhost:{server.getsockname()[1]}/"
        thread.join()


@pytest.mark.parametrize(
    ("cert", "reason"), [(None, "handshake failure"), ("stranger-both.pem", "unknown ca"), ("old.pem", "certificate expired")]
)
def test_a_receiver_refuses_no_certificate_and_a_strangers_and_an_old_one(authority, files, deliver, cert, reason):
    with refusing(authority) as url:
        said = failure(deliver(url, retry=ONCE, tls=Tls(ca=str(files / "ca.pem"), cert=cert and str(files / cert))))
    assert f"it refused the certificate shown to it, or that there is none: {reason} (see tls.cert and tls.key)" in said


@pytest.mark.parametrize(
    ("cert", "reason"), [(None, "certificate required"), ("stranger-both.pem", "unknown ca"), ("old.pem", "certificate expired")]
)
def test_a_refusal_in_tls_1_3_which_comes_once_the_request_is_on_its_way_names_its_reason_or_the_keys(
    authority, files, deliver, cert, reason
):
    with refusing(authority, ssl.TLSVersion.TLSv1_3) as url:
        said = failure(deliver(url, retry=ONCE, tls=Tls(ca=str(files / "ca.pem"), cert=cert and str(files / cert))))
    refused = f"it refused the certificate shown to it, or that there is none: {reason} (see tls.cert and tls.key)"
    closed = "it closed the connection without an answer (it may require a certificate: see tls.cert and tls.key)"
    reset = "Connection reset by peer"  # docs/webhook.md says what it may mean
    assert any(words in said for words in (refused, closed, reset)), said


def test_a_receiver_that_asks_for_a_certificate_and_hangs_up_without_a_word_is_a_failure_that_names_the_keys(
    authority, files, deliver
):
    with listening(authority, "localhost", clients=authority) as receiver:
        said = failure(deliver(receiver.url, retry=ONCE, tls=Tls(ca=str(files / "ca.pem"))))
        assert "(it may require a certificate: see tls.cert and tls.key)" in said
        assert not receiver.requests


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"ca": "gone.pem"}, "tls.ca cannot be read: {folder}/gone.pem: No such file or directory"),
        ({"ca": "."}, "tls.ca cannot be read: {folder}: Is a directory"),
        ({"ca": "garbled.pem"}, "tls.ca holds no certificate that can be read"),
        ({"ca": "client.key"}, "tls.ca holds no certificate that can be read"),
        ({"cert": "gone.pem"}, "tls.cert cannot be read: {folder}/gone.pem: No such file"),
        ({"cert": "client.pem", "key": "gone.key"}, "tls.key cannot be read: {folder}/gone.key: No such file"),
        ({"cert": "garbled.pem", "key": "client.key"}, "tls.cert or tls.key cannot be read: cert must be a PEM file"),
        ({"cert": "client.pem", "key": "garbled.pem"}, "tls.cert or tls.key cannot be read: cert must be a PEM file"),
        ({"cert": "client.pem"}, "tls.cert cannot be read: cert must be a PEM file"),
        ({"cert": "client.pem", "key": "stranger.key"}, "tls.key: its private key does not belong to the certificate"),
        ({"cert": "client.pem", "key": "locked.key"}, "tls.key is encrypted: give tls.key_password"),
        (
            {"cert": "client.pem", "key": "locked.key", "key_password": "s3cret"},
            "tls.key cannot be decrypted with tls.key_password",
        ),
        ({"key": "client.key"}, "tls.key is given without tls.cert"),
        ({"key_password": "s3cret"}, "tls.key_password is given without"),
        ({"server_name": "a b"}, "tls.server_name 'a b' is not the name of a host"),
        ({"server_name": "x\r\nHost: y"}, "is not the name of a host"),
        ({"server_name": ""}, "is not the name of a host"),
        ({"verify": False, "ca": "ca.pem"}, "tls.ca names a trusted authority and tls.verify: false"),
        ({"verify": "no"}, "sink.tls.verify must be true or false"),
        ({"cafile": "x"}, "sink.tls.cafile is unknown"),
    ],
)
def test_what_cannot_be_used_is_refused_when_the_file_is_read(files, keys, said):
    sink = {"type": "webhook", "url": "https://h/", "tls": keys}
    with pytest.raises(ConfigInvalid) as raised:
        parse({"name": "p", "source": {"type": "sqlite", "database": "x"}, "sink": sink}, files)
    assert said.format(folder=files) in raised.value.message
    assert "s3cret" not in raised.value.message


def test_tls_to_a_plain_url_is_refused():
    with pytest.raises(ConfigInvalid, match="tls is for https: remove it, or use https:// in url"):
        parse(
            {
                "name": "p",
                "source": {"type": "sqlite", "database": "x"},
                "sink": {"type": "webhook", "url": "http://h/", "tls": {"verify": False}},
            }
        )


def test_a_certificate_that_has_gone_since_is_an_error_that_may_pass_as_renewals_do(authority, deliver, tmp_path):
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = Tls(ca=str(tmp_path / "ca.pem"))
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(SinkUnavailable, match=r"sink\.tls\.ca cannot be read: .*No such file.* on every machine"):
        deliver("https://localhost/", tls=tls)
    assert SinkUnavailable.directive is Directive.RETRY


def test_validate_warns_of_a_check_that_is_switched_off_and_shows_no_password(files, tmp_path, capsys):
    tls = f"{{verify: false, cert: {files}/client.pem, key: {files}/locked.key, key_password: opens}}"
    (tmp_path / "p.yaml").write_text(
        f"name: p\nsource: {{type: sqlite, database: x}}\nsink:\n  type: webhook\n  url: https://h/\n  tls: {tls}\n"
    )
    assert main(["validate", str(tmp_path / "p.yaml")]) == 0
    said = capsys.readouterr().out
    assert "warning: sink.tls.verify is false: any server that answers at the url is trusted" in said
    assert "opens" not in said
    assert "opens" not in repr(load(tmp_path / "p.yaml"))
