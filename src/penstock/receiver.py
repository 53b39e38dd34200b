"""For receivers of webhooks: every change once, in order, from one leader at a time.

    receiver = Receiver(SqliteStore(db))

    with receiver.accepting(headers, body) as verdict:
        for change in verdict.changes:
            ...  # apply it through the same `db`: recorded and applied together, or not at all
    return verdict.status

Uses only the standard library, and works with any web framework. Reads the format `penstock`.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import quote
from weakref import finalize

from penstock import signature

LARGEST = 64 << 20
"""The most bytes of a decompressed body, by default."""

_EPOCH = re.compile(r"[0-9]{1,18}")
_GZIP_WINDOW = 31

Place = tuple[int, int]
"""The position and ordinal of a change in its lane."""

Change = Mapping[str, Any]
"""A change as in the body."""


class Store(Protocol):
    """Stores texts by name.

    - There is one transaction at a time among all users of the store: others wait.
    - Writes of a transaction are undone if its block raises, and are durable when the block has ended.
    """

    def transaction(self) -> AbstractContextManager[object]:
        """A block in which `get`, `put` and `drop` are called."""

    def get(self, name: str) -> str | None:
        """The text of this name."""

    def put(self, name: str, text: str) -> None:
        """Store this text, in place of an earlier one."""

    def drop(self, prefix: str) -> None:
        """Remove all names with this prefix."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status to answer, and the new changes. `reason` is that of a refusal."""

    status: int
    changes: Sequence[Change] = ()
    repeats: int = 0
    reason: str = ""


