"""`penstock init`: a first pipeline file."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli import terminal
from penstock.errors import ConfigInvalid

TEMPLATE = """\
# One pipeline of Penstock. Relative paths are relative to this file; ${{VAR}} and ${{file:PATH}} are substituted.
# Durations: 5ms 1s 2m 3h 7d. Check it with: penstock validate {file}

name: {name}                  # the name of its leadership, watermark and status

source:
  type: sqlite
  database: {database}
  # tables: "orders|items"      # a regular expression for whole names; absent: all captured tables
  # retain: {{history: 1d}}       # keep delivered changes for this time, for rewinds
  start: beginning              # or now: only for a pipeline that has not run yet

# transform:
#   where: "table = 'orders' and op <> 'delete'"    # Spark SQL; before and after are VARIANT here

sink:
  type: webhook
  url: {url}
  # format: penstock            # or rqlite, debezium, cloudevents
  # batch: {{size: 100, delay: 5ms}}
  # parallel: 1                 # concurrent requests; changes of a row stay in order
  # retry: {{tries: 10, policy: exponential, min: 1s, max: 30s, then: halt}}    # tries: forever never gives up

state: penstock.db              # leader and watermarks; keep this file
"""

_DATABASE, _URL = "shop.db", "http://127.0.0.1:8080/changes"


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The folder for pipeline.yaml.")] = Path(),
    database: Annotated[str | None, typer.Option(help=f"The SQLite database to read.  [default: {_DATABASE}]")] = None,
    url: Annotated[str | None, typer.Option(help=f"The URL of the webhook.  [default: {_URL}]")] = None,
    name: Annotated[str | None, typer.Option(help="The name of the pipeline.  [default: the name of the database]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing pipeline.yaml.")] = False,
) -> None:
    """Write a commented pipeline.yaml, check it, and print the next steps. Asks questions only on a terminal.

    Example: `penstock init --database shop.db --url https://example.org/hooks/orders`
    """
    file = directory / "pipeline.yaml"
    if file.exists() and not force:
        raise ConfigInvalid(f"{file} exists already", "choose another directory, or replace it with --force")
    database = _asked("Database", database, _DATABASE)
    url = _asked("Webhook", url, _URL)
    name = _asked("Name", name, _name(database))
    _put(file, TEMPLATE.format(file=file.name, name=quoted(name), database=quoted(database), url=quoted(url)))
    terminal.say(*_next(file, database))


def quoted(text: str) -> str:
    """Text as YAML: every JSON string is valid YAML."""
    return json.dumps(text, ensure_ascii=False)


def _asked(question: str, given: str | None, default: str) -> str:
    if given is not None:
        return given
    return str(typer.prompt(question, default)) if sys.stdin.isatty() and sys.stdout.isatty() else default


def _name(database: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", Path(database).stem)[:64] or "pipeline"


def _put(file: Path, text: str) -> None:
    """Write the file; restore the previous state if its content is invalid."""
    before = file.read_text(encoding="utf-8") if file.exists() else None
    _write(file, text)
    try:
        penstock.load(file)
    except ConfigInvalid:
        file.unlink() if before is None else _write(file, before)
        raise


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigInvalid(f"cannot write {file}: {error.strerror}", "choose a directory that is writable") from error


def _next(file: Path, database: str) -> list[str]:
    shown, source = shlex.quote(str(file)), shlex.quote(str(file.parent / Path(database).expanduser()))
    commands = (f"capture enable {source}", f"run {shown}", f"status {shown} --watch")
    return [f"Wrote {file}. Next:", *(f"  penstock {command}" for command in commands)]
