"""Handing a record to the library, which sends it later, or says at once what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka as kafka

from penstock.failpoint import reach
from penstock.sinks.kafka.record import Record, Unfit


def refused(
    record: Record, producing: Callable[[], Any], heard: Callable[[Any, Any], None], make_room: Callable[[], None]
) -> Any | Unfit | None:
    """None if the library has the record, and will tell what became of it; otherwise its error, or that it is no record at all."""
    topic, key, value, headers = record
    reach("sink.sending")
    while True:
        try:
            producing().produce(topic, value, key, headers=headers, on_delivery=heard)
        except BufferError:  # the library's own queue is full
            make_room()
        except kafka.KafkaException as error:
            return error.args[0]
        except (TypeError, ValueError) as error:
            return Unfit(str(error))
        else:
            return None
