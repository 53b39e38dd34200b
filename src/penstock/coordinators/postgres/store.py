"""One session with the state database: connecting, waiting only so long, and what Postgres's errors mean."""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql

from penstock.coordinators.postgres import address, schema
from penstock.dsn import scrubbed, shown
from penstock.errors import StateInvalid, StateRefused, StateUnavailable

OLDEST = 120000

# The server ends our statements as early as we stop waiting for them, and notices a client that is cut off as early as we
# notice the server. Commits are flushed before anybody sees them: what a source forgets hangs on it.
_SETTINGS = """
select set_config('search_path', 'pg_catalog', false), set_config('statement_timeout', %(patience)s, false),
    set_config('lock_timeout', %(patience)s, false), set_config('idle_in_transaction_session_timeout', '5000', false),
    set_config('tcp_keepalives_idle', '2', false), set_config('tcp_keepalives_interval', '1', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '5000', false),
    set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on'
        else current_setting('synchronous_commit') end, false),
    pg_backend_pid()
"""

_REACHABLE = "see that the server runs and can be reached from here"
_ADMITTED = "correct user, password and database under `state`, or admit them on the server"
_POOLED = "name the server itself: locks that hang on sessions do not work through a pooler"

T = TypeVar("T")


class Session(psycopg.Connection[Any]):
    """A connection that waits for an answer for so long only: a server may also be silent."""

    patience: float = address.PATIENCE

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Wait for one step of the conversation."""
        return super().wait(_limited(gen, self.patience), *args, **options)


def _limited(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The same conversation, which fails when its time is over; the driver looks in every tenth of a second."""
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


class Store:
    """One session, checked and ready; the tables are there unless `is_new`.

    `patience`: seconds to wait for the session, and for each answer; by default as many as the DSN says.
    """

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
        """What a query answers."""
        with self._translated():
            return self._session.execute(text.encode(), values).fetchall()

    def write(self, text: str, /, **values: object) -> bool:
        """Do one statement, durable as a whole; False if its condition held for no row."""
        with self._translated():
            return self._session.execute(text.encode(), values).rowcount > 0

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """All writes inside at once, or none of them."""
        with self._translated(), self._session.transaction():
            yield

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Wait no longer than this for each answer."""
        self._session.patience = seconds
        try:
            yield
        finally:
            self._session.patience = self.patience

    def is_usable(self) -> bool:
        """Whether nobody has ended the session, as far as can be told without asking: an idle server says nothing but farewell."""
        if self._session.closed:
            return False
        waiting = select.poll()
        waiting.register(self._session.fileno(), select.POLLIN)
        return not waiting.poll(0)

    def examine(self) -> None:
        """Raise StateInvalid if this user lacks a right; nothing is changed."""
        [(is_missing, is_allowed)] = self.rows(schema.RIGHTS, is_new=self.is_new)
        if not is_allowed:
            what = f"{self._user} may not {'make' if is_missing else 'use'} the schema {schema.NAME} of {self.address}"
            raise StateInvalid(what, schema.grants(self._user, is_missing))

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
        """Postgres's errors as ours; a session on which something went wrong on the way is not used any more."""
        try:
            yield
        except (errors.InsufficientPrivilege, errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName) as error:
            raise StateInvalid(f"cannot use the state in {self.address}: {self._said(error)}", self._remedy(error)) from error
        except errors.ProgramLimitExceeded:
            raise  # of one value, about which the caller knows more
        except (psycopg.OperationalError, errors.ReadOnlySqlTransaction, psycopg.InterfaceError) as error:
            if hasattr(self, "_session") and error.sqlstate is None:
                self._session.close()
            said = f"cannot use the state in {self.address}: {self._said(error)}"
            if error.sqlstate is None and address.is_refusal(str(error)):
                raise StateRefused(said, _ADMITTED) from None
            raise StateUnavailable(said, _REACHABLE) from None

    def _said(self, error: psycopg.Error) -> str:
        return scrubbed(error.diag.message_primary or str(error), self.dsn)

    def _remedy(self, error: psycopg.Error) -> str:
        if not isinstance(error, errors.InsufficientPrivilege):
            return "restore the tables from a backup, or: penstock forget FILE, then penstock run FILE --from ..."
        return schema.grants(self._user, is_missing=False)


_alive: weakref.WeakSet[Session] = weakref.WeakSet()
_inherited: list[Session] = []


def _disown_all() -> None:
    """In a forked child: let go of the sockets, so that a session ends with its parent, and say nothing on them."""
    _inherited.extend(_alive)
    _alive.clear()
    for session in _inherited:
        if not session.closed:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, session.fileno())
            os.close(nowhere)


os.register_at_fork(after_in_child=_disown_all)
