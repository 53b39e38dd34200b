"""Handing records to the library, which sends them later, or says at once what is wrong with one."""

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


def flushed(producer: Any, seconds: float) -> int:
    """How many records are still under way after this time. Raises KafkaException.

    The library goes on calling back when it has raised that already, and Python then makes a SystemError of it.
    """
    try:
        left: int = producer.flush(seconds)
    except SystemError as error:
        if isinstance(error.__cause__, kafka.KafkaException):
            raise error.__cause__ from None
        raise
    return left
