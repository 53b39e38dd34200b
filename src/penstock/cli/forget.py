"""`penstock forget`: release a pipeline from its source and its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock import registry
from penstock.cli import terminal
from penstock.cli.options import Yes
from penstock.errors import ConfigInvalid, TermHeld

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline
    from penstock.source import Source


def forget(
    what: Annotated[str, typer.Argument(metavar="FILE|NAME", help="A pipeline file; with --database, the name of a pipeline.")],
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="DATABASE", help="The path or DSN of the source, if the pipeline file is lost."),
    ] = None,
    table: Annotated[str, typer.Option("--table", metavar="TABLE", help="The outbox in a Postgres database.")] = "outbox",
    yes: Yes = False,
) -> None:
    """Forget a pipeline: remove its watermark, and its registration in the source, which then keeps no changes for it.

    The pipeline must not run. The same file then starts as a new pipeline, at `source.start`.
    A registration of another `state` is handed over to the state of this file: the other pipeline stops with `source.owned`.

    Examples: `penstock forget orders.yaml`, `penstock forget --database shop.db orders`
    """
    if database is None:
        _forget(penstock.load(what, delivers=False), yes)
    else:
        _strike_off(_source(database, table), what, yes)


def _forget(pipeline: Pipeline, yes: bool) -> None:
    from penstock.owner import described
    from penstock.running import admin

    standing, registered = pipeline.state.pipeline_state(pipeline.name), admin.registration(pipeline)
    if standing.is_held:
        raise TermHeld(f"{standing.holder} leads {pipeline.name}")
    if not standing.watermarks and registered is None:
        raise ConfigInvalid(f"there is no record of {pipeline.name}", "check the name: the pipeline never ran, or was forgotten")
    stranger = admin.stranger(pipeline)
    fate = "stays" if stranger else "will be removed"
    for lane, mark in standing.watermarks.items():
        terminal.say(f"{pipeline.name} has delivered up to position {mark.position} (lane {lane}); its watermark {fate}.")
    if standing.dead and not stranger:
        terminal.say(f"{standing.dead} dead letters, which were never delivered, will be removed: penstock dead list FILE")
    if stranger:
        terminal.say(f"{described(stranger)}. Handing it over at position {registered} stops the other pipeline.")
    elif registered is not None:
        terminal.say(f"The source will no longer keep the changes after position {registered} for {pipeline.name}.")
    terminal.confirm(f"Forget {pipeline.name}?", yes)
    admin.forget(pipeline)
    if stranger:
        _say_handed_over(pipeline, registered)
    else:
        terminal.say(f"{pipeline.name} is forgotten.")


def _say_handed_over(pipeline: Pipeline, position: int | None) -> None:
    choices = f"Choose where to continue: penstock run FILE --from {position} | --from beginning | --from now"
    watermarks = pipeline.state.pipeline_state(pipeline.name).watermarks
    next_step = "The pipeline continues at its watermark: penstock run FILE" if watermarks else choices
    terminal.say(
        f"{pipeline.name} is registered for {pipeline.state.address} now; the source keeps the changes after position {position}. "
        f"{next_step}; or forget it once more."
    )


def _source(database: str, table: str) -> Source:
    """The source at this address."""
    found = (kind.registered_at(database, table) for kind in registry.sources().values())
    if source := next(filter(None, found), None):
        return source
    raise ConfigInvalid(f"there is no database {database}", "check the path")


def _strike_off(source: Source, name: str, yes: bool) -> None:
    from penstock.source import GONE, readers_of
    from penstock.text.duration import roughly

    known = {one.pipeline: one for one in readers_of(source)}
    if not (one := known.get(name)):
        raise ConfigInvalid(f"no pipeline {name} is registered there", f"registered are: {', '.join(known) or 'none'}")
    if not one.is_gone and not one.is_released:
        remedy = f"stop the pipeline and wait for {roughly(GONE)}, or forget the pipeline by its file"
        raise TermHeld(f"{name} was in contact with the source {one.silent:.0f} s ago", remedy)
    terminal.say(
        f"{name} stands at position {one.position}, last noted {roughly(one.silent)} ago; {one.kept} changes are kept for it."
    )
    terminal.confirm(f"Forget {name}?", yes)
    if source.retention:
        source.retention.forget(name)
    terminal.say(f"{name} is forgotten. With its old state it can continue as long as the log has its changes.")
