"""`penstock pump`: write test records to an outbox."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Annotated, Any

import typer

from penstock.cli import terminal
from penstock.errors import ConfigInvalid, SourceUnavailable
from penstock.outbox import Layout, quoted, stash_many
from penstock.text.dsn import scrubbed

BATCH = 20
"""Records of one transaction."""

Row = tuple[str, str, str | None, dict[str, str]]
"""Topic, key, value and headers."""


def pump(
    dsn: Annotated[str, typer.Option("--ds", metavar="DSN", help="The Postgres database: host=... dbname=..., or a URL.")],
    keys: Annotated[int, typer.Option("--keys", min=1, help="The number of keys; each record has a random one.")] = 10,
    records: Annotated[int, typer.Option("--records", min=1, help="The number of records.")] = 1000,
    *,
    interval: Annotated[int, typer.Option("--interval", min=0, metavar="MS", help="Milliseconds between two transactions.")] = 0,
    outbox: Annotated[str, typer.Option("--outbox", metavar="TABLE", help="The table, of either layout.")] = "outbox",
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic of the records.")] = "pump",
    blank: Annotated[bool, typer.Option("--blank", help="Records without a value: tombstones.")] = False,
) -> None:
    """Write records to an outbox, twenty in each transaction: keys key-0, key-1, ..., values value-0, value-1, ..., a header Seq.

    Examples: `penstock pump --ds postgresql://app@localhost/shop --keys 100 --records 10000`, `penstock pump --ds "host=localhost
    dbname=shop" --interval 5`
    """
    from penstock.harvest.translation import database

    try:
        import psycopg
    except ImportError as error:
        raise ConfigInvalid("an outbox in Postgres needs psycopg 3", "pip install 'penstock[postgres]'") from error
    began = time.monotonic()
    try:
        with closing(psycopg.connect(database(dsn))) as connection:
            layout = _layout(connection, outbox)
            for number, rows in enumerate(batches(records, keys, topic, blank, random.Random())):
                if number and interval:
                    time.sleep(interval / 1000)
                with connection.transaction():
                    stash_many(connection, rows, table=outbox, layout=layout)
    except psycopg.OperationalError as error:
        raise SourceUnavailable(f"cannot write to {outbox}: {scrubbed(str(error), dsn)}", "check that the server runs") from None
    except psycopg.Error as error:
        raise ConfigInvalid(f"cannot write to {outbox}: {scrubbed(str(error), dsn)}", "correct --ds or --outbox") from None
    taken = time.monotonic() - began
    terminal.say(f"{outbox}: {records} records in {taken:.1f} s, {records / taken:.0f}/s")


def batches(records: int, keys: int, topic: str, blank: bool, chance: random.Random) -> Iterator[Sequence[Row]]:
    """The rows of each transaction."""
    for start in range(0, records, BATCH):
        numbers = range(start, min(start + BATCH, records))
        yield [(topic, f"key-{chance.randrange(keys):x}", None if blank else f"value-{n:x}", {"Seq": str(n)}) for n in numbers]


def _layout(connection: Any, outbox: str) -> Layout:
    """The layout of this table, by its columns. Raises ConfigInvalid."""
    columns = [column.name for column in connection.execute(f"select * from {quoted(outbox)} limit 0").description]
    connection.rollback()
    if "kafka_topic" in columns:
        return "goharvest"
    if "header_values" in columns:
        return "penstock"
    raise ConfigInvalid(f"{outbox} is not an outbox", "create one: penstock outbox init DSN --layout goharvest")
