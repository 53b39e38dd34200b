"""`penstock reap`: run a configuration file of goharvest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli import terminal
from penstock.cli.log import LogFormat, lines, log_to
from penstock.cli.run import LogOption, MetricsOption, begin_anew, carry_until_stopped


def reap(
    file: Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The configuration of goharvest: reaper.yaml.")],
    print_pipeline: Annotated[
        bool, typer.Option("--print-pipeline", help="Print the equivalent pipeline file, including its passwords, and exit.")
    ] = False,
    log_format: LogOption = LogFormat.TEXT,
    metrics: MetricsOption = None,
) -> None:
    """Deliver an outbox in the layout of goharvest to Kafka until Ctrl-C or SIGTERM, as the `reaper` of goharvest does.

    The file of goharvest needs no edits. Any number of processes may use it: one leads, the others stand by. Records that cannot
    be delivered become dead letters. All other commands accept the file of --print-pipeline.

    Examples: `penstock reap -f reaper.yaml`, `penstock reap -f reaper.yaml --print-pipeline > orders.yaml`
    """
    from penstock.harvest.config import load
    from penstock.harvest.translation import file_of, pipeline

    with lines(log_format) as stream:
        config = load(file)
        values = pipeline(config.harvest)
        if print_pipeline:
            terminal.say_code(file_of(values))
            return
        write = log_to(stream, log_format, config.level in ("trace", "debug"))
        has_ended = carry_until_stopped([penstock.parse(values, file.parent)], None, metrics, write)
    if not has_ended:
        begin_anew()
