"""`penstock capture`: put the tables of a database under capture."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from penstock import registry
from penstock.cli import terminal
from penstock.cli.options import AsJson, PrintSql, group
from penstock.errors import ConfigInvalid

if TYPE_CHECKING:
    from penstock.capture import Capture, Comparison, Report, Survey, TableState, Verification

_COMMAND = "penstock.command"


class WithCommand(typer.core.TyperCommand):
    """A command that accepts another command after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the arguments after `--` in the context."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[cut + 1 :]
        return super().parse_args(ctx, args[:cut])


app = group("Log every change of selected tables in the database itself, in the transaction of the writer.")

Database = Annotated[str, typer.Argument(metavar="DATABASE", help="A SQLite database.")]
Tables = Annotated[str | None, typer.Option("--tables", metavar="REGEX", help="Only tables whose whole name matches.")]
Table = Annotated[str | None, typer.Argument(metavar="TABLE", help="Only tables whose whole name matches this regular expression.")]


@app.command()
def enable(
    database: Database,
    tables: Tables = None,
    *,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="REGEX", help="Log only columns whose whole `table.column` matches, and keys."),
    ] = None,
    row_ids_only: Annotated[bool, typer.Option("--row-ids-only", help="Log row ids and keys, no other columns.")] = False,
    print_sql: PrintSql = False,
    wal: Annotated[bool, typer.Option("--wal", help="Switch the database to write-ahead logging.")] = False,
) -> None:
    """Put tables under capture; run it again after a change of schema.

    Examples: `penstock capture enable shop.db`, `penstock capture enable shop.db --tables "orders|items" --print-sql`,
    `penstock capture enable shop.db --tables users --columns "users\\.(name|city)"`
    """
    if row_ids_only and columns is not None:
        raise ConfigInvalid("--row-ids-only and --columns exclude each other", "remove one of them")
    report = _of(database).enable(database, tables, columns, row_ids_only=row_ids_only, wal=wal, is_trial=print_sql)
    _print(report, print_sql, "no table to capture")
    if not report.is_wal and not print_sql:
        terminal.say(
            f"{database} does not use write-ahead logging: readers and writers wait for each other."
            f" To switch: penstock capture enable {database} --wal",
            err=True,
            colour="yellow",
        )


@app.command()
def disable(database: Database, tables: Tables = None, print_sql: PrintSql = False) -> None:
    """End the capture of tables. Without --tables, the log is removed too, including undelivered changes.

    Example: `penstock capture disable shop.db --tables "sessions"`
    """
    _print(_of(database).disable(database, tables, is_trial=print_sql), print_sql, "nothing was captured")


@app.command()
def status(database: Database, tables: Tables = None, as_json: AsJson = False) -> None:
    """Show the captured tables, the length of the log and its readers.

    Exit code 1 if capture is broken. Example: `penstock capture status shop.db --json`
    """
    found = _of(database).survey(database, tables)
    if as_json:
        terminal.say_json(found.facts())
    else:
        _show_survey(found)
    if found.is_broken:
        raise typer.Exit(1)


@app.command(cls=WithCommand)
def suspend(context: typer.Context, database: Database, table: Table = None) -> None:
    """Suspend capture for a migration: until `resume`, capture only notes which rows are touched.

    With a command after `--`, runs the command and then resumes, even if it fails; the exit code is that of the command.
    Examples: `penstock capture suspend shop.db orders`, `penstock capture suspend shop.db -- python manage.py migrate`
    """
    command: list[str] = context.meta.get(_COMMAND, [])
    _print(_of(database).suspend(database, table), False, "nothing was captured")
    if not command:
        return
    try:
        code = _run(command)
    finally:
        resume(database, table)
    raise typer.Exit(code)


@app.command()
def resume(database: Database, table: Table = None) -> None:
    """Capture again after `suspend`, and log the rows that were touched since.

    A table that was rebuilt is logged as a whole. Example: `penstock capture resume shop.db`
    """
    with terminal.scanning() as progress:
        report = _of(database).resume(database, table, progress)
    _print(report, False, "nothing was suspended")


