"""A Kafka library whose producers fail now and then, also in Spark's workers.

Some records are refused, and of as many that were sent a failure is reported. Each fault is noted as a line of a file.
"""

import os
import random
from collections.abc import Callable
from typing import Any

import confluent_kafka as kafka

_RATE, _NOTES = float(os.environ["PENSTOCK_TEST_FAULTS"]), os.environ["PENSTOCK_TEST_FAULTS_TOLD"]
_SEED = os.environ.get("PENSTOCK_SEED", "1")
_Producer = kafka.Producer


class Faulty(_Producer):
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._random = random.Random(f"{_SEED} {os.path.getsize(_NOTES)}")

    def produce(self, *record: Any, on_delivery: Callable[[Any, Any], None], **about: Any) -> None:
        if self._fails("produce"):
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT, "injected"))
        lie = kafka.KafkaError(kafka.KafkaError._MSG_TIMED_OUT, "injected") if self._fails("delivery") else None
        super().produce(*record, on_delivery=lambda error, sent: on_delivery(error or lie, sent), **about)

    def _fails(self, where: str) -> bool:
        if self._random.random() >= _RATE:
            return False
        with open(_NOTES, "a") as notes:
            notes.write(f"{where}\n")
        return True


def _made(settings: dict[str, Any]) -> Any:
    """Faulty is who carries a pipeline's records; those of leadership and state are as ever."""
    is_carrying = str(settings.get("client.id", "")).startswith("penstock-") and "transactional.id" not in settings
    return (Faulty if is_carrying else _Producer)(settings)


kafka.Producer = _made
