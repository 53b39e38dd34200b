"""The further writes of a write, by triggers and foreign keys: SQLite compiles statements in an empty copy of the schema."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property

from penstock.sources.sqlite.triggers import quoted
from penstock.sources.sqlite.wording import folded, words

_PUTS = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE}
_WRITES = {*_PUTS, sqlite3.SQLITE_DELETE}
_UNKNOWN = re.compile(r"no such (function|collation sequence): (.+)")
_PARENTS = """select distinct f."table" from sqlite_master m, pragma_foreign_key_list(m.name) f
 where m.type = 'table' and f.on_delete not in ('NO ACTION', 'RESTRICT')"""
_COPIED = """select type, name, sql from sqlite_master
 where sql is not null and name not like 'sqlite~_%' escape '~' and name not like '~_penstock~_%' escape '~'
 order by case type when 'table' then 1 when 'index' then 2 when 'view' then 3 else 4 end, rowid"""


class Effects:
    """The effects of the triggers and foreign keys of a schema."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        """Close the copy."""
        if "_copy" in self.__dict__:
            self._copy.close()

    def writers(self, table: str, columns: Iterable[str], triggers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """The names of those triggers (name, SQL) that insert or update in the table itself before its row is written."""
        early = [(name, sql) for name, sql in triggers if is_before(sql)]
        if not early:
            return ()
        setting = ", ".join(f"{quoted(column)} = {quoted(column)}" for column in columns)
        statements = f"insert into {quoted(table)} default values", f"update {quoted(table)} set {setting}"
        if all(self._count(one, table, _PUTS) <= 1 for one in statements):  # fast: the copy is not changed
            return ()
        return tuple(name for name, sql in early if any(self._adds(sql, one, table) for one in statements))

    def is_circular(self, table: str) -> bool:
        """Whether the removal of a row can write to the table again, without a trigger of its own."""
        if folded(table) not in self._parents:
            return False
        removal = f"delete from {quoted(table)}"
        if self._count(removal, table, _WRITES) == 1:
            return False
        with self._without_triggers(table):
            return self._count(removal, table, _WRITES) != 1

    @cached_property
    def _parents(self) -> set[str]:
        return {folded(table) for (table,) in self._connection.execute(_PARENTS)}

    @cached_property
    def _copy(self) -> sqlite3.Connection:
        copy = sqlite3.connect(":memory:", isolation_level=None)
        copy.execute("pragma foreign_keys = on")
        for kind, name, sql in self._connection.execute(_COPIED).fetchall():
            is_virtual = kind == "table" and words(sql)[1].lower() == "virtual"
            _run(copy, self._stand_in(name) if is_virtual else sql)
        return copy

    def _stand_in(self, table: str) -> str:
        try:
            columns = [name for (name,) in self._connection.execute("select name from pragma_table_xinfo(?)", (table,))]
        except sqlite3.OperationalError:  # its extension is not loaded here
            columns = []
        return f"create table {quoted(table)}({', '.join(map(quoted, columns)) or 'unknown'})"

    def _adds(self, trigger: str, statement: str, table: str) -> bool:
        with self._without_triggers(table):
            without = self._count(statement, table, _PUTS)
            _run(self._copy, trigger)
            return self._count(statement, table, _PUTS) > without

    @contextmanager
    def _without_triggers(self, table: str) -> Iterator[None]:
        copy = self._copy
        copy.execute("savepoint before")
        own = "select name from sqlite_master where type = 'trigger' and tbl_name = ? collate nocase"
        for (name,) in copy.execute(own, (table,)).fetchall():
            copy.execute(f"drop trigger {quoted(name)}")
        try:
            yield
        finally:
            copy.execute("rollback to before")
            copy.execute("release before")

    def _count(self, statement: str, table: str, actions: set[int]) -> int:
        """The number of writes to the table in the compiled program of a statement, with those of its triggers and cascades."""
        found: list[str] = []

        def note(action: int, name: str | None, *_: object) -> int:
            if action in actions and name is not None:
                found.append(folded(name))
            return sqlite3.SQLITE_OK

        self._copy.set_authorizer(note)
        try:
            _run(self._copy, f"explain {statement}", found.clear)
        finally:
            self._copy.set_authorizer(None)
        return found.count(folded(table))


def is_before(trigger: str) -> bool:
    """Whether a trigger, as sqlite_master has it, fires before an insert or an update."""
    timing = [word.lower() for word in words(trigger)[3:5]]
    return timing[0] in ("insert", "update") or (timing[0] == "before" and timing[1] != "delete")


def _run(copy: sqlite3.Connection, sql: str, again: Callable[[], None] = lambda: None) -> None:
    """Run a statement, with stand-ins for functions and collations of the application; other errors are ignored."""
    for _ in range(100):
        try:
            copy.execute(sql).fetchall()
        except sqlite3.Error as error:
            unknown = _UNKNOWN.fullmatch(str(error))
            if unknown is None:
                return
            _stand_in_for(copy, *unknown.groups())
            again()
        else:
            return


def _stand_in_for(copy: sqlite3.Connection, kind: str, name: str) -> None:
    if kind == "function":
        copy.create_function(name, -1, lambda *values: None, deterministic=True)
    else:
        copy.create_collation(name, lambda one, other: (one > other) - (one < other))
