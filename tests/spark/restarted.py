"""A query that is started again as `penstock run` starts it, where Python processes died or Spark has not waited for one."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.spark.query import Query


class Restarted(Query):
    """Spark gives a process ten seconds to connect; a starved host takes longer."""

    def failure(self) -> PenstockError | None:
        found = super().failure()
        if found and any(words in found.message for words in ("failed to connect back", "worker exited unexpectedly")):
            self._begin()
            return None
        return found
