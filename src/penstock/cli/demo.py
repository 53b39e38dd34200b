"""`penstock demo`: the whole path, with a receiver that breaks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import ConfigInvalid

if TYPE_CHECKING:
    from penstock.demo.screen import Screen
    from penstock.demo.stage import Stage
    from penstock.demo.story import Story

_LOOK = 0.1


def demo(
    forever: Annotated[
        bool, typer.Option("--forever", help="Break and repair the receiver again and again, until Ctrl-C.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=4, help="How long the shop is open.")] = 36,
    rate: Annotated[float, typer.Option(min=1, max=1000, help="Transactions a second in the shop.")] = 50,
    directory: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the demo's files here.  [default: a temporary directory]")
    ] = None,
) -> None:
    """Show it: a small shop in SQLite, captured, carried by Spark to a receiver that breaks and is repaired.

    Takes about a minute, ends with a proof that nothing was lost, and needs nothing but this program. Ctrl-C ends it early.

    Exit code 1 if a change was lost, out of order or altered.

    Examples: `penstock demo`, `penstock demo --forever --rate 200 --directory demo`
    """
    from penstock.cli.run import stopping_on_signals
    from penstock.demo.stage import Place, Stage

    stop = Flag()
    with _folder(directory) as folder, stopping_on_signals(stop), Stage(Place(folder), rate) as stage:
        holds = _play(stage, seconds, forever, stop, is_kept=directory is not None)
    if not holds:
        raise typer.Exit(1)


def _play(stage: Stage, seconds: float, forever: bool, stop: Flag, is_kept: bool) -> bool:
    from rich.console import Console

    from penstock.demo.screen import Lines, Picture, summary
    from penstock.demo.story import Story

    console = Console(highlight=False)
    screen: Screen = Picture(console) if console.is_terminal else Lines(Console(highlight=False, soft_wrap=True))
    try:
        if not _start(stage, screen, stop):
            return True
        story = Story(stage, seconds, forever, stop)
        _show(story, screen)
        stage.carriage.close()
    finally:
        screen.close()
    found = story.judge()
    console.print(summary(found, stage.place if is_kept else None))
    return found.holds


def _start(stage: Stage, screen: Screen, stop: Flag) -> bool:
    """Start the pipeline, then open the shop; False if somebody asked to stop first."""
    began, carriage = time.monotonic(), stage.carriage
    done = [
        "a shop in SQLite: customers, orders, items",
        "capture enabled: triggers log every change",
        f"a receiver of webhooks: {stage.receiver.url}",
    ]
    carriage.start()
    while not carriage.delivers and not stop.wait(_LOOK):
        carriage.check()
        doing = "the first query starts ..." if carriage.leads else "Spark starts, about 10 seconds ..."
        screen.step([*done, "Spark runs"] if carriage.leads else done, doing, time.monotonic() - began)
    if stop.is_set():
        screen.step(done, "stopping ...", time.monotonic() - began)
        carriage.close()
        return False
    stage.shop.start()
    return True


def _show(story: Story, screen: Screen) -> None:
    for view in story.acts():
        screen.show(view)
    for view in story.rest():
        screen.show(view)


@contextmanager
def _folder(directory: Path | None) -> Iterator[Path]:
    """The folder asked for, or one that goes at the end."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as name:
            yield Path(name)
        return
    if (directory / "shop.db").exists():
        raise ConfigInvalid(f"{directory} has the files of an earlier demo", "name another directory, or remove it")
    directory.mkdir(parents=True, exist_ok=True)
    yield directory
