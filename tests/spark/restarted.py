"""A query that is started again as `penstock run` starts it, where Spark has not waited long enough for a Python process."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.spark.query import Query


class Restarted(Query):
    """Spark gives a process ten seconds to connect; a starved host takes longer."""

    def failure(self) -> PenstockError | None:
        found = super().failure()
        if found and "failed to connect back" in found.message:
            self._begin()
            return None
        return found
