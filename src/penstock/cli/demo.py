"""`penstock demo`: a pipeline from a small shop to a receiver that fails and recovers."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import ConfigInvalid

if TYPE_CHECKING:
    from penstock.demo.screen import Screen
    from penstock.demo.stage import Stage

_LOOK = 0.1


def demo(
    forever: Annotated[bool, typer.Option("--forever", help="Break and repair the receiver repeatedly until Ctrl-C.")] = False,
    seconds: Annotated[float, typer.Option(min=4, help="The time for which the shop is open.")] = 36,
    rate: Annotated[float, typer.Option(min=1, max=1000, help="Transactions per second in the shop.")] = 50,
    directory: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder for the files of the demo.  [default: a temporary directory]")
    ] = None,
) -> None:
    """Show a pipeline at work: a small shop in SQLite, captured, delivered by Spark to a receiver that fails and recovers.

    Takes about a minute, and ends with a proof that no change was lost. Needs no other program. Ctrl-C ends it early.

    Exit code 1 if a change was lost, out of order or altered.

    Examples: `penstock demo`, `penstock demo --forever --rate 200 --directory demo`
    """
    from penstock.cli.run import stopping_on_signals
    from penstock.demo.stage import Stage

    stop = Flag()
    with _folder(directory) as folder, stopping_on_signals(stop), Stage(folder, rate) as stage:
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
        for view in chain(story.acts(), story.rest()):
            screen.show(view)
        stage.carriage.close()
    finally:
        screen.close()
    found = story.judge()
    console.print(summary(found, stage.folder if is_kept else None))
    return found.holds


def _start(stage: Stage, screen: Screen, stop: Flag) -> bool:
    """Start the pipeline, then open the shop; False after a request to stop."""
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


@contextmanager
def _folder(directory: Path | None) -> Iterator[Path]:
    """The given folder, or a temporary one."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as name:
            yield Path(name)
        return
    if (directory / "shop.db").exists():
        raise ConfigInvalid(f"{directory} has the files of an earlier demo", "name another directory, or remove it")
    directory.mkdir(parents=True, exist_ok=True)
    yield directory
