"""The configuration of goharvest as a pipeline. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from penstock.errors import ConfigInvalid
from penstock.harvest.config import HarvestConfig
from penstock.harvest.spelling import spelled
from penstock.text.printable import printable

_NOT_OURS = ("binary_parameters", "disable_prepared_binary_result")
"""Parameters of the driver of Go that libpq does not have, and that have no effect here."""

_SAFE = ("all", "-1", -1)
_PATIENCE = ("message.timeout.ms", "delivery.timeout.ms")
"""Not configurable: a record must expire before the term, so that a deposed leader does not send it."""
_ACKS = ("acks", "request.required.acks")
_OF_CLIENTS = ("sasl.", "ssl.", "security.", "socket.", "client.", "broker.", "enable.ssl")
_PAIR = re.compile(r"\s*([A-Za-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)")


def pipeline(config: HarvestConfig) -> dict[str, Any]:
    """The values of the pipeline file for this configuration."""
    limits = config.limits
    return {
        "name": pipeline_name(config.leader_group_id),
        "source": {
            "type": "outbox",
            "database": database(config.data_source),
            "table": config.outbox_table,
            "reader": "mark",
            "mark_query_records": limits.mark_query_records,
            "mark_backoff": spelled(limits.mark_backoff),
        },
        "sink": {
            "type": "kafka",
            "delivery": "barrier",
            "config": producer(config),
            "max_in_flight_records": limits.max_in_flight_records,
            "retry": {
                "tries": "forever",
                "min": spelled(max(limits.io_error_backoff, 10**6)),
                "max": spelled(max(limits.io_error_backoff, 5 * 10**9)),
                "then": "dead-letter",
            },
        },
        "state": state(config),
    }


def pipeline_name(group: str) -> str:
    """The name of the pipeline: that of the leader group, which all competitors for a table share."""
    return group if len(group) <= 64 else f"{group[:47]}.{hashlib.blake2b(group.encode(), digest_size=8).hexdigest()}"


def database(data_source: str) -> str:
    """A data source of the Postgres driver of Go as an address; the last value of a repeated parameter applies."""
    text = data_source.strip()
    if "://" in text:
        return text
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if not pair:
            raise ConfigInvalid("DataSource: must be in a valid format.", "write host=... port=... user=... dbname=..., or a URL")
        value = pair[2]
        bare = value[1:-1] if value.startswith("'") else value
        found[pair[1]] = re.sub(r"\\(.)", r"\1", bare)
        at = pair.end()
    said = {name: value for name, value in found.items() if name not in _NOT_OURS and value}
    said.setdefault("sslmode", "require")  # the default of the driver of Go
    name = said.pop("dbname", said.get("user", ""))
    return f"postgresql:///{quote(name, safe='')}?{urlencode(said, quote_via=quote)}"


def producer(config: HarvestConfig) -> dict[str, Any]:
    """The settings of the sink. Keys keep their partitions: goharvest uses the default partitioner of librdkafka."""
    said = {"partitioner": "consistent_random", **config.base_kafka_config, **config.producer_kafka_config}
    for name in _PATIENCE:
        said.pop(name, None)
    for name in _ACKS:
        if name in said and said.pop(name) not in _SAFE:
            raise ConfigInvalid(
                f"ProducerKafkaConfig: cannot override configuration '{name}'.", f"remove {name}: its value is always all"
            )
    return said


def state(config: HarvestConfig) -> str:
    """The address of the state: the leader group of goharvest, and a topic for watermarks and dead letters."""
    base = {name: _text(value) for name, value in config.base_kafka_config.items()}
    servers = base.get("bootstrap.servers") or base.get("metadata.broker.list") or ""
    options = {
        "leader-topic": config.leader_topic,
        "leader-group": config.leader_group_id,
        "receive-deadline": spelled(config.limits.heartbeat_timeout),
        **{name: value for name, value in base.items() if name.startswith(_OF_CLIENTS)},
    }
    return f"kafka://{_with_ports(servers)}/{config.leader_group_id}.state?{urlencode(options, quote_via=quote)}"


def _with_ports(servers: str) -> str:
    """Brokers, each with its port."""
    bare = [one.strip().rpartition("://")[2] for one in servers.split(",") if one.strip()]
    return ",".join(one if re.search(r":\d+$", one) else f"{one}:9092" for one in bare)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def file_of(values: Mapping[str, Any]) -> str:
    """The pipeline file with these values; a literal `${` becomes `$${`."""
    import yaml

    text = yaml.safe_dump(_escaped(values), sort_keys=False, allow_unicode=True)
    is_clean = all(printable(line) == line for line in text.split("\n"))
    return text if is_clean else yaml.safe_dump(_escaped(values), sort_keys=False)  # in ASCII, which escapes invisible characters


def _escaped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _escaped(each) for key, each in value.items()}
    return value.replace("${", "$${") if isinstance(value, str) else value
