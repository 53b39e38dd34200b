"""Signatures, verified with the library of Standard Webhooks, and compressed bodies."""

import base64
import gzip
import hashlib
import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from deadline import PATIENCE
from penstock.change import Change, Op, to_batch
from penstock.config import parse
from penstock.errors import ConfigInvalid
from penstock.receiver import MemoryStore
from penstock.receiver import Receiver as MemoryReceiver
from penstock.sinks.webhook.signing import Signing
from penstock.sinks.webhook.sink import WebhookSink

OLD, NEW, OTHER = (f"whsec_{base64.b64encode(letter * 32).decode()}" for letter in (b"o", b"n", b"x"))
CHANGES = to_batch(Change(n, Op.INSERT, "orders", f'{{"id":{n}}}', None, f'{{"note":"käse {n}"}}', ordinal=n) for n in range(1, 4))


def delivered(receiver, deliver, *changes, **settings):
    delivery = deliver(receiver.url, **settings)
    for some in changes or (CHANGES,):
        delivery.offer(some, wait=PATIENCE)
        assert delivery.drain(PATIENCE)
    delivery.close()
    return receiver.requests


def test_a_signature_is_what_the_library_expects(receiver, deliver):
    [request] = delivered(receiver, deliver, signing=Signing(secret=NEW))
    content = Webhook(NEW).verify(request.body, request.headers)
    assert [change["position"] for change in content["changes"]] == [1, 2, 3]
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(request.body, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(request.body + b" ", request.headers)


def test_while_secrets_are_changed_receivers_with_either_are_content(receiver, deliver):
    [request] = delivered(receiver, deliver, signing=Signing(secret=[NEW, OLD]))
    for secret in (NEW, OLD):
        Webhook(secret).verify(request.body, request.headers)


def test_every_try_has_the_same_id_and_a_time_of_its_own(receiver, deliver):
    receiver.turn(script=(500,), headers={"Retry-After": "1"})
    first, second = delivered(receiver, deliver, signing=Signing(secret=NEW))
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-id"].startswith(first.headers["idempotency-key"].replace(".", "%2E") + "-")
    assert first.body == second.body
    assert int(first.headers["webhook-timestamp"]) < int(second.headers["webhook-timestamp"]) <= time.time()
    for request in (first, second):
        Webhook(NEW).verify(request.body, request.headers)


def test_the_id_ends_with_a_digest_of_the_headers_that_a_receiver_acts_on(receiver, deliver):
    [request] = delivered(receiver, deliver, signing=Signing(secret=NEW))
    names = [f"penstock-{name}" for name in ("pipeline", "lane", "incarnation", "epoch", "redriven")]
    assert [name for name in names if name not in request.headers] == ["penstock-redriven"]
    lines = "".join(f"{name}:{request.headers.get(name) or ''}\n" for name in names)
    assert request.headers["webhook-id"].rpartition("-")[2] == hashlib.sha256(lines.encode()).hexdigest()[:32]
    assert MemoryReceiver(MemoryStore(), secret=NEW).accept(request.headers, request.body).status == 200


def test_without_a_secret_nothing_is_signed(receiver, deliver):
    [request] = delivered(receiver, deliver)
    assert not any(name.startswith("webhook-") for name in request.headers)


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("s3cret", "signing.secret does not begin with whsec_"),
        ("whsk_s3cret", "signing.secret does not begin with whsec_"),
        ("whsec_s3cret!", "signing.secret is not base64"),
        ("whsec_s3cre", "signing.secret is not base64"),
        ("whsec_" + base64.b64encode(b"s" * 23).decode(), "signing.secret has 23 bytes: it must have 24 to 64"),
        ("whsec_" + base64.b64encode(b"s" * 65).decode(), "signing.secret has 65 bytes"),
        ([NEW, "s3cret"], "signing.secret does not begin with whsec_"),
        ([], "signing.secret is empty"),
        ("", "signing.secret does not begin"),
        (5, "sink.signing.secret must be text: put it in quotes or a list"),
    ],
)
def test_a_secret_that_cannot_work_is_refused_and_not_quoted(secret, said):
    sink = {"type": "webhook", "url": "http://h/", "signing": {"secret": secret}}
    with pytest.raises(ConfigInvalid) as raised:
        parse({"name": "p", "source": {"type": "sqlite", "database": "x"}, "sink": sink})
    assert said in raised.value.message
    assert "s3cre" not in raised.value.message


def test_settings_do_not_show_the_secret():
    sink = WebhookSink(url="http://h/", signing=Signing(secret=[NEW, OLD]))
    assert "whsec" not in repr(sink)


def test_compressed_bodies_are_the_plain_ones_and_hold_no_time_that_would_make_repeats_differ(receiver, deliver):
    receiver.turn(script=(500,))
    first, second = delivered(receiver, deliver, compression="gzip", signing=Signing(secret=NEW))
    assert first.headers["content-encoding"] == "gzip"
    assert first.body == second.body
    assert first.body[4:8] == bytes(4)
    assert second.positions() == [1, 2, 3]
    Webhook(NEW).verify(gzip.decompress(second.body), second.headers)
    receiver.reset()
    [plain] = delivered(receiver, deliver)
    assert plain.body == gzip.decompress(first.body)
    assert "content-encoding" not in plain.headers
