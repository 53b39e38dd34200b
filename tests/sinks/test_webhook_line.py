"""What a Retry-After header asks for."""

import time
from email.utils import formatdate

import pytest

from penstock.sinks.webhook.line import seconds_asked


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("0", 0), ("120", 120), (" 7 ", 7), (None, None), ("soon", None), ("-1", None), ("1.5", None), ("", None)],
)
def test_seconds_are_read_and_nonsense_is_passed_over(header, seconds):
    assert seconds_asked(header) == seconds


@pytest.mark.parametrize("ahead", [90, -90])
def test_a_date_is_read_against_the_clock(ahead):
    asked = seconds_asked(formatdate(time.time() + ahead, usegmt=True))
    assert asked == pytest.approx(max(0, ahead), abs=5)


def test_a_date_without_a_zone_is_in_utc():
    assert seconds_asked("Wed, 21 Oct 2015 07:28:00") == 0


@pytest.mark.parametrize("header", ["Wed, 99 Oct 2015 07:28:00 GMT", "²", "9" * 400])
def test_a_header_out_of_all_bounds_does_no_harm(header):
    asked = seconds_asked(header)
    assert asked is None or asked > 0
