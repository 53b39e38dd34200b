"""A dump restored into a new cluster, whose transaction ids begin again: noticed, and nothing of it is stuck."""

from __future__ import annotations

import psycopg
import pytest
from boxes import Box, Values

from penstock.errors import SourceRewound
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.sources.outbox.source import LANE
from servers.postgres import PostgresServer


def restore(box: Box, dsn: str) -> None:
    """Every row as it is, as pg_dump and pg_restore do it."""
    init(dsn, Names(box.table))
    with psycopg.connect(box.dsn) as old, psycopg.connect(dsn) as new:
        for suffix in ("", "_window", "_life", "_reader"):
            table = f"{box.table}{suffix}"
            new.execute(f"delete from {table}".encode())
            columns = ", ".join(row[0] for row in new.execute(f"select * from {table}".encode()).description or ())
            with (
                old.cursor().copy(f"copy {table} ({columns}) to stdout".encode()) as out,
                new.cursor().copy(f"copy {table} ({columns}) from stdin".encode()) as into,
            ):
                for piece in out:
                    into.write(piece)
        new.execute(f"select setval('{box.table}_id_seq', (select max(id) from {box.table}))".encode())


def next_xid(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        [(found,)] = connection.execute("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchall()
    return int(found)


def outrun(dsn: str, xid: int) -> None:
    """Use transaction ids up to this one: each block that can be rolled back by itself takes one."""
    block = "begin insert into used values (n); exception when others then raise; end;"
    many = f"for n in 1..{max(0, xid - next_xid(dsn))} loop {block} end loop;"
    with psycopg.connect(dsn) as connection:
        connection.execute(f"do $$ begin create temp table used (n int) on commit drop; {many} end $$".encode())


def test_a_dump_restored_into_a_new_cluster_is_noticed_and_everything_in_it_is_sent_when_a_person_says_so(
    box: Box, values: Values, breakable_postgres: PostgresServer
) -> None:
    dsn = breakable_postgres.create_database()
    outrun(box.dsn, next_xid(dsn) + 1000)  # other tests have used ids of both clusters
    for n in range(50):
        box.commit(f"m{n}")
    box.source.retention.settle("p", LANE, box.source.begin(LANE, "40"))
    head = box.source.cursor_after(box.changes(box.source.begin(LANE, "40"))[-1], box.start)
    box.commit("not in a window yet")
    restore(box, dsn)
    restored = Box(dsn, box.table)
    assert restored.execute("select bool_and(xid >= pg_snapshot_xmax(pg_current_snapshot())) from {}") == [(True,)]
    restored.commit("written in the new cluster")
    for deed in (lambda: restored.source.head(LANE), lambda: next(follow(restored.source, LANE, head, ANONYMOUS))):
        with pytest.raises(SourceRewound, match="another cluster") as caught:
            deed()
    assert "--from beginning" in caught.value.remedy
    restored.source.seek.renew()
    start = restored.source.begin(LANE, "beginning")
    expected = [*(f"m{n}" for n in range(40, 50)), "not in a window yet", "written in the new cluster"]
    assert values(restored.changes(start)) == expected
    restored.commit("later")
    assert values(restored.changes(start)) == [*expected, "later"]
