"""What SQLite itself says of the effects of a write, whatever the schema is spelled like."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from replay import assert_log_makes, connect, logged, source_of

from penstock.errors import CaptureBroken, CaptureRefused
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.sqlite.effects import Effects
from penstock.sources.sqlite.install import disable, enable
from penstock.sources.sqlite.source import LANE

EARLY = "create trigger tr before insert on {} begin insert or replace into orders values(1, new.b); end"


@pytest.mark.parametrize("spelling", ["orders", "Orders", '"ORDERS"', "[oRDERS]"])
def test_a_trigger_that_writes_too_early_is_refused_however_it_spells_its_table(path: Path, spelling: str) -> None:
    with closing(connect(path)) as writer:
        writer.execute("create table orders(a integer primary key, b unique)")
        writer.execute(EARLY.format(spelling))
        with pytest.raises(CaptureRefused, match="its own trigger tr writes to it before"):
            enable(str(path))


def test_a_later_trigger_is_noticed_however_it_spells_its_table(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.execute("create table orders(a integer primary key, b)")
        enable(str(path))
        start = source_of(path).begin(LANE, "beginning")
        writer.execute("create trigger late after insert on ORDERS begin update orders set b = 9 where a = new.a; end")
        with pytest.raises(CaptureBroken, match="got the trigger late"):
            next(follow(source_of(path, heal=False), LANE, start, ANONYMOUS))


@pytest.mark.parametrize("name", ["par", "Äpar", "p ar"])
def test_a_cascade_over_a_unique_index_and_any_name_leads_back(path: Path, name: str) -> None:
    table = f'"{name}"'
    with closing(connect(path, foreign_keys=True)) as writer:
        writer.executescript(
            f"create table {table}(id integer primary key, code); create unique index codes on {table}(code);"
            f"create table child(p references {table}(code) on delete cascade);"
            f"create trigger t after delete on child begin delete from {table} where code = 'b'; end"
        )
        tables = enable(str(path)).tables
        writer.executescript(f"insert into {table} values(1, 'a'), (2, 'b'); insert into child values('a')")
        writer.execute(f"update or replace {table} set id = 1 where id = 2")
        assert writer.execute(f"select * from {table}").fetchall() == []
        logged(path)
        assert_log_makes(path, writer, tables, is_strict=False)


def test_a_virtual_table_of_an_extension_that_is_not_loaded_is_no_obstacle(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.executescript(
            "create table p(id integer primary key); create table c(p references p on delete cascade);"
            "pragma writable_schema = on;"
            "insert into sqlite_master values('table', 'vec', 'vec', 0, 'create virtual table vec using vec0(a)');"
            "pragma writable_schema = reset"
        )
    with closing(connect(path)) as writer:
        tables = enable(str(path), "p|c").tables
        writer.executescript("pragma foreign_keys = on; insert into p values(1); insert into c values(1); delete from p")
        assert_log_makes(path, writer, tables)
        disable(str(path))


def test_the_copy_of_the_schema_stays_as_it_is_where_one_look_is_enough(path: Path) -> None:
    with closing(connect(path)) as writer:
        for n in range(3):
            writer.execute(f"create table t{n}(a integer primary key, p references t{max(0, n - 1)} on delete set null)")
            writer.execute(f"create trigger b{n} before insert on t{n} begin select raise(ignore) where new.a = 0; end")
        with closing(Effects(writer)) as effects:
            [(before,)] = effects._copy.execute("pragma schema_version")
            triggers = {f"t{n}": [("b", f"create trigger b{n} before insert on t{n} begin select 1; end")] for n in range(3)}
            assert [effects.writers(table, ["a", "p"], own) for table, own in triggers.items()] == [(), (), ()]
            assert effects.is_circular("t2") is False
            assert effects._copy.execute("pragma schema_version").fetchall() == [(before,)]
