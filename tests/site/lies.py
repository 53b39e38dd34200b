"""A wall clock as far off as a file says, and a state file that refuses on demand."""

import os
import sqlite3
import time
from typing import Any

_true, _file = time.time, os.environ.get("PENSTOCK_TEST_CLOCK")
_refusal = os.path.join(os.environ.get("PENSTOCK_FAILPOINTS", ""), "state.refusing")
_connect = sqlite3.connect


def _stepped() -> float:
    with open(str(_file)) as offset:
        return _true() + float(offset.read() or 0)


class _Refusing(sqlite3.Connection):
    """As on a disk that fails: every statement at once, only a transaction can still be taken back."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql != "rollback" and os.path.exists(_refusal):
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *values)


def _connected(database: Any, *rest: Any, **how: Any) -> sqlite3.Connection:
    is_state = "state.db" in str(database) and "/warm-up-" not in str(database)
    factory = {"factory": _Refusing} if is_state else {}
    return _connect(database, *rest, **factory, **how)


if _file:
    time.time = _stepped
sqlite3.connect = _connected