@app.command()
def repair(database: Database, table: Table = None) -> None:
    """Repair capture after changes are missing from the log: renew the triggers, and rescan the tables.

    Without TABLE, repairs all tables that need it. Pipelines that stopped with `capture.broken` then continue with `penstock run`.
    If it is interrupted, run it again. Example: `penstock capture repair shop.db orders`
    """
    with terminal.scanning() as progress:
        report = _of(database).repair(database, table, progress)
    _print(report, False, "nothing is missing")


@app.command()
def verify(
    database: Database,
    table: Table = None,
    *,
    sample: Annotated[int | None, typer.Option("--sample", metavar="N", min=1, help="Only N random keys of each table.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare tables with the log: the last image of each key must be the row in the table.

    Finds rows that were written while triggers were disabled, which leaves no other trace. Exit code 1 if rows differ.
    Examples: `penstock capture verify shop.db`, `penstock capture verify shop.db orders --sample 1000`
    """
    capture = _of(database)
    found = capture.verify(database, table, sample)
    if as_json:
        terminal.say_json(found.facts())
    else:
        _show_verification(found, capture)
    if not found.is_equal:
        raise typer.Exit(1)


def _run(command: list[str]) -> int:
    """Run a command and return its exit code; SIGTERM stops the command first, and capture then resumes."""
    asked = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        process = subprocess.Popen(command)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        if asked.is_set():
            process.terminate()
        while True:
            with suppress(KeyboardInterrupt):  # the terminal interrupts the command too
                code = process.wait()
                return 128 - code if code < 0 else code
    except OSError as error:
        raise ConfigInvalid(f"{command[0]} cannot be run: {error.strerror}", "check the command after --") from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _of(database: str) -> Capture:
    """The implementation for this address."""
    for kind in registry.sources().values():
        if kind.capture and (found := kind.capture_commands()).serves(database):
            return found
    raise ConfigInvalid(f"{database} is not a database that can be captured", "give the path of a SQLite database")


def _print(report: Report, print_sql: bool, nothing: str) -> None:
    if print_sql:
        terminal.say_sql(report.statements)
    elif report.tables:
        terminal.show(terminal.table(["TABLE", "CAPTURE"], sorted(report.tables.items())))
    else:
        terminal.say(nothing)


def _show_survey(found: Survey) -> None:
    parts = [terminal.table(["TABLE", "CAPTURE", ""], [[one.table, one.state, _remark(one)] for one in found.tables])]
    if found.readers:
        rows = [
            [one.pipeline, str(one.position), one.noted_at, one.state, str(one.kept), one.owner.state if one.owner else "-"]
            for one in found.readers
        ]
        parts.append(terminal.table(["PIPELINE", "POSITION", "NOTED AT", "STATE", "KEPT FOR IT ALONE", "OWNER"], rows))
    terminal.show(*parts)
    log = f"{found.first} to {found.head}" if found.head else "empty" if found.enabled else "none"
    terminal.say(f"log: {log}; journal mode: {found.journal_mode}")


def _remark(table: TableState) -> str:
    return "; ".join(part for part in (table.why, f"without {', '.join(table.left_out)}" if table.left_out else "") if part)


def _show_verification(found: Verification, capture: Capture) -> None:
    """Print a line for each table, the first differences, and the remedy."""
    rows = [[one.table, one.state, str(one.compared), str(one.differing), "; ".join(_limits(one))] for one in found.tables]
    terminal.show(terminal.table(["TABLE", "CAPTURE", "KEYS COMPARED", "DIFFERENT", ""], rows))
    for one in found.tables:
        for difference in one.differences:
            column = f" in column {difference.column}" if difference.column else ""
            terminal.say(f"{one.table} {difference.key} {difference.what}{column}")
        if one.differing > len(one.differences):
            terminal.say(f"{one.table}: {one.differing - len(one.differences)} more")
    for one in found.tables:
        if not one.is_equal:
            terminal.say(capture.repair_command(found.database, one.table))


def _limits(one: Comparison) -> Iterator[str]:
    if one.why:
        yield one.why
    if one.unjudged:
        yield f"{one.unjudged} keys not compared: touched while capture was suspended, or their last change is not reliable"
    if one.unmentioned and not one.is_whole:
        yield f"{one.unmentioned} rows not compared: the log does not reach back to their last change"
    if one.is_whole:
        yield "all rows compared: the log has a rescan"
