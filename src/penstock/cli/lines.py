"""The output of `run` as lines of JSON: all of stderr, including libraries and the JVM."""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Thread
from typing import Any, TextIO

import typer

from penstock.cli import exit_code
from penstock.cli.log import json_facts
from penstock.errors import PenstockError

_GATHER_SECONDS = 0.1
"""The wait for the rest of a text that is written in parts, such as a traceback."""

_MOST = 1 << 16


@contextmanager
def json_lines() -> Iterator[TextIO]:
    """A stream for lines of JSON, to which errors of the block and all text on stderr are also written."""
    _quiet_py4j()
    with _diverted(sys.stderr.fileno()) as stream:
        try:
            yield stream
        except PenstockError as error:
            _write(stream, json_facts("Failed", "error", error.facts(), datetime.now(UTC)))
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
                _write(stream, json_facts("Printed", "warning", {"message": said}, datetime.now(UTC)))


def _gathered(pipe: Any) -> bytes:
    """The next text: all bytes up to a pause."""
    text: bytes = pipe.read(_MOST)
    while text and len(text) < _MOST and select.select([pipe], [], [], _GATHER_SECONDS)[0]:
        more: bytes = pipe.read(_MOST)
        if not more:
            break
        text += more
    return text


def _write(stream: TextIO, line: str) -> None:
    with suppress(OSError, ValueError):  # the reader of the log is gone
        stream.write(f"{line}\n")
        stream.flush()
