"""A table that lives, and a process that delivers what happened to it, from a watermark in a file on, until it is killed."""

import json
import random
import sys
from datetime import timedelta
from pathlib import Path

from penstock.change import Change, Lane, Op, to_batch
from penstock.delivery.settings import Batch
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.webhook.sink import WebhookSink

MILLISECOND = timedelta(milliseconds=1)


class History:
    """A table that lives: rows come, change, change their keys, and go; with the log of it."""

    def __init__(self, chance, length, keys=12):
        self.table, self.changes = {}, []
        for position in range(1, length + 1):
            self._step(chance, position, chance.randrange(keys), chance.randrange(keys))

    def _step(self, chance, position, key, other):
        before = self.table.pop(key, None)
        if before is None:
            self.table[key] = {"id": key, "n": position}
            self._log(position, Op.INSERT, key, None, self.table[key])
        elif chance.random() < 0.2:
            self._log(position, Op.DELETE, key, before, None)
        else:
            new = other if other not in self.table and chance.random() < 0.4 else key
            self.table[new] = {"id": new, "n": position}
            self._log(position, Op.UPDATE, new, before, self.table[new])

    def _log(self, position, op, key, *images):
        self.changes.append(Change(position, op, "t", json.dumps({"id": key}), *(image and json.dumps(image) for image in images)))

    def log(self):
        return {one.position: {"op": one.op, "key": json.loads(one.key)} for one in self.changes}


def main(url, seed, watermark):
    history, at = History(random.Random(int(seed)), 1000), int(Path(watermark).read_text())
    retry = Retry(tries="forever", min=MILLISECOND, max=4 * MILLISECOND)
    sink = WebhookSink(url=url, parallel=4, batch=Batch(size=5, delay=MILLISECOND), retry=retry, timeout=timedelta(days=1))
    delivery = sink.open(Assignment("shop", Lane("main"), 1, 0, "cafe", at or None, lambda event: None))
    for start in range(at, 1000, 10):
        while not delivery.offer(to_batch(history.changes[start : start + 10]), wait=0.05):
            pass
        delivery.drain(0.01)
        record(delivery, Path(watermark))
    while not delivery.drain(0.05):
        record(delivery, Path(watermark))
    delivery.close()


def record(delivery, watermark):
    if durable := delivery.delivered():
        new = watermark.with_suffix(".new")
        new.write_text(str(durable.position))
        new.replace(watermark)


if __name__ == "__main__":
    main(*sys.argv[1:])
