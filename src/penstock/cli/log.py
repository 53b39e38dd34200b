"""The process log as lines of text or JSON: events, and in JSON all of stderr, including libraries and the JVM."""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from threading import Lock, Thread
from typing import Any, TextIO

import typer

from penstock.cli import exit_code
from penstock.errors import PenstockError
from penstock.event import Event
from penstock.text.printable import as_json, printable

_GATHER_SECONDS = 0.1
"""The wait for the rest of a text that is written in parts, such as a traceback."""

_MOST = 1 << 16

_writing = Lock()


class LogFormat(StrEnum):
    """The format of the process log."""

    TEXT = "text"
    JSON = "json"


def log_to(stream: TextIO, log_format: LogFormat, verbose: bool) -> Callable[[Event], None]:
    """An observer that writes events as lines."""

    def emit(event: Event) -> None:
        if event.level == "debug" and not verbose:
            return
        if log_format is LogFormat.JSON:
            _write(stream, _json_line(type(event).__name__, event.level, asdict(event)))
        else:
            _write(stream, text_line(event, datetime.now(UTC)))

    return emit


def text_line(event: Event, now: datetime) -> str:
    """The event as text."""
    return printable(f"{now.astimezone():%H:%M:%S} {event.level:7} {event.pipeline}: {event.text}")


def _json_line(event: str, level: str, facts: Mapping[str, Any]) -> str:
    """One JSON object, also for facts that are not an event of a pipeline."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return as_json({"at": at, "level": level, "event": event, **facts}, separators=(",", ":"))


@contextmanager
def lines(log_format: LogFormat) -> Iterator[TextIO]:
    """The stream for lines of this format; in JSON, errors of the block and all text on stderr become lines too."""
    if log_format is LogFormat.TEXT:
        yield sys.stderr
        return
    _quiet_py4j()
    with _diverted(sys.stderr.fileno()) as stream:
        try:
            yield stream
        except PenstockError as error:
            _write(stream, _json_line("Failed", "error", error.facts()))
            raise typer.Exit(exit_code(error)) from error


def _quiet_py4j() -> None:
    """Silence py4j, which logs a traceback for each lost connection, also on the root logger."""
    py4j = logging.getLogger("py4j")
    py4j.propagate = False
    py4j.addHandler(logging.NullHandler())
    if not logging.root.handlers and logging.lastResort:
        logging.root.addHandler(logging.lastResort)


@contextmanager
def _diverted(number: int) -> Iterator[TextIO]:
    """The file of this descriptor as a stream; text that is written to the descriptor reaches the stream as JSON."""
    kept, (out, into) = os.dup(number), os.pipe()
    with os.fdopen(kept, "w") as stream:
        os.dup2(into, number)
        os.close(into)
        thread = Thread(target=_convert, args=(out, stream), name="stderr as lines", daemon=True)
        thread.start()
        try:
            yield stream
        finally:
            sys.stderr.flush()
            os.dup2(kept, number)  # closes the last writing end of the pipe, unless a child process has one
            thread.join(_GATHER_SECONDS * 10)


def _convert(out: int, stream: TextIO) -> None:
    with os.fdopen(out, "rb", buffering=0) as pipe:
        while text := _gathered(pipe):
            if said := text.decode(errors="replace").strip():
                _write(stream, _json_line("Printed", "warning", {"message": said}))


def _gathered(pipe: Any) -> bytes:
    """The next text: all bytes up to a pause."""
    text: bytes = pipe.read(_MOST)
    while 0 < len(text) < _MOST and select.select([pipe], [], [], _GATHER_SECONDS)[0] and (more := pipe.read(_MOST)):
        text += more
    return text


def _write(stream: TextIO, line: str) -> None:
    with _writing, suppress(OSError, ValueError):  # the reader of the log is gone: the pipelines continue
        stream.write(f"{line}\n")
        stream.flush()
