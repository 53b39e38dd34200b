"""The program `penstock`: one module for each command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Any

import typer
from typer.core import TyperGroup

from penstock.errors import ConfigUnsupported, PenstockError
from penstock.text.printable import printable

COMMANDS = {
    "demo": "penstock.cli.demo:demo",
    "init": "penstock.cli.init:init",
    "validate": "penstock.cli.validate:validate",
    "doctor": "penstock.cli.doctor:doctor",
    "capture": "penstock.cli.capture:app",
    "outbox": "penstock.cli.outbox:app",
    "run": "penstock.cli.run:run",
    "reap": "penstock.cli.reap:reap",
    "pump": "penstock.cli.pump:pump",
    "status": "penstock.cli.status:status",
    "rewind": "penstock.cli.rewind:rewind",
    "forget": "penstock.cli.forget:forget",
    "dead": "penstock.cli.dead:app",
}
"""Functions, or Typer apps with commands of their own, imported at their first use."""

LATER = ("feed", "agent", "schema", "chaos", "verify", "trace", "console")

_WrongArguments: Any = typer.BadParameter.__base__
"""The base class of the errors of Typer's parser, which Typer does not export."""

_WRONG_REQUESTS = ("config.", "capture.refused")


@contextmanager
def _repeated_plainly() -> Iterator[None]:
    """An error about arguments repeats them without control characters."""
    try:
        yield
    except _WrongArguments as error:
        error.message = printable(error.message)
        raise


class Commands(TyperGroup):
    """Imports the module of a command at its first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of --help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name. Raises ConfigUnsupported for commands of a later version."""
        if cmd_name in LATER:
            raise ConfigUnsupported(f"`penstock {cmd_name}` is not supported yet", "see `penstock --help` for the commands")
        return _made(cmd_name, resolve_name(COMMANDS[cmd_name])) if cmd_name in COMMANDS else None

    make_context = _repeated_plainly()(TyperGroup.make_context)
    invoke = _repeated_plainly()(TyperGroup.invoke)


app = typer.Typer(
    name="penstock",
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from penstock.cli import terminal

        terminal.say(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def penstock(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """Change feeds on Spark: every committed change of a database, in order, at least once.

    A first pipeline: `penstock init`, `penstock capture enable shop.db`, `penstock run pipeline.yaml`
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code. 0: success; 1: a pipeline stopped on an error; 2: the request was wrong."""
    try:
        app(arguments, prog_name="penstock")
    except PenstockError as error:
        from penstock.cli import terminal

        terminal.complain(error)
        return exit_code(error)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def exit_code(error: PenstockError) -> int:
    """The exit code for this error."""
    return 2 if error.code.startswith(_WRONG_REQUESTS) else 1


def _made(name: str, found: Any) -> Any:
    """A function or an app as a command."""
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        alone.command(name)(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
    return command
