"""The output of a long run as lines: all of stderr, also of libraries and of the JVM."""

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
"""So long is waited for the rest of a text that comes in several writes, such as a traceback."""

_MOST = 1 << 16


@contextmanager
def json_lines() -> Iterator[TextIO]:
    """A stream for lines of JSON; the errors of the block, and all else that is written to stderr, become lines of it, too."""
    _quiet_py4j()
    with _diverted(sys.stderr.fileno()) as stream:
        try:
            yield stream
        except PenstockError as error:
            _write(stream, json_facts("Failed", "error", error.facts(), datetime.now(UTC)))
            raise typer.Exit(exit_code(error)) from error


def _quiet_py4j() -> None:
    """It logs each lost connection with a traceback, also through the root logger, which it configures for that."""
    py4j = logging.getLogger("py4j")
    py4j.propagate = False
    py4j.addHandler(logging.NullHandler())
    if not logging.root.handlers and logging.lastResort:
        logging.root.addHandler(logging.lastResort)


@contextmanager
def _diverted(number: int) -> Iterator[TextIO]:
    """The file behind this descriptor as a stream of lines; all that is written to the descriptor goes there as JSON."""
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
            os.dup2(kept, number)  # closes the last end of the pipe that is written to, unless a child has it
            thread.join(_GATHER_SECONDS * 10)


def _convert(out: int, stream: TextIO) -> None:
    with os.fdopen(out, "rb", buffering=0) as pipe:
        while text := _gathered(pipe):
            said = text.decode(errors="replace").strip()
            if said:
                _write(stream, json_facts("Printed", "warning", {"message": said}, datetime.now(UTC)))


def _gathered(pipe: Any) -> bytes:
    """The next text: all that comes without a pause."""
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
