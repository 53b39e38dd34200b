"""What an error of the client library means for a record, for a transaction, and for the delivery."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from penstock.errors import DeliveryExhausted, PenstockError, SinkRefused, SinkUnavailable, TermLost

# Names of codes, so that this module needs no library; those with _ before them are the client's own.
_OF_TOPIC = {
    "TOPIC_AUTHORIZATION_FAILED": "grant this pipeline's user the right to write to the topic",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or let the brokers create topics by themselves",
    "_UNKNOWN_TOPIC": "create the topic, or let the brokers create topics by themselves",
    "_UNKNOWN_PARTITION": "create the topic anew, or its partitions",
    "TOPIC_EXCEPTION": "a topic's name has letters, digits and . _ -, at most 249 of them",
}
_OF_BATCH = {
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes, and message.max.bytes under sink.config",
    "RECORD_LIST_TOO_LARGE": "raise the topic's segment.bytes and max.message.bytes",
    "INVALID_RECORD": "the topic takes no such record: is it compacted, and the record has no key?",
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


class Verdict(Enum):
    """Whose fault it is."""

    RECORD = "this record will never be taken"
    BATCH = "one of the records that were sent together will never be taken"
    PASSING = "it may be taken later"


def verdict(error: Any) -> Verdict:
    """What this error says of the record it is about."""
    if error.name() in _OF_TOPIC:
        return Verdict.RECORD
    return Verdict.BATCH if error.name() in _OF_BATCH else Verdict.PASSING


def said(error: Any) -> str:
    """Code and text of an error."""
    return f"{error.name().lstrip('_')}: {error.str()}"


def unfit(reason: object, way_out: str = "correct what wrote it") -> DeliveryExhausted:
    """The error of a change that no record can be made of."""
    return DeliveryExhausted(f"no record can be made of it: {reason}", way_out)


def condemning(error: Any, topic: str) -> DeliveryExhausted:
    """The error of a change whose record will never be taken."""
    way_out = _OF_TOPIC.get(error.name()) or _OF_BATCH.get(error.name()) or "correct what made the record"
    return DeliveryExhausted(f"topic {topic} never takes it: {said(error)}", way_out)


def unkept(error: Any, topic: str) -> PenstockError:
    """The error of a watermark that cannot be written."""
    what = f"the watermark cannot be written to the topic {topic}: {said(error)}"
    if error.name() == "TOPIC_AUTHORIZATION_FAILED":
        return SinkRefused(what, f"grant this pipeline's user the rights to read, write and describe the topic {topic}")
    return SinkUnavailable(what, "nothing to do, if it passes: it is made anew if it is gone; it needs 16 partitions")


def is_refusal(error: Any) -> bool:
    """Whether the brokers do not let us in; what they think of our certificate they say only by breaking the connection off."""
    return error.name() in _REFUSED or (error.name() == "_TRANSPORT" and _OF_CERTIFICATE.search(error.str()) is not None)


def ending(error: Any, doing: str) -> PenstockError:
    """What a delivery ends with that cannot go on: with a new producer it may."""
    what = f"{doing}: {said(error)}"
    if error.name() in _FENCED:
        return TermLost(f"another producer has taken this lane over ({what})")
    if is_refusal(error):
        return SinkRefused(
            what, "see sasl.* and ssl.* under sink.config, and the rights of its user on topics, group and transactional id"
        )
    return SinkUnavailable(what, "see that the brokers under sink.config run and can be reached")
