"""How often an outbox is looked at."""

from __future__ import annotations

import pytest

from penstock.sources.outbox.follow import GATHER, LEAST, rest


@pytest.mark.parametrize(("spent", "left"), [(0.0, GATHER), (GATHER / 3, GATHER * 2 / 3), (GATHER, LEAST), (1.0, LEAST)])
def test_looks_are_as_far_apart_whatever_follows_from_one_but_never_without_a_rest(spent: float, left: float) -> None:
    assert rest(10.0, 10.0 + spent) == pytest.approx(left)
