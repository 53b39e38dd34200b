"""A real Kafka broker on loopback ports: one node, its jars fetched once by Spark's own package resolution.

with Broker(folder) as broker:
    broker.create("orders", partitions=4)
    ...  # produce to broker.servers
    broker.records("orders")
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from penstock.errors import EngineFailed
from penstock.kafka.answer import answered
from penstock.spark.java import find_jars, find_java
from servers import artifact
from servers.ports import free_ports
from servers.proxy import Proxy

VERSION = "4.1.1"
USERS = {"admin": "admin-secret", "app": "app-secret"}
"""Who may speak to `secured` and `encrypted`, with which password. Until an ACL says otherwise everybody may do everything."""

PATIENCE = 600.0
"""Seconds for a start, an end or an answer on a busy machine."""

_PORTS = ("controller", "plain", "secured", "routed", "route", "encrypted", "mutual")

# It dies with whoever started it, however that ends.
_LAUNCH = "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.execv(sys.argv[1], sys.argv[1:])"

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listeners=CONTROLLER://127.0.0.1:{controller},PLAIN://127.0.0.1:{plain},SECURED://127.0.0.1:{secured},ROUTED://127.0.0.1:{routed}{more}
advertised.listeners=PLAIN://127.0.0.1:{plain},SECURED://127.0.0.1:{secured},ROUTED://127.0.0.1:{route}{more}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,SECURED:SASL_PLAINTEXT,ROUTED:PLAINTEXT,ENCRYPTED:SASL_SSL,MUTUAL:SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.secured.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};
listener.name.secured.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.encrypted.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};
listener.name.encrypted.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS;User:admin
log.dirs={folder}/data
num.partitions=4
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

_TLS = """\
ssl.keystore.type=PEM
ssl.keystore.location={certificate}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.mutual.ssl.client.auth=required
"""


class Identity(NamedTuple):
    """For TLS: a PEM file with the broker's key (PKCS #8) and certificates, and one of the authority that clients need."""

    certificate: Path
    authority: Path


