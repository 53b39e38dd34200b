"""TLS and SASL to a real broker: who is let in, and what is said to who is not."""

from contextlib import closing

import pytest

from deadline import PATIENCE
from messages import to_change
from penstock.change import Lane, to_batch
from penstock.cursor import Cursor, Watermark
from penstock.errors import SinkRefused
from penstock.finding import Severity
from penstock.message import Message
from penstock.sink import Assignment
from penstock.sinks.kafka.checks import brokers
from penstock.sinks.kafka.sink import KafkaSink

LANE = Lane("main")


@pytest.fixture(scope="module")
def papers(tmp_path_factory, kafka_authority):
    """The authority, and a certificate of a client, as files."""
    folder = tmp_path_factory.mktemp("papers")
    issued = kafka_authority.issue_cert("client.example.org")
    kafka_authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued.private_key_pem.write_to_path(str(folder / "client.key"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    return folder


def password(mechanism, word="app-secret"):
    return {"sasl.mechanism": mechanism, "sasl.username": "app", "sasl.password": word}


def ways(broker, papers):
    authority = {"ssl.ca.location": str(papers / "ca.pem")}
    own = {"ssl.certificate.location": str(papers / "client.pem"), "ssl.key.location": str(papers / "client.key")}
    plain, sealed = {"security.protocol": "SASL_PLAINTEXT"}, {"security.protocol": "SASL_SSL", **authority}
    mutual = {"security.protocol": "SSL", **authority}
    return {
        "password": {"bootstrap.servers": broker.secured, **plain, **password("PLAIN")},
        "scram": {"bootstrap.servers": broker.secured, **plain, **password("SCRAM-SHA-512")},
        "tls, password": {"bootstrap.servers": broker.encrypted, **sealed, **password("PLAIN")},
        "tls, scram": {"bootstrap.servers": broker.encrypted, **sealed, **password("SCRAM-SHA-512")},
        "tls, certificate": {"bootstrap.servers": broker.mutual, **mutual, **own},
        "wrong password": {"bootstrap.servers": broker.encrypted, **sealed, **password("SCRAM-SHA-512", "wr0ng")},
        "no certificate": {"bootstrap.servers": broker.mutual, **mutual},
        "unknown authority": {"bootstrap.servers": broker.encrypted, "security.protocol": "SASL_SSL", **password("PLAIN")},
    }


def deliver(sink, topic):
    with closing(sink.open(Assignment(topic, LANE, 1, 0, "cafe", None, lambda event: None, has_messages=True))) as delivery:
        assert delivery.offer(to_batch([to_change(Message(topic, b"k", b"v"), 1)]), PATIENCE)
        if sink.keeps_watermark:
            delivery.mark(Watermark(Cursor("{}"), 1, 1))
        assert delivery.drain(PATIENCE)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("way", ["scram", "tls, password", "tls, scram", "tls, certificate"])
def test_who_may_come_in_delivers(broker, papers, way, delivery):
    sink = KafkaSink(config=ways(broker, papers)[way], delivery=delivery)
    deliver(sink, topic := broker.create())
    assert [record.value for record in broker.records(topic)] == [b"v"]
    assert [finding.verdict for finding in brokers(sink)] == [Severity.OK]


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("wrong password", "Authentication failed"),
        ("no certificate", "bad certificate|certificate required"),
        ("unknown authority", "certificate verify failed"),
    ],
)
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_who_may_not_is_told_why_and_what_to_look_at(broker, papers, way, said, delivery):
    sink = KafkaSink(config=ways(broker, papers)[way], delivery=delivery)
    with pytest.raises(SinkRefused, match=said) as refused:
        deliver(sink, broker.create())
    assert refused.value.remedy.startswith("see sasl.* and ssl.*")
    assert "secret" not in str(refused.value)
    assert "wr0ng" not in str(refused.value)
