"""Counts come from the source, also where positions are far apart."""

from dataclasses import replace
from functools import partial

import pytest

from penstock.change import from_batch
from penstock.progress.batch_target import heads
from penstock.source import ANONYMOUS, Span, count
from penstock.sources.outbox.point import Point
from penstock.sources.outbox.source import LANE as OUTBOX
from penstock.sources.outbox.source import OutboxSource
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.spark.changes import cut
from penstock.spark.request import LEAST, Request
from sparse import APART, SparseSource


@pytest.fixture
def source():
    return SparseSource(total=20)


def positions(source, span):
    return [change.position for batch in source.read(span, ANONYMOUS) for change in from_batch(batch)]


def test_a_span_has_as_many_changes_as_can_be_read(source):
    begin = source.begin(LANE, str(3 * APART))
    span = Span(LANE, begin, source.head(LANE))
    assert count(source, span) == len(positions(source, span)) == 17


@pytest.mark.parametrize(("most", "expected"), [(None, 4), (3, 3), (4, 4), (5, 4)])
def test_a_span_of_a_synthetic_source_has_as_many_changes_as_can_be_read(most, expected):
    source = SyntheticSource(rate=1e9, total=20)
    span = Span(LANE, source.begin(LANE, "3"), source.begin(LANE, "7"))
    assert len(positions(source, span)) == 4
    assert count(source, span, most) == expected
    assert source.backlog(LANE, span.after).changes == 17


def test_a_batch_takes_as_many_changes_as_it_may(source):
    begin, found = source.begin(LANE, "beginning"), []
    while begin != source.head(LANE):
        end = cut(source, Span(LANE, begin, source.head(LANE)), 8)
        found.append(len(positions(source, Span(LANE, begin, end))))
        begin = end
    assert found == [6, 7, 7]


class Uncounted(SparseSource):
    """A source that cannot count."""

    def backlog(self, lane, after, upto=None, most=None):
        return replace(super().backlog(lane, after, upto, most), changes=None)


def test_a_span_that_cannot_be_counted_is_one_batch_of_as_many_pieces_as_can_be_read():
    source = Uncounted(total=20)
    span = Span(LANE, source.begin(LANE, "beginning"), source.head(LANE))
    assert cut(source, span, 8) == span.upto
    assert len(Request(source, heads(source), partitions=4).pieces(span)) == 4


ASKED = set()


class Asked(SparseSource):
    """A source that notes the bounds of the counts that it is asked for."""

    def backlog(self, lane, after, upto=None, most=None):
        ASKED.add(most)
        return super().backlog(lane, after, upto, most)


def test_a_batch_is_planned_by_counts_that_end_soon():
    source = Asked(total=20)
    span = Span(LANE, source.begin(LANE, "beginning"), source.head(LANE))
    cut(source, span, 8)
    Request(source, heads(source), partitions=4).pieces(span)
    assert {4 * 8, 4 * LEAST} == ASKED


@pytest.mark.parametrize(("changes", "pieces"), [(20, 1), (2 * LEAST, 2), (100 * LEAST, 4)])
def test_few_changes_are_read_in_one_piece(changes, pieces):
    source = SparseSource(total=changes)
    whole = partial(Span, LANE, source.begin(LANE, "beginning"))
    request = Request(source, heads(source), partitions=4)
    assert len(request.pieces(whole(source.head(LANE)))) == pieces


def test_a_batch_of_a_source_that_is_away_is_planned_since_spark_repeats_tasks_and_not_plans():
    source = OutboxSource(database="postgresql://127.0.0.1:1/away")
    span = Span(OUTBOX, Point("life", 0).to_cursor(), Point("life", 4 * LEAST).to_cursor())
    assert len(Request(source, {}, partitions=4).pieces(span)) == 4


def test_nothing_is_counted_for_one_piece():
    ASKED.clear()
    source = Asked(total=20)
    span = Span(LANE, source.begin(LANE, "beginning"), source.head(LANE))
    assert Request(source, heads(source), partitions=1).pieces(span) == [span]
    assert not ASKED
