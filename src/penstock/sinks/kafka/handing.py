"""Giving records to the library, which sends them later or refuses them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka as kafka

from penstock.sinks.kafka.record import Record, Unfit


def refused(
    record: Record, producing: Callable[[], Any], on_delivery: Callable[[Any, Any], None], make_room: Callable[[], None]
) -> Any | Unfit | None:
    """None if the library took the record, and will call `on_delivery` with the result; else the library's error, or Unfit."""
    topic, key, value, headers = record
    while True:
        try:
            producing().produce(topic, value, key, headers=headers, on_delivery=on_delivery)
        except BufferError:  # the library's own queue is full
            make_room()
        except kafka.KafkaException as error:
            return error.args[0]
        except (TypeError, ValueError) as error:
            return Unfit(str(error))
        else:
            return None


def flushed(producer: Any, seconds: float) -> int:
    """The number of records that are still under way after this time. Raises KafkaException.

    The library calls back even after it has raised that, and Python then raises a SystemError.
    """
    try:
        left: int = producer.flush(seconds)
    except SystemError as error:
        if isinstance(error.__cause__, kafka.KafkaException):
            raise error.__cause__ from None
        raise
    return left
