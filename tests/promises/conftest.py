"""Stories that tests of several files judge; see stories.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stories import Story


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Pipelines that are killed in the middle, continued, stopped in the middle, continued to the end, and mended."""
    from test_backfill import AsBatch, BesideAWriter, Killed
    from test_batches import FarBehind, Worn
    from test_poison import Poisoned
    from test_standing_by import Quiet
    from test_transforming import Made

    with Story(
        tmp_path_factory.mktemp("interrupted"), Quiet, Killed, BesideAWriter, AsBatch, FarBehind, Made, Poisoned, Worn
    ) as story:
        story.kill(story.start())
        story.stop(story.start())
        story.outlive(story.start("--available-now"))
        story.stop(story.start())
        yield story.end()


@pytest.fixture(scope="session")
def halted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Pipelines that halt: all live ones of a process, then all batches of another; and how they go on.

    The one beside a writer comes first: it is written to while the process starts and runs, and not when it has halted.
    """
    from test_backfill import RaisedOn
    from test_batches import Exhausted, Rewound
    from test_lost_ground import LostGround
    from test_secrets import GIVEN, Told
    from test_transforming import BadRow

    with Story(tmp_path_factory.mktemp("halted"), RaisedOn, LostGround, BadRow, Told, Exhausted, Rewound) as story:
        story.outlive(story.start(env=GIVEN))
        story.outlive(story.start("--available-now", "--log-format", "text", env=GIVEN))
        story.stop(story.start("--from", "beginning", env=GIVEN))
        story.stop(story.start())
        story.stop(story.start("--from", "4"))
        yield story.end()
