"""One session with the state database: connection, time limits, and translation of Postgres errors."""

from __future__ import annotations

import os
import re
import select
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql

from penstock.coordinators.postgres import address, schema
from penstock.coordinators.postgres.schema import NAME
from penstock.errors import StateInvalid, StateRefused, StateUnavailable
from penstock.text.dsn import scrubbed, shown

OLDEST = 120000

# Server and client end a statement after the same time, and detect a lost connection after the same time. Commits are flushed
# before they are visible, because sources prune changes on the strength of them.
_SETTINGS = """
select set_config('search_path', 'pg_catalog', false), set_config('statement_timeout', %(patience)s, false),
    set_config('lock_timeout', %(patience)s, false), set_config('idle_in_transaction_session_timeout', '5000', false),
    set_config('tcp_keepalives_idle', '2', false), set_config('tcp_keepalives_interval', '1', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '5000', false),
    set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on'
        else current_setting('synchronous_commit') end, false),
    pg_backend_pid()
"""

_REACHABLE = "check that the server runs and is reachable from this machine"
_ADMITTED = "correct user, password and database under `state`, or admit them on the server"
_POOLED = "connect to the server directly: session locks do not work through a pooler"

T = TypeVar("T")


@cache
def spelled(text: str) -> bytes:
    """A statement with its parameters as psycopg names them."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", text).encode()


class Session(psycopg.Connection[Any]):
    """A connection that waits `patience` seconds for an answer: a server may be silent."""

    patience: float = address.PATIENCE

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Wait for one answer of the server."""
        return super().wait(_limited(gen, self.patience), *args, **options)


def _limited(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The same generator, which fails after this time; the driver resumes it every tenth of a second."""
    deadline = time.monotonic() + seconds
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and time.monotonic() > deadline:
                raise psycopg.OperationalError(f"no answer within {seconds:.1f} s")
            state = gen.send(ready)
    except StopIteration as end:
        answer: T = end.value
        return answer


class StateStore:
    """One checked session; the tables exist unless `is_new`.

    `patience`: seconds to wait for the session, and for each answer; by default the value of the DSN.
    """

    schema, now = f"{NAME}.", "now()"

    def __init__(self, dsn: str, *, creates: bool = False, patience: float | None = None) -> None:
        self.dsn, self.address = dsn, shown(dsn)
        self.patience = patience or address.patience(dsn)
        with self._translated():
            self._session = Session.connect(address.complete(dsn, int(self.patience)), autocommit=True)
            self._session.patience = self.patience
            _alive.add(self._session)
            self._user = sql.Identifier(self._session.info.user).as_string(self._session)
            try:
                self.is_new = not self._greet(creates)
            except BaseException:
                self._session.close()
                raise

    def rows(self, text: str, /, **values: object) -> Sequence[tuple[Any, ...]]:
        """The rows that a statement returns."""
        with self._translated():
            return self._session.execute(spelled(text), values).fetchall()

    def write(self, text: str, /, **values: object) -> bool:
        """Execute one statement; False if it changed no row."""
        with self._translated():
            return self._session.execute(spelled(text), values).rowcount > 0

    @contextmanager
    def atomic(self, *, flushes: bool = True) -> Iterator[None]:
        """A transaction; Postgres flushes every one of them."""
        with self._translated(), self._session.transaction():
            yield

    def flush(self) -> None:
        """Commits are flushed before they are visible."""

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Wait at most this long for each answer."""
        self._session.patience = seconds
        try:
            yield
        finally:
            self._session.patience = self.patience

    def is_usable(self) -> bool:
        """Whether the session has not ended, as far as is known without a query: an idle server sends only its end."""
        if self._session.closed:
            return False
        waiting = select.poll()
        waiting.register(self._session.fileno(), select.POLLIN)
        return not waiting.poll(0)

    def examine(self) -> None:
        """Raise StateInvalid if this user lacks a right; nothing is changed."""
        [(is_missing, is_allowed)] = self.rows(schema.RIGHTS, is_new=self.is_new)
        if not is_allowed:
            fact = f"{self._user} may not {'make' if is_missing else 'use'} the schema {NAME} of {self.address}"
            raise StateInvalid(fact, schema.grants(self._user, is_missing))

    def close(self) -> None:
        """End the session, and with it its locks."""
        self._session.close()

    def _greet(self, creates: bool) -> bool:
        [greeting] = self._session.execute(_SETTINGS, {"patience": str(int(self.patience * 1000))}).fetchall()
        if greeting[-1] != self._session.info.backend_pid:
            raise StateInvalid(f"there is a connection pooler before {self.address}", _POOLED)
        if self._session.info.server_version < OLDEST:
            raise StateInvalid(f"{self.address} is older than version {OLDEST // 10000}", "use a newer server")
        if schema.is_there(self._session, self.address):
            return True
        if creates:
            schema.make(self._session, self.address, self._user)
        return creates

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise Postgres errors as StateInvalid, StateRefused or StateUnavailable; close a session whose connection failed."""
        try:
            yield
        except (errors.InsufficientPrivilege, errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName) as error:
            raise StateInvalid(f"cannot use the state in {self.address}: {self._said(error)}", self._remedy(error)) from error
        except errors.ProgramLimitExceeded:
            raise  # the caller knows the value that is too large
        except (psycopg.OperationalError, errors.ReadOnlySqlTransaction, psycopg.InterfaceError) as error:
            if hasattr(self, "_session") and error.sqlstate is None:
                self._session.close()
            fact = f"cannot use the state in {self.address}: {self._said(error)}"
            if error.sqlstate is None and address.is_refusal(str(error)):
                raise StateRefused(fact, _ADMITTED) from None
            raise StateUnavailable(fact, _REACHABLE) from None

    def _said(self, error: psycopg.Error) -> str:
        return scrubbed(error.diag.message_primary or str(error), self.dsn)

    def _remedy(self, error: psycopg.Error) -> str:
        if not isinstance(error, errors.InsufficientPrivilege):
            return "restore the tables from a backup, or: penstock forget FILE, then penstock run FILE --from ..."
        return schema.grants(self._user, is_missing=False)


_alive: weakref.WeakSet[Session] = weakref.WeakSet()
_inherited: list[Session] = []


def _disown_all() -> None:
    """In a forked child: close the sockets without a message, so that each session ends with the parent."""
    _inherited.extend(_alive)
    _alive.clear()
    for session in _inherited:
        if not session.closed:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, session.fileno())
            os.close(nowhere)


os.register_at_fork(after_in_child=_disown_all)
