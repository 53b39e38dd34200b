"""A stop before a change that an expression raises on."""

import pytest

from penstock.change import Change, Op, to_batch
from penstock.errors import TransformInvalid
from penstock.source import Window
from penstock.spark.stop_before import StopBefore


def test_what_is_followed_is_closed_at_the_stop_while_the_error_lives():
    failing, closed = Change(1, Op.INSERT, "t", "{}"), []

    def windows():
        try:
            yield Window(to_batch([failing]), None, idle=True)
        finally:
            closed.append(True)

    with pytest.raises(TransformInvalid) as raised:
        list(StopBefore(failing, TransformInvalid("it raises")).cut(windows()))
    assert raised.value.__traceback__
    assert closed
