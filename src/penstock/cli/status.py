"""`penstock status`: the state of pipelines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli import terminal
from penstock.cli.options import AsJson, Files

if TYPE_CHECKING:
    from rich.console import Group

    from penstock.pipeline import Pipeline
    from penstock.status import Status

_PERIOD = 1.0


def status(
    files: Files,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat once a second until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show position, backlog, lag and the last error of pipelines, running or not.

    Exit code 1 if a pipeline is halted or its status cannot be read; 0 if it is retrying.

    Examples: `penstock status pipeline.yaml --watch`, `penstock status *.yaml --json`
    """
    from penstock.status import observe

    pipelines = [penstock.load(file, delivers=False) for file in files]
    if watch:
        _watch(pipelines, as_json)
        return
    seen = [observe(pipeline) for pipeline in pipelines]
    _print(seen, pipelines, as_json)
    if any(one.error for one in seen):
        raise typer.Exit(1)


def _watch(pipelines: Sequence[Pipeline], as_json: bool) -> None:
    """Show the status once per period; on a terminal, in place."""
    from rich.console import Console
    from rich.live import Live

    from penstock.status import observe

    console = Console()
    is_live = console.is_terminal and not as_json
    try:
        with Live(console=console, auto_refresh=False) if is_live else nullcontext() as live:
            while True:
                seen = [observe(pipeline) for pipeline in pipelines]
                live.update(_report(seen, pipelines), refresh=True) if live else _print(seen, pipelines, as_json)
                time.sleep(_PERIOD)
    except KeyboardInterrupt:
        return


def _print(seen: Sequence[Status], pipelines: Sequence[Pipeline], as_json: bool) -> None:
    if as_json:
        terminal.say(*(one.to_json() for one in seen))
    else:
        terminal.show(_report(seen, pipelines))


def _report(seen: Sequence[Status], pipelines: Sequence[Pipeline]) -> Group:
    """A line for each pipeline; remarks and errors follow the table."""
    from rich.console import Group

    from penstock.status import remarks

    columns = ("pipeline", "state", "epoch", "position", "head", "backlog", "lag", "rate", "delivered", "dead")
    errors = [(one.name, error) for one in seen if (error := one.last_error)]
    told = [terminal.told(f"{name}: {error['code']}", error["message"], error.get("remedy", "")) for name, error in errors]
    said = dict.fromkeys(remark for pipeline in pipelines for remark in remarks(pipeline))
    return Group(terminal.table(columns, [_row(one) for one in seen]), *map(terminal.plain, said), *told)


def _row(one: Status) -> list[str]:
    lag = None if one.lag_seconds is None else f"{one.lag_seconds:.1f} s"
    numbers = (one.epoch, one.position, one.head, one.backlog, lag, f"{one.rate:.0f}/s", one.delivered, one.dead)
    state = one.state if one.mode == "live" else f"{one.state} ({one.mode})"
    return [one.name, state, *("-" if number is None else str(number) for number in numbers)]
