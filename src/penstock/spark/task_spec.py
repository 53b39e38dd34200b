"""The specification of one query, and the signals between its driver, reader and writer.

Reader and writer of a lane are two processes of one Spark task on one host; the driver may be on another. Correctness depends on
the coordinator; the flags (files) and events (datagrams) here only save time.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path

import pyarrow as pa

from penstock.change import Lane
from penstock.coordinator import Term
from penstock.errors import Directive, EngineFailed, PenstockError
from penstock.event import AttemptFailed, Event, from_line, shortened, to_line
from penstock.files import privacy
from penstock.pipeline import Pipeline
from penstock.progress.backfill import Backfill
from penstock.progress.batch_target import Target
from penstock.spark.bundles import encoding_of
from penstock.spark.cipher import KEY, decrypt, encrypt
from penstock.spark.plan import Plan
from penstock.spark.stop_before import StopBefore

AWAIT_SECONDS = 0.01
"""Interval of the looks for a term."""

DATAGRAM = 100_000
"""The limit of a datagram with events: the system accepts two hundred thousand bytes."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One pipeline under one term, with a folder for signals; `query` distinguishes the queries of a term.

    With a target it is a batch, which ends at the heads of lanes, or with the last range of a backfill.
    Changes of more than `max_row` bytes are poison.
    Without a term, its readers wait for one: that of a standby is prepared before it leads.
    Its readers halt before the changes of `stops`, one in a lane. It reads `lanes`, or all current ones.
    """

    pipeline: Pipeline
    given: Term | None
    folder: str
    query: str
    epoch_seconds: float
    target: Target | Backfill | None = None
    max_row: int | None = None
    stops: Collection[StopBefore] = ()
    lanes: Collection[Lane] | None = None

    def encrypt(self, key: str) -> str:
        """The spec as one line, encrypted since Spark shows and broadcasts options, after its plan (see `planned`)."""
        return f"{self._plan()} {encrypt(pickle.dumps(self), key)}"

    def store(self) -> str:
        """The spec as one line with a file in place of the encrypted part, for workers on this host."""
        packed = pickle.dumps(self)
        path = f"{os.path.abspath(self.folder)}/{self.query}.{hashlib.sha256(packed).hexdigest()[:12]}.spec"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(packed)
        return f"{self._plan()} {path}"

    def _plan(self) -> str:
        return Plan(
            "live" if self.target is None else "batch",
            list(self.pipeline.source.lanes() if self.lanes is None else self.lanes),
            encoding_of(self.pipeline.transform.has_sql).ddl,
        ).encode()

    @staticmethod
    def decode(text: str) -> TaskSpec:
        """The spec of a line."""
        packed = text.partition(" ")[2]
        data = Path(packed).read_bytes() if packed.startswith("/") else decrypt(packed, os.environ.get(KEY, ""))
        spec = pickle.loads(data)
        assert isinstance(spec, TaskSpec)
        return spec

    @property
    def term(self) -> Term:
        """The term, given at the start or later."""
        return self.given or Term(**json.loads(Path(self._flag("term")).read_text()))

    def lead(self, term: Term) -> None:
        """Give the term to the waiting readers."""
        draft = Path(self._flag("draft"))
        draft.write_text(json.dumps(asdict(term)))
        draft.rename(self._flag("term"))

    def await_term(self) -> bool:
        """Wait for the term; False if a stop is requested."""
        if self.given is None:
            Path(self._flag("ready")).touch()
            while not os.path.exists(self._flag("term")) and not self.is_stopped():
                time.sleep(AWAIT_SECONDS)
        return not self.is_stopped()

    def is_ready(self) -> bool:
        """Whether a reader waits for the term."""
        return os.path.exists(self._flag("ready"))

    def stop(self) -> None:
        """Request the end of readers and writers."""
        Path(self._flag("stop")).touch()

    def is_stopped(self) -> bool:
        """Whether a stop was requested."""
        return os.path.exists(self._flag("stop"))

    def has_failed(self, task: int) -> bool:
        """Whether the other half of this task has failed, which Spark reports only at the end of the epoch."""
        return os.path.exists(self._flag(f"failed-{task}"))

    def asked_at(self, task: int) -> int | None:
        """The time of the stop request, or of a failure of this task, in nanoseconds since 1970; None without either."""
        flags = (Path(self._flag(name)) for name in ("stop", f"failed-{task}"))
        return min((flag.stat().st_mtime_ns for flag in flags if flag.exists()), default=None)

    @contextmanager
    def reporting(self, task: int) -> Iterator[None]:
        """Report an error to the other half and to the driver, and raise it again: the only broad catch on the data path.

        An error that needs an operator is recorded with the term, and ends every further attempt.
        """
        try:
            yield
        except Exception as error:
            privacy.make_folder(Path(self.folder))  # missing on another host
            Path(self._flag(f"failed-{task}")).touch()
            code = error.code if isinstance(error, PenstockError) else EngineFailed.code
            self.emit(AttemptFailed(pipeline=self.pipeline.name, code=code, message=str(error), attempt=task))
            if isinstance(error, PenstockError) and error.directive is Directive.HALT:
                self.pipeline.state.halt(self.term, error.facts())
                self.stop()
            raise

    def put_aside(self, lane: Lane, task: int, row: pa.RecordBatch) -> str:
        """Write a change that is too large for Spark to a file, for the writer of this task; a lane has at most one file."""
        folder = self.own_folder()
        kind = f"row-{hashlib.sha256(f'{self.pipeline.name} {lane}'.encode()).hexdigest()[:12]}"
        for left in folder.glob(f"*.{kind}-*"):  # by an attempt that was killed
            left.unlink(missing_ok=True)
        path = self._flag(f"{kind}-{task}-{row.column('position')[0]}-{row.column('ordinal')[0]}")
        _write_row(f"{path}.draft", row)
        os.rename(f"{path}.draft", path)
        return os.path.abspath(path)

    def discard(self) -> None:
        """Remove the files of large changes, after the end of the query."""
        for left in Path(self.folder).glob(f"{escape(self.query)}.row-*"):
            left.unlink(missing_ok=True)

    def own_folder(self) -> Path:
        """The folder of the run, created if missing, as on another host. Raises EngineFailed if other users can enter it."""
        folder = Path(self.folder)
        with suppress(FileExistsError):  # a file, or a link to nothing
            privacy.make_folder(folder)
        if privacy.is_foreign(found := os.lstat(folder)):
            raise EngineFailed(
                f"{folder} is {privacy.described(found)}; the folder of a run must belong to user {os.geteuid()} with mode 700",
                f"remove it on this host: rm -r {folder}",
            )
        return folder

    def _flag(self, name: str) -> str:
        return f"{self.folder}/{self.query}.{name}"

    def emit(self, event: Event) -> None:
        """Send an event to the driver, if it runs on this host."""
        self.emit_all([event])

    def emit_all(self, events: Sequence[Event]) -> None:
        """Send events to the driver, many in a datagram: only a few datagrams may wait, and the next one blocks the sender."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(0.2)
            try:
                if privacy.is_foreign(os.lstat(self.folder)):
                    return  # another user of this host created the folder
                for piece in datagrams(events):
                    sender.sendto(piece, os.path.join(self.folder, "events"))
            except (FileNotFoundError, ConnectionRefusedError, TimeoutError):
                return  # the driver has ended or is on another host


def datagrams(events: Sequence[Event]) -> Iterator[bytes]:
    """Events as lines, in datagrams; an event above the limit is shortened."""
    lines, size = list[bytes](), 0
    for event in events:
        line = to_line(event).encode()
        if len(line) > DATAGRAM:
            line = to_line(shortened(event)).encode()
        if size + len(line) >= DATAGRAM and lines:
            yield b"\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    yield b"\n".join(lines)


def _write_row(path: str, row: pa.RecordBatch) -> None:
    with ExitStack() as undo:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, privacy.FILE), "wb") as file:
            undo.callback(os.unlink, path)
            with pa.ipc.new_file(file, row.schema) as writer:
                writer.write_batch(row)
        undo.pop_all()


class Events:
    """The receiving end of events, in the driver."""

    def __init__(self, folder: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(os.path.join(folder, "events"))

    def __iter__(self) -> Iterator[Event]:
        """Events as they come, until closed."""
        with self._socket:
            while lines := self._socket.recv(1 << 18):
                yield from map(from_line, lines.decode().split("\n"))

    def close(self) -> None:
        """End the iteration in any thread."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", self._socket.getsockname())
