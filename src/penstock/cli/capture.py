"""`penstock capture`: putting the tables of a database under capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import ConfigInvalid, ConfigUnsupported

if TYPE_CHECKING:
    from penstock.sources.sqlite.install import Report
    from penstock.sources.sqlite.survey import Survey

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Log every change of chosen tables inside the database itself, in the writer's own transaction.",
)

Database = Annotated[Path, typer.Argument(metavar="DATABASE", help="A SQLite database.")]
Tables = Annotated[str | None, typer.Option("--tables", metavar="REGEX", help="Only tables whose whole name matches.")]
PrintSql = Annotated[bool, typer.Option("--print-sql", help="Show the SQL and change nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.command()
def enable(
    database: Database,
    tables: Tables = None,
    print_sql: PrintSql = False,
    wal: Annotated[bool, typer.Option("--wal", help="Switch the database to write-ahead logging.")] = False,
) -> None:
    """Put tables under capture; run it again after a change of schema.

    Examples: `penstock capture enable shop.db`, `penstock capture enable shop.db --tables "orders|items" --print-sql`
    """
    from penstock.sources.sqlite import install

    report = install.enable(_existing(database), tables, wal=wal, is_trial=print_sql)
    _tell(report, print_sql, "no table to capture")
    if not report.is_wal and not print_sql:
        typer.secho(
            f"{database} does not use write-ahead logging: readers and writers will wait for each other."
            f" To switch: penstock capture enable {database} --wal",
            fg="yellow",
            err=True,
        )


@app.command()
def disable(database: Database, tables: Tables = None, print_sql: PrintSql = False) -> None:
    """Take tables out of capture; without --tables the log goes too, delivered or not.

    Example: `penstock capture disable shop.db --tables "sessions"`
    """
    from penstock.sources.sqlite import install

    _tell(install.disable(_existing(database), tables, is_trial=print_sql), print_sql, "nothing was captured")


@app.command()
def status(database: Database, tables: Tables = None, as_json: AsJson = False) -> None:
    """Show which tables are captured, how long the log is, and for whom it is kept.

    Exit code 1 if capture is broken. Example: `penstock capture status shop.db --json`
    """
    from penstock.sources.sqlite.survey import survey

    found = survey(_existing(database), tables)
    if as_json:
        typer.echo(json.dumps(found.facts()))
    else:
        _show(found)
    if found.is_broken:
        raise typer.Exit(1)


@app.command()
def suspend(database: Database) -> None:
    """Not supported yet."""
    raise _later("suspend")


@app.command()
def resume(database: Database) -> None:
    """Not supported yet."""
    raise _later("resume")


@app.command()
def repair(database: Database) -> None:
    """Not supported yet."""
    raise _later("repair")


def _later(command: str) -> ConfigUnsupported:
    return ConfigUnsupported(
        f"`penstock capture {command}` is not supported yet",
        "after a change of schema run: penstock capture enable DATABASE",
    )


def _existing(database: Path) -> str:
    if not database.is_file():
        raise ConfigInvalid(f"there is no database {database}", "check the path; capture never creates a database")
    return str(database)


def _tell(report: Report, print_sql: bool, nothing: str) -> None:
    from penstock.cli import terminal

    if print_sql:
        typer.echo("\n".join(f"{statement};" for statement in report.statements))
    elif report.tables:
        terminal.show(terminal.table(None, ["TABLE", "CAPTURE"], [[table, done] for table, done in sorted(report.tables.items())]))
    else:
        typer.echo(nothing)


def _show(found: Survey) -> None:
    from penstock.cli import terminal

    parts = [terminal.table(None, ["TABLE", "CAPTURE", ""], [[one.table, one.state, one.why] for one in found.tables])]
    if found.readers:
        rows = [[one.pipeline, str(one.position), one.noted_at] for one in found.readers]
        parts.append(terminal.table(None, ["PIPELINE", "POSITION", "NOTED AT"], rows))
    terminal.show(*parts)
    log = f"{found.first} to {found.head}" if found.head else "empty" if found.enabled else "none"
    typer.echo(f"log: {log}; journal mode: {found.journal_mode}")
