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
        story.start().terminate()
        story.start("--available-now").exit_code()
        story.start().terminate()
        yield story.end()


@pytest.fixture(scope="session")
def halted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Pipelines that halt: all live ones of a process, then all batches of another; and how they go on."""
    from test_backfill import RaisedOn
    from test_batches import Exhausted, Rewound
    from test_lost_ground import LostGround
    from test_secrets import GIVEN, Told
    from test_transforming import BadRow

    with Story(tmp_path_factory.mktemp("halted"), LostGround, RaisedOn, BadRow, Told, Exhausted, Rewound) as story:
        story.start(env=GIVEN).exit_code()
        story.start("--available-now", "--log-format", "text", env=GIVEN).exit_code()
        story.start("--from", "beginning").terminate()
        story.start().terminate()
        story.start("--from", "4").terminate()
        yield story.end()
