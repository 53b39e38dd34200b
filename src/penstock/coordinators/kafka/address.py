"""The parts of a kafka:// address. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from penstock.errors import ConfigInvalid
from penstock.text import duration

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVERS = re.compile(r"[^\s/@,]+:\d+(,[^\s/@,]+:\d+)*")
_FORM = "write kafka://HOST:PORT[,HOST:PORT]/TOPIC, with options after a ?: docs/pipeline-file.md lists them"
_OPTIONS = ("leader-topic", "leader-group", "session-timeout", "receive-deadline", "assignment")
_DECIDED = (
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.idempotence",
    "group.id",
    "group.protocol",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "transactional.id",
)

DEADLINE = 5.0
"""Seconds within which a leader must receive a heartbeat of its own."""
SESSIONS = 3
"""Default length of a session, in deadlines."""
PATIENCE = 2.0
"""Least number of seconds to wait for an answer."""


@dataclass(frozen=True)
class Address:
    """The topics of a state, and the settings of its election. `settings`: those of librdkafka, about connections.

    `session`: seconds after which a silent member is gone. `deadline`: seconds after which a leader that receives no heartbeat of
    its own stands down. `assignment`: the strategy that assigns partitions; all members of a group must use the same.
    """

    servers: str
    topic: str
    leader_topic: str
    leader_group: str | None = None
    session: float = DEADLINE * SESSIONS
    deadline: float = DEADLINE
    assignment: str = "cooperative-sticky"
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def shown(self) -> str:
        """The address without secrets."""
        return f"kafka://{self.servers}/{self.topic}"

    @property
    def patience(self) -> float:
        """Seconds to wait for an answer: less than half of the deadline, where that is long enough."""
        return max(PATIENCE, self.deadline * 0.4)

    def group(self, pipeline: str) -> str:
        """The group of the candidates for this pipeline."""
        return self.leader_group or f"{self.topic}.{pipeline}"


def parse(url: str) -> Address:
    """The place of this address. Raises ConfigInvalid, which quotes no value: it may be secret."""
    parts = urlsplit(url)
    topic, options = parts.path.strip("/"), dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme != "kafka" or not _SERVERS.fullmatch(parts.netloc) or not _TOPIC.fullmatch(topic) or parts.fragment:
        raise ConfigInvalid("the Kafka address under `state` is malformed", _FORM)
    for name in options:
        if name in _DECIDED:
            raise ConfigInvalid(f"state: {name} is set by Penstock", "remove it from the address")
        if name not in _OPTIONS and "." not in name:
            options_of_all = f"its options are {', '.join(_OPTIONS)}, and those of librdkafka"
            raise ConfigInvalid(f"state: a kafka:// address has no option {name}", options_of_all)
    leader_topic = options.get("leader-topic", f"{topic}.neli")
    if not _TOPIC.fullmatch(leader_topic):
        remedy = "use at most 249 characters: letters, digits and . _ -"
        raise ConfigInvalid("state: leader-topic is not a topic name", remedy)
    session, deadline = _times(options)
    return Address(
        servers=parts.netloc,
        topic=topic,
        leader_topic=leader_topic,
        leader_group=options.get("leader-group"),
        session=session,
        deadline=deadline,
        assignment=options.get("assignment", Address.assignment),
        settings={name: value for name, value in options.items() if name not in _OPTIONS},
    )


def _times(options: Mapping[str, str]) -> tuple[float, float]:
    """Session and deadline: if one of them is missing, it follows from the other."""
    session, deadline = _seconds(options, "session-timeout"), _seconds(options, "receive-deadline")
    deadline = deadline or (session / SESSIONS if session else DEADLINE)
    session = session or deadline * SESSIONS
    if deadline * 1.5 > session:
        remedy = "otherwise another process leads before this one has stood down"
        raise ConfigInvalid("state: session-timeout must be at least one and a half times receive-deadline", remedy)
    return session, deadline


def _seconds(options: Mapping[str, str], name: str) -> float | None:
    if name not in options:
        return None
    try:
        seconds = duration.parse(options[name]).total_seconds()
    except ValueError as error:
        raise ConfigInvalid(f"state: {name}: {error}", "write a number and a unit, such as 15s") from None
    if seconds <= 0:
        raise ConfigInvalid(f"state: {name} must be greater than zero", "write a number and a unit, such as 15s")
    return seconds
