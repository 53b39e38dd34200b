"""The meaning of an error of the client library for a record, for a transaction, and for the delivery."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from penstock.errors import DeliveryExhausted, PenstockError, SinkRefused, SinkUnavailable, TermLost

# Codes by name, since this module does not import the library; those with a leading _ are the client's own.
_OF_TOPIC = {
    "TOPIC_AUTHORIZATION_FAILED": "grant this pipeline's user the right to write to the topic",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or allow the brokers to create topics",
    "_UNKNOWN_TOPIC": "create the topic, or allow the brokers to create topics",
    "_UNKNOWN_PARTITION": "create the topic again, or its partitions",
    "TOPIC_EXCEPTION": "a topic's name has letters, digits and . _ -, at most 249 of them",
}
_OF_BATCH = {
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes, and message.max.bytes under sink.config",
    "RECORD_LIST_TOO_LARGE": "raise the topic's segment.bytes and max.message.bytes",
    "INVALID_RECORD": "the topic accepts no such record: a compacted topic needs a key in every record",
    "INVALID_MSG": "the broker found the record damaged",
    "POLICY_VIOLATION": "the brokers' policy forbids such a record",
    "INVALID_TIMESTAMP": "set the topic's message.timestamp.before.max.ms and after.max.ms",
}
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
_REFUSED = {
    "_AUTHENTICATION",
    "SASL_AUTHENTICATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "_SSL",
}
_OF_CERTIFICATE = re.compile(r"alert (bad|unsupported|certificate|unknown ca|access denied|handshake failure)")


class ErrorScope(Enum):
    """The cause of an error."""

    RECORD = "this record will never be accepted"
    BATCH = "one of the records that were sent together will never be accepted"
    PASSING = "the record may be accepted later"


def verdict(error: Any) -> ErrorScope:
    """The cause of this error of a record."""
    if error.name() in _OF_TOPIC:
        return ErrorScope.RECORD
    return ErrorScope.BATCH if error.name() in _OF_BATCH else ErrorScope.PASSING


def said(error: Any) -> str:
    """The code and text of an error."""
    return f"{error.name().lstrip('_')}: {error.str()}"


def unfit(reason: object, way_out: str = "correct the program that wrote it") -> DeliveryExhausted:
    """The error of a change without a valid record."""
    return DeliveryExhausted(f"no record can be made of it: {reason}", way_out)


def condemning(error: Any, topic: str) -> DeliveryExhausted:
    """The error of a change whose record will never be accepted."""
    way_out = _OF_TOPIC.get(error.name()) or _OF_BATCH.get(error.name()) or "correct the source of the record"
    return DeliveryExhausted(f"topic {topic} never accepts it: {said(error)}", way_out)


def unkept(error: Any, topic: str) -> PenstockError:
    """The error of a watermark that cannot be written."""
    what = f"the watermark cannot be written to the topic {topic}: {said(error)}"
    if error.name() == "TOPIC_AUTHORIZATION_FAILED":
        return SinkRefused(what, f"grant this pipeline's user the rights to read, write and describe the topic {topic}")
    return SinkUnavailable(what, "no action if it passes: a missing topic is created again; check that it has 16 partitions")


def is_refusal(error: Any) -> bool:
    """Whether the brokers refuse the client; they refuse its certificate only by closing the connection."""
    return error.name() in _REFUSED or (error.name() == "_TRANSPORT" and _OF_CERTIFICATE.search(error.str()) is not None)


def ending(error: Any, doing: str) -> PenstockError:
    """The error that ends a delivery; a new producer may succeed."""
    what = f"{doing}: {said(error)}"
    if error.name() in _FENCED:
        return TermLost(f"another producer has taken this lane over ({what})")
    if is_refusal(error):
        return SinkRefused(
            what, "see sasl.* and ssl.* under sink.config, and the rights of its user on topics, group and transactional id"
        )
    return SinkUnavailable(what, "check that the brokers under sink.config run and can be reached")
