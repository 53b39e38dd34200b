"""The same nemesis over everything a pipeline can do: a snapshot, transforms, parallel requests, batches, and migrations."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fix_rig import Rig
from nemesis import Nemesis
from penstock.sources.sqlite.suspend import resume, suspend
from penstock.testing import oracle
from shop import Keeper

SECONDS = float(os.environ.get("PENSTOCK_NEMESIS_SECONDS", "50"))

RULES = """
def split(change):
    return [change, change] if change.table == "stock" and change.op == "insert" else change
"""
TRANSFORM = {"where": "op <> 'delete' or table is not null", "function": "rules:split"}
COLUMNS = {
    "customers": ("id", "name", "email"),
    "orders": ("id", "customer", "total", "note"),
    "items": ("order_id", "line", "sku", "quantity"),
    "stock": ("sku", "on_hand"),
}


class WideNemesis(Nemesis):
    """Also changes the schema, and runs batches beside the others."""

    def _run_a_batch(self) -> None:
        batch = self._rig.start("--available-now")
        assert batch.exit_code(120) == 0, batch.tail()

    def _add_a_column(self) -> None:
        table = self._chance.choice(list(COLUMNS))
        with self._schema() as connection:
            connection.execute(f"alter table {table} add column extra_{self._chance.randrange(10**6)} default 7")

    def _rename_a_column(self) -> None:
        for table, column in self._extras():
            with self._schema() as connection:
                connection.execute(f"alter table {table} rename column {column} to extra_{self._chance.randrange(10**6)}")

    def _drop_a_column(self) -> None:
        """As a migration does that was told to suspend capture."""
        for table, column in self._extras():
            suspend(str(self._rig.shop.path), table)
            with self._schema() as connection:
                connection.execute(f"alter table {table} drop column {column}")
            resume(str(self._rig.shop.path), table)

    def _rebuild_a_table(self) -> None:
        """New, copy, drop, rename: the triggers go with the table, and every row is told again."""
        suspend(str(self._rig.shop.path), "stock")
        with self._schema() as connection:
            connection.executescript(
                "begin immediate; create table fresh(sku text primary key, on_hand integer not null check(on_hand >= 0));"
                "insert into fresh select sku, on_hand from stock; drop table stock; alter table fresh rename to stock; commit"
            )
        resume(str(self._rig.shop.path), "stock")

    @contextmanager
    def _schema(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._rig.shop.path, timeout=30, isolation_level=None)) as connection:
            yield connection

    def _extras(self) -> list[tuple[str, str]]:
        """One of the columns that were added, if there is one."""
        sql = "select m.name, c.name from sqlite_master m, pragma_table_info(m.name) c where c.name glob 'extra_*'"
        with self._schema() as connection:
            found = [one for one in connection.execute(sql) if one[0] in COLUMNS]
        return [self._chance.choice(found)] if found else []

    STEPS = (
        *Nemesis.STEPS,
        *(_run_a_batch,) * 2,
        *(_add_a_column,) * 2,
        _rename_a_column,
        _drop_a_column,
        _rebuild_a_table,
    )


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path, start="snapshot", transform=TRANSFORM, parallel=4) as rig:
        (tmp_path / "rules.py").write_text(RULES)
        keeper = Keeper(rig.shop, seed=1)
        for _ in range(300):
            keeper.act()
        rig.shop.is_migrated = True
        yield rig


@pytest.mark.timeout(SECONDS + 400)
def test_the_copy_is_right_and_every_row_in_order_whatever_is_broken_or_migrated(wide: Rig, note: Any) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1 << 32))
    note(f"PENSTOCK_SEED={seed}")
    nemesis, keeper = WideNemesis(wide, seed), Keeper(wide.shop, seed)
    keeper.start()
    nemesis.torment(SECONDS)
    keeper.stop()
    nemesis.heal()
    wide.until_settled(within=120)
    assert nemesis.end() == [0, 0]
    seen = wide.deliveries()
    note(f"{sum(nemesis.counts.values())} steps: {dict(nemesis.counts.most_common())}; {len(seen)} deliveries")
    assert oracle.order(seen) == []
    tables = {table: [bare_row(row, table) for row in rows] for table, rows in wide.shop.tables().items()}
    assert oracle.rebuilt([bare(one) for one in seen], tables) == []


def bare(delivery: oracle.Delivery) -> oracle.Delivery:
    """Without columns that were added: a row that nobody has touched since then was not told again."""
    change = delivery.change
    if change["op"] == "schema":
        return delivery
    images = {side: bare_row(change[side], change["table"]) for side in ("before", "after") if side in change}
    return replace(delivery, change={**change, **images})


def bare_row(row: dict[str, Any], table: str) -> dict[str, Any]:
    return {name: row[name] for name in COLUMNS[table] if name in row}
