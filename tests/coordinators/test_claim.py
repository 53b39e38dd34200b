"""When a claim writes, and when it cannot succeed."""

from __future__ import annotations

import pytest

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators.claim import TOUCH, Written, require_free
from penstock.cursor import Cursor, Watermark
from penstock.errors import PenstockError, StateLost, TermLost

MARK, TROUBLE = Watermark(Cursor("c5"), 5, 5), {"code": "sink.failing"}
WRITTEN = Written(MARK, None, at=100.0)


@pytest.mark.parametrize(
    "tally", [Tally(delivered=1), Tally(dropped=1), Tally(passed=1), Tally(trouble=TROUBLE)], ids=lambda one: str(one)[6:30]
)
def test_news_are_written_at_once(tally: Tally) -> None:
    assert not WRITTEN.suffices(MARK, tally, now=100.0)
    assert not WRITTEN.suffices(Watermark(Cursor("c6"), 6, 5), Tally(), now=100.0)


def test_without_news_a_claim_writes_only_after_a_while() -> None:
    assert WRITTEN.suffices(MARK, Tally(rate=2.0), now=100.0 + TOUCH / 2)
    assert not WRITTEN.suffices(MARK, Tally(), now=100.0 + TOUCH)
    assert Written(MARK, TROUBLE, at=100.0).suffices(MARK, Tally(trouble=TROUBLE), now=100.0)
    assert not Written(MARK, TROUBLE, at=100.0).suffices(MARK, Tally(), now=100.0), "the trouble has passed"


@pytest.mark.parametrize(
    ("last", "is_led", "error"),
    [
        (None, True, StateLost),
        ((3, 1), False, TermLost),
        ((3, 2), True, TermLost),
        ((3, 3), True, TermLost),
        ((4, 0), True, TermLost),
    ],
)
def test_a_claim_cannot_succeed_without_a_watermark_its_term_or_a_later_attempt(
    last: tuple[int, int] | None, is_led: bool, error: type[PenstockError]
) -> None:
    with pytest.raises(error):
        require_free(Term("p", "h", 3), Lane("main"), 2, last, is_led=is_led)


@pytest.mark.parametrize("last", [(3, 1), (2, 7), (0, -1)])
def test_a_later_attempt_of_the_current_term_may_claim(last: tuple[int, int]) -> None:
    require_free(Term("p", "h", 3), Lane("main"), 2, last, is_led=True)
