"""What a kafka:// address says, without what is secret in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from penstock import duration
from penstock.errors import ConfigInvalid

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVERS = re.compile(r"[^\s/@,]+:\d+(,[^\s/@,]+:\d+)*")
_MEANT = "write kafka://HOST:PORT[,HOST:PORT]/TOPIC, and behind a ? what else there is to say: docs/pipeline-file.md has it all"
_OURS = ("leader-topic", "leader-group", "session-timeout", "receive-deadline", "assignment")
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
"""Seconds within which a leader must see a heartbeat of its own."""
SESSIONS = 3
"""How many such deadlines a session lasts, where nothing else is said."""
PATIENCE = 2.0
"""Seconds to wait for an answer, at the least."""


@dataclass(frozen=True)
class Place:
    """Where the state is, and how its leader is elected. `settings` are librdkafka's own, about connections.

    `session`: seconds after which a silent member is gone. `deadline`: seconds after which a leader stands down that does not see
    its own heartbeats. `assignment`: how partitions are given to members; all of one group must use the same.
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
        """As people may see it."""
        return f"kafka://{self.servers}/{self.topic}"

    @property
    def patience(self) -> float:
        """Seconds to wait for an answer: there is time for two within a deadline."""
        return max(PATIENCE, self.deadline * 0.4)

    def group(self, pipeline: str) -> str:
        """The group whose members stand for this pipeline."""
        return self.leader_group or f"{self.topic}.{pipeline}"


def parse(url: str) -> Place:
    """The place of this address. Raises ConfigInvalid, which repeats no value: it may be secret."""
    parts = urlsplit(url)
    topic, options = parts.path.strip("/"), dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme != "kafka" or not _SERVERS.fullmatch(parts.netloc) or not _TOPIC.fullmatch(topic) or parts.fragment:
        raise ConfigInvalid("the address of the Kafka under `state` cannot be understood", _MEANT)
    for name in options:
        if name in _DECIDED:
            raise ConfigInvalid(f"state: {name} is decided by Penstock itself", "remove it from the address")
        if name not in _OURS and "." not in name:
            raise ConfigInvalid(
                f"state: a kafka:// address has no option {name}", f"it has {', '.join(_OURS)}, and librdkafka's own"
            )
    session, deadline = _times(options)
    return Place(
        servers=parts.netloc,
        topic=topic,
        leader_topic=_named(options, "leader-topic", f"{topic}.neli"),
        leader_group=options.get("leader-group"),
        session=session,
        deadline=deadline,
        assignment=options.get("assignment", Place.assignment),
        settings={name: value for name, value in options.items() if name not in _OURS},
    )


def _named(options: Mapping[str, str], name: str, default: str) -> str:
    topic = options.get(name, default)
    if not _TOPIC.fullmatch(topic):
        raise ConfigInvalid(f"state: {name} is no name of a topic", "it has letters, digits and . _ -, at most 249 of them")
    return topic


def _times(options: Mapping[str, str]) -> tuple[float, float]:
    """Session and deadline: either tells the other."""
    said = {name: _seconds(options, name) for name in ("session-timeout", "receive-deadline")}
    session, deadline = said["session-timeout"], said["receive-deadline"]
    deadline = deadline or (session / SESSIONS if session else DEADLINE)
    session = session or deadline * SESSIONS
    if deadline * 1.5 > session:
        raise ConfigInvalid(
            "state: session-timeout must be at least one and a half times receive-deadline",
            "otherwise another process leads before this one has stood down",
        )
    return session, deadline


def _seconds(options: Mapping[str, str], name: str) -> float | None:
    if name not in options:
        return None
    try:
        seconds = duration.parse(options[name]).total_seconds()
    except ValueError as error:
        raise ConfigInvalid(f"state: {name}: {error}", "write a number and a unit, such as 15s") from None
    if seconds <= 0:
        raise ConfigInvalid(f"state: {name} must be more than nothing", "write a number and a unit, such as 15s")
    return seconds