class Record(NamedTuple):
    """What a consumer got."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Broker:
    """Starts, stops, is killed and starts again with the same ports and data; with an identity it speaks TLS, too.

    A brief one is not worth being compiled well.
    """

    def __init__(self, folder: Path, identity: Identity | None = None, *, is_brief: bool = True) -> None:
        self.folder, self._jars, self._is_brief = folder, jars(), is_brief
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "server.properties").write_text(self._properties(identity))
        format_ = ["kafka.tools.StorageTool", "format", "-t", _cluster(), "-c", str(folder / "server.properties")]
        for name, password in USERS.items():
            format_ += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        done = subprocess.run(self._java(*format_), capture_output=True, text=True, check=False)
        if done.returncode:
            raise EngineFailed(f"the broker's folder was not formatted: {done.stderr[-2000:]}")

    @property
    def servers(self) -> str:
        """For `bootstrap.servers`: without any credentials."""
        return f"127.0.0.1:{self._ports['plain']}"

    @property
    def secured(self) -> str:
        """For `bootstrap.servers`: with SASL, mechanism PLAIN or SCRAM-SHA-512, one of USERS."""
        return f"127.0.0.1:{self._ports['secured']}"

    @property
    def encrypted(self) -> str:
        """For `bootstrap.servers`: the same over TLS."""
        return f"127.0.0.1:{self._ports['encrypted']}"

    @property
    def mutual(self) -> str:
        """For `bootstrap.servers`: TLS with a certificate of the client, without SASL."""
        return f"127.0.0.1:{self._ports['mutual']}"

    @property
    def routed(self) -> str:
        """For `bootstrap.servers`: through `route`, which must be there."""
        return f"127.0.0.1:{self._ports['route']}"

    def route(self) -> Proxy:
        """A network to this broker that can be cut."""
        return Proxy(self._ports["routed"], own=self._ports["route"])

    @property
    def pid(self) -> int:
        """Of its process, which must have been started."""
        assert self._process
        return self._process.pid

    def start(self) -> Self:
        """Start, and wait until it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            command = self._java("kafka.Kafka", str(self.folder / "server.properties"))
            launch = [sys.executable, "-c", _LAUNCH, *command]
            self._process = subprocess.Popen(launch, stdout=log, stderr=log, start_new_session=True, cwd=self.folder)
        self._await_answer(self._process)
        return self

    def stop(self) -> None:
        """As an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it hang: connections stay open and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def create(self, topic: str | None = None, partitions: int = 4, config: Mapping[str, str] | None = None) -> str:
        """Create a topic, by default with a name of its own; answers the name."""
        from confluent_kafka.admin import NewTopic

        topic = topic or f"topic-{uuid.uuid4().hex[:12]}"
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin()  # gone with its last name, and its requests with it
        answered(admin.create_topics([wanted])[topic], PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while len(admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions) < partitions:  # later, if the disk is slow
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker does not list the topic {topic}")
            time.sleep(0.02)
        return topic

    def configure(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        admin = self._admin()
        answered(admin.incremental_alter_configs([resource])[resource], PATIENCE)

    def forbid(self, topic: str, user: str = "app") -> None:
        """Let a user of `secured` or `encrypted` see a topic and not write to it."""
        admin = self._admin()
        for made in admin.create_acls(_bars(topic, user)).values():
            answered(made, PATIENCE)

    def allow(self, topic: str, user: str = "app") -> None:
        """Take `forbid` back."""
        from confluent_kafka.admin import AclBindingFilter

        wanted = [AclBindingFilter(*(getattr(bar, name) for name in _OF_ACL)) for bar in _bars(topic, user)]
        admin = self._admin()
        for gone in admin.delete_acls(wanted).values():
            answered(gone, PATIENCE)

    def records(self, topic: str, isolation: str = "read_committed") -> list[Record]:
        """Everything that a new consumer gets from this topic now, partition by partition."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
        consumer = Consumer({"bootstrap.servers": self.servers, "auto.offset.reset": "earliest", **settings})
        try:
            partitions = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            return sorted(_consumed(consumer, len(partitions)))
        finally:
            consumer.close()

    def _properties(self, identity: Identity | None) -> str:
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        more = "".join(f",{name.upper()}://127.0.0.1:{self._ports[name]}" for name in ("encrypted", "mutual")) if identity else ""
        tls = _TLS.format(**identity._asdict()) if identity else ""
        return _PROPERTIES.format(folder=self.folder, users=users, more=more, **self._ports) + tls

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0, "socket.timeout.ms": 300_000})

    def _java(self, *arguments: str) -> list[str]:
        memory = ("-Xmx400m", "-XX:+UseSerialGC", *(("-XX:TieredStopAtLevel=1",) if self._is_brief else ()))
        scala = next(jar for jar in find_jars() if jar.name.startswith("scala-library"))  # Spark's resolution leaves it out
        return [str(find_java().program), *memory, "-cp", f"{self._jars}/*:{scala}", *arguments]

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(KafkaException, OSError):
                socket.create_connection(("127.0.0.1", self._ports["plain"]), 1).close()
                self._admin().list_topics(timeout=5)
                return
            time.sleep(0.05)
        said = (self.folder / "broker.log").read_text(errors="replace")[-2000:]
        self.kill()
        raise EngineFailed(f"the broker did not start: {said}")

    def _end(self, how: signal.Signals) -> None:
        if self._process:
            self._signal(how)
            self._signal(signal.SIGCONT)
            self._process.wait(PATIENCE)

    def _signal(self, which: signal.Signals) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(which)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


_OF_ACL = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")


def _bars(topic: str, user: str) -> list[Any]:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    rules = ((AclOperation.WRITE, AclPermissionType.DENY), (AclOperation.DESCRIBE, AclPermissionType.ALLOW))
    place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*")
    return [AclBinding(*place, operation, permission) for operation, permission in rules]


def _consumed(consumer: Any, partitions: int) -> list[Record]:
    """What there is up to the end of so many partitions."""
    from confluent_kafka import KafkaError, KafkaException

    found: list[Record] = []
    ended: set[int] = set()  # an end is told again and again where writers go on
    deadline = time.monotonic() + PATIENCE
    while len(ended) < partitions and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            if not (error := message.error()):
                place = (message.partition(), message.offset())
                found.append(Record(*place, message.key(), message.value(), message.headers() or []))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
    if len(ended) < partitions:
        raise TimeoutError(f"the ends of {partitions - len(ended)} partitions were not reached")
    return found


def jars() -> Path:
    """The folder of the broker's jars; they are fetched if it is not there."""
    return artifact.kept(f"kafka-{VERSION}", f"org.apache.kafka:kafka_2.13:{VERSION}", _move)


def _move(jars: Path, folder: Path) -> None:
    jars.rename(folder)


def _cluster() -> str:
    """An id as Kafka writes it."""
    import base64

    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
