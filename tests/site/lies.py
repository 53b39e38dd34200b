"""A wall clock as far off as a file says, a state file that refuses on demand, and a disk that is full on demand."""

import os
import sqlite3
import time
from typing import Any

_true, _file = time.time, os.environ.get("PENSTOCK_TEST_CLOCK")
_orders = os.environ.get("PENSTOCK_FAILPOINTS", "")
_refusal, _full = os.path.join(_orders, "state.refusing"), os.path.join(_orders, "disk.full")
_WRITES = ("insert", "update", "delete", "replace", "with", "commit", "create", "alter", "drop")
_connect = sqlite3.connect


def _stepped() -> float:
    with open(str(_file)) as offset:
        return _true() + float(offset.read() or 0)


class _OnFullDisk(sqlite3.Connection):
    """Reads, and takes transactions back; nothing that is written comes to the disk."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql.lstrip().lower().startswith(_WRITES):
            _need_room()
        return super().execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
        _need_room()
        return super().executemany(sql, *values)

    def commit(self) -> None:
        if self.in_transaction:
            _need_room()
        super().commit()


def _need_room() -> None:
    if os.path.exists(_full):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
        raise error


class _Refusing(_OnFullDisk):
    """As on a disk that fails: every statement at once, only a transaction can still be taken back."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql != "rollback" and os.path.exists(_refusal):
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *values)


def _connected(database: Any, *rest: Any, **how: Any) -> sqlite3.Connection:
    is_state = "state.db" in str(database) and "/warm-up-" not in str(database)
    return _connect(database, *rest, **{"factory": _Refusing if is_state else _OnFullDisk, **how})


if _file:
    time.time = _stepped
sqlite3.connect = _connected
