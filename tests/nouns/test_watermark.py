"""Which of two watermarks counts, and where a pipeline goes on whose state is lost."""

import pytest

from penstock.cursor import Cursor, Watermark
from penstock.errors import CursorInvalid
from penstock.progress.watermark import later
from penstock.running.resume import decide


class Lives:
    """A source whose cursors are `LIFE:POSITION`."""

    def incarnation(self, cursor):
        if ":" not in cursor:
            raise CursorInvalid(f"{cursor} is none of ours")
        return cursor.partition(":")[0]


def at(position, life="a"):
    return Watermark(Cursor(f"{life}:{position}"), position)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (None, at(5)),
        (at(4), at(5)),
        (at(6), at(6)),
        (at(6, life="b"), at(5)),
        (Watermark(Cursor("of another source"), 6), at(5)),
    ],
    ids=["none", "behind", "ahead", "of another life", "of another source"],
)
def test_a_copy_counts_where_it_is_ahead_in_the_same_life(kept, expected):
    assert later(Lives(), at(5), kept) == expected


def test_a_pipeline_whose_state_is_lost_goes_on_from_the_sink_unless_a_person_decides():
    assert decide(known=False, registered=7, said=None, last_error=None, kept=True) == "sink"
    assert decide(known=False, registered=None, said=None, last_error=None, kept=True) == "sink"
    assert decide(known=False, registered=7, said="now", last_error=None, kept=True) == "person"
    assert decide(known=True, registered=7, said=None, last_error=None, kept=True) == "watermark"