class Receiver:
    """Judges requests; docs/webhook.md describes the algorithm.

    - A request with an epoch below the highest one of its pipeline is refused: 409.
    - Changes that were accepted before are left out of the verdict.
    - by="lane", for senders with `parallel: 1`: a request after a gap is refused: 409.
    - by="row", for senders with any `parallel`, and for those that park poison: each row has a position; gaps are not detected.
    - A dead letter that is sent again follows the earlier changes of its row; in its lane it is outside the order.
    """

    def __init__(
        self,
        store: Store,
        *,
        by: Literal["lane", "row"] = "lane",
        secret: str | Sequence[str] = (),
        largest: int = LARGEST,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if by not in ("lane", "row"):
            raise ValueError(f"by is {by!r}: it must be 'lane' or 'row'")
        if largest < 1:
            raise ValueError(f"largest is {largest}: it must be 1 or more")
        secrets = [secret] if isinstance(secret, str) else secret
        self._keys = [signature.key(one) for one in secrets]
        self._store, self._by, self._largest, self._clock = store, by, largest, clock

    def accept(self, headers: Mapping[str, str], body: bytes) -> Verdict:
        """Judge a request and record it: for code that has begun the store's transaction, or that stores the changes first."""
        with self.accepting(headers, body) as verdict:
            return verdict

    @contextmanager
    def accepting(self, headers: Mapping[str, str], body: bytes) -> Iterator[Verdict]:
        """Judge a request; it is recorded when the block ends, and not if it raises. Meanwhile no other is judged."""
        try:
            request = self._read({name.lower(): value for name, value in headers.items()}, body)
        except _Refusal as refusal:
            yield Verdict(refusal.status, reason=str(refusal))
            return
        if not request.changes:  # a probe
            yield Verdict(200)
            return
        with self._store.transaction():
            yield self._judge(request)

    def forget(self, pipeline: str, *, epoch: bool = False) -> None:
        """Accept changes again that were accepted before, as after `penstock rewind`.

        With `epoch`, also from an earlier epoch: only after the loss of the pipeline's state, whose epochs then begin at 1 again.
        """
        name = quote(pipeline, safe="")
        with self._store.transaction():
            self._store.drop(f"place/{name}/")
            if epoch:
                self._store.drop(f"epoch/{name}/")

    def _read(self, headers: Mapping[str, str], body: bytes) -> _Request:
        content = _decoded(headers.get("content-encoding", "identity"), body, self._largest)
        if self._keys and (complaint := signature.complaint(self._keys, headers, content, self._clock())):
            raise _Refusal(401, complaint)
        request = _request(headers, content)
        if self._keys and request.changes and not signature.covers(headers):
            raise _Refusal(401, f"the signature does not cover the headers {', '.join(signature.ACTED_ON)} as they are")
        return request

    def _judge(self, request: _Request) -> Verdict:
        name = f"epoch/{request.pipeline}/"
        newest = int(self._store.get(name) or 0)
        if request.epoch < newest:
            return Verdict(409, reason=f"epoch {request.epoch} is over: epoch {newest} has begun")
        if request.epoch > newest:
            self._store.put(name, str(request.epoch))
        if self._by == "row":
            return self._by_name(request, _rows)
        if request.is_redriven:  # letters have places below the last of their lane: each is known by its own
            return self._by_name(request, lambda change: [f"redriven/{_place(change)}"])
        return self._by_lane(request)

    def _by_lane(self, request: _Request) -> Verdict:
        last = self._last(request.lane)
        fresh = [change for change in request.changes if last is None or _place(change) > last]
        if missing := _gap(fresh, last and last[0]):
            return Verdict(409, reason=f"{missing}; with parallel requests, or where poison is parked, use by='row'")
        if fresh:
            self._keep(request.lane, _place(fresh[-1]))
        return Verdict(200, fresh, len(request.changes) - len(fresh))

    def _by_name(self, request: _Request, names_of: Callable[[Change], Sequence[str]]) -> Verdict:
        """Accept each change whose place is after the last one of all its names."""
        fresh = []
        for change in request.changes:
            names = [f"{request.lane}{name}" for name in names_of(change)]
            if all((last := self._last(name)) is None or _place(change) > last for name in names):
                fresh.append(change)
                for name in names:
                    self._keep(name, _place(change))
        return Verdict(200, fresh, len(request.changes) - len(fresh))

    def _last(self, name: str) -> Place | None:
        found = self._store.get(name)
        if found is None:
            return None
        position, ordinal = found.split(".")
        return int(position), int(ordinal)

    def _keep(self, name: str, place: Place) -> None:
        self._store.put(name, f"{place[0]}.{place[1]}")


class _Refusal(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Request(NamedTuple):
    pipeline: str
    lane: str
    epoch: int
    changes: list[Change]
    is_redriven: bool = False


def _decoded(encoding: str, body: bytes, largest: int) -> bytes:
    if encoding.strip().lower() == "identity":
        content = body
    elif encoding.strip().lower() == "gzip":
        reader = zlib.decompressobj(_GZIP_WINDOW)
        try:
            content = reader.decompress(body, largest + 1)
        except zlib.error:
            raise _Refusal(400, "the body is not gzip, unlike its Content-Encoding") from None
        if not reader.eof and len(content) <= largest:
            raise _Refusal(400, "the compressed body was cut off")
    else:
        raise _Refusal(415, "Content-Encoding is neither gzip nor identity")
    if len(content) > largest:
        raise _Refusal(413, f"the body has more than {largest} bytes")
    return content


def _request(headers: Mapping[str, str], content: bytes) -> _Request:
    pipeline, changes = _content(content)
    if not changes:
        return _Request(pipeline, "", 0, [])
    for name in ("Penstock-Lane", "Penstock-Incarnation", "Penstock-Epoch"):
        if not headers.get(name.lower()):
            raise _Refusal(400, f"the header {name} is missing: check whether a proxy removes it")
    if not _EPOCH.fullmatch(headers["penstock-epoch"]):
        raise _Refusal(400, "the header Penstock-Epoch is not a number")
    inner = "/".join(quote(headers[f"penstock-{part}"], safe="%:") for part in ("incarnation", "lane"))
    epoch, is_redriven = int(headers["penstock-epoch"]), bool(headers.get("penstock-redriven"))
    return _Request(pipeline, f"place/{pipeline}/{inner}/", epoch, changes, is_redriven)


def _content(content: bytes) -> tuple[str, list[Change]]:
    """The name of the pipeline, percent-encoded, and the changes."""
    try:
        found = json.loads(content)
        pipeline, changes = quote(found["pipeline"], safe=""), found["changes"]
        is_whole = isinstance(changes, list) and all(map(_is_change, changes))
    except (ValueError, LookupError, TypeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise _Refusal(400, "the body is not of format penstock")
    return pipeline, changes


def _is_change(change: Any) -> bool:
    is_chained = type(change["previous"]) in (int, type(None)) and type(change.get("ordinal", 0)) is int
    return type(change["position"]) is int and is_chained and isinstance(change["table"], str) and isinstance(change["key"], dict)


def _place(change: Change) -> Place:
    return change["position"], change.get("ordinal", 0)


def _gap(fresh: Sequence[Change], last: int | None) -> str | None:
    """The missing position before one of these. A position below `last` is no gap: after a crash the sender begins there again."""
    for change in fresh:
        if last is not None and (change["previous"] or 0) > last:
            return f"position {change['previous']} is missing before {change['position']}: the last one here is {last}"
        last = change["position"]
    return None


def _rows(change: Change) -> list[str]:
    """The row of its key, and of its former key if an update has changed it."""
    key, before = change["key"], change.get("before")
    was = {name: before[name] for name in key} if isinstance(before, dict) and key.keys() <= before.keys() else key
    texts = (json.dumps([change["table"], one], sort_keys=True) for one in ([key] if was == key else [key, was]))
    return [hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for text in texts]


class SqliteStore:
    """Stores texts in a table of a database of yours: changes that are applied over the same connection are recorded with them."""

    def __init__(self, connection: sqlite3.Connection, table: str = "_penstock_receiver") -> None:
        self._connection, self._lock = connection, RLock()
        self._table = '"' + table.replace('"', '""') + '"'
        connection.execute(f"create table if not exists {self._table} (name text primary key, text text not null) without rowid")
        connection.commit()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction of the database, or a part of one that was begun before (`begin immediate`)."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("begin immediate")
            try:
                yield
                self._end("commit")
            except BaseException:  # also after a failed commit: an open transaction would be taken for the caller's
                self._end("rollback")
                raise

    def _end(self, word: str) -> None:
        """Commit or roll back by SQL: the methods of a connection with `autocommit=True` do nothing."""
        if self._connection.in_transaction:
            self._connection.execute(word)

    def get(self, name: str) -> str | None:
        """The text of this name."""
        row = self._connection.execute(f"select text from {self._table} where name = ?", [name]).fetchone()
        return row and str(row[0])

    def put(self, name: str, text: str) -> None:
        """Store this text."""
        self._connection.execute(f"insert or replace into {self._table} values (?, ?)", [name, text])

    def drop(self, prefix: str) -> None:
        """Remove all names with this prefix."""
        self._connection.execute(f"delete from {self._table} where substr(name, 1, ?) = ?", [len(prefix), prefix])


class MemoryStore(SqliteStore):
    """Stores texts in memory: for tests, and for receivers whose data is in memory, too."""

    def __init__(self) -> None:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        super().__init__(connection)
        finalize(self, connection.close)
