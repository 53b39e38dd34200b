"""The heartbeat of a following, and the end of one."""

from itertools import islice

import pytest

from penstock.change import NO_CHANGES, Change, Op, to_batch
from penstock.cursor import Cursor
from penstock.errors import LogDamaged, SourceUnavailable
from penstock.following import Polled, beating
from penstock.source import Window

CHANGES = to_batch([Change(1, Op.INSERT, "t", "{}")])
PART, WHOLE = Window(CHANGES, None, idle=False), Window(CHANGES, Cursor("after"), idle=True)


def steps(*windows):
    return (window for window in (None, *windows))


def test_a_heartbeat_inside_a_window_has_no_cursor():
    windows = beating(Polled(steps(None, PART, None, WHOLE, None)), Cursor("before"))
    assert [window.upto for window in islice(windows, 5)] == ["before", None, None, "after", "after"]


def test_a_following_that_has_failed_can_be_polled_again_and_fails_again():
    def failing():
        yield None
        raise LogDamaged("a change is missing")

    following = Polled(failing())
    with pytest.raises(LogDamaged):
        following.poll(0.0)
    with pytest.raises(SourceUnavailable, match="the following failed"):
        following.poll(0.0)


def test_a_heartbeat_has_no_changes():
    assert next(beating(Polled(steps(None)), Cursor("before"))) == Window(NO_CHANGES, Cursor("before"), idle=True)
