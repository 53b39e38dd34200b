"""`penstock reap`: goharvest's program, with goharvest's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.run import LogFormat, LogOption, MetricsOption, begin_anew, carry_until_stopped, lines, log_to


def reap(
    file: Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="goharvest's configuration: reaper.yaml.")],
    print_pipeline: Annotated[
        bool, typer.Option("--print-pipeline", help="Write the pipeline file that does the same, with its passwords, and end.")
    ] = False,
    log_format: LogOption = LogFormat.TEXT,
    metrics: MetricsOption = None,
) -> None:
    """Send what is in an outbox of goharvest's layout to Kafka, as goharvest's `reaper` does, until Ctrl-C or SIGTERM.

    Its file is taken as it is. Any number of processes may run on it: one leads, the others stand by. What can never be delivered
    becomes a dead letter: with the file of --print-pipeline, `penstock dead`, `penstock status` and all other commands work.

    Examples: `penstock reap -f reaper.yaml`, `penstock reap -f reaper.yaml --print-pipeline > orders.yaml`
    """
    from penstock.cli import terminal
    from penstock.config import parse
    from penstock.harvest.config import load
    from penstock.harvest.translation import file_of, pipeline

    with lines(log_format) as stream:
        config = load(file)
        values = pipeline(config.harvest)
        if print_pipeline:
            terminal.say_code(file_of(values))
            return
        write = log_to(stream, log_format, config.level in ("trace", "debug"))
        has_ended = carry_until_stopped([parse(values, file.parent)], None, metrics, write)
    if not has_ended:
        begin_anew()
