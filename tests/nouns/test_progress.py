"""Which watermark may be recorded, against random interleavings of changes, marks and acknowledgements."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.change import Change, Op
from penstock.cursor import Cursor, Watermark
from penstock.spark.progress import Progress


def change(position):
    return Change(position, Op.INSERT, "t", "{}")


def cursor(position):
    return Cursor(str(position))


steps = st.lists(st.sampled_from(["filtered", "hand", "mark", "acknowledge"]), max_size=60)


@given(steps, st.data())
def test_the_watermark_never_passes_what_is_not_durable_and_never_goes_back(taken, data):
    progress, position, handed, durable, recorded = Progress(Watermark(cursor(0), 0)), 0, [], None, 0
    for step in taken:
        if step == "filtered":
            position += 1
        elif step == "hand":
            position += 1
            handed.append(position)
            progress.hand((position, 0))
        elif step == "mark":
            progress.mark(position, cursor(position))
        elif handed:
            durable = (
                handed[data.draw(st.integers(0, len(handed) - 1))]
                if durable is None
                else max(durable, data.draw(st.sampled_from(handed)))
            )
        watermark = progress.durable(change(durable) if durable else None, cursor(durable) if durable else None)
        pending = [each for each in handed if durable is None or each > durable]
        assert watermark.position >= recorded
        assert not pending or watermark.position < pending[0]
        assert watermark.cursor == cursor(watermark.position)
        recorded = watermark.position
    final = progress.durable(change(handed[-1]) if handed else None, cursor(handed[-1]) if handed else None)
    assert final.delivered == (handed[-1] if handed else None)


def test_a_mark_behind_filtered_changes_counts_at_once():
    progress = Progress(Watermark(cursor(5), 5, 4))
    progress.mark(9, cursor(9))
    assert progress.durable(None, None) == Watermark(cursor(9), 9, 4)


def test_a_mark_waits_for_the_changes_before_it():
    progress = Progress(Watermark(cursor(0), 0))
    progress.hand((3, 0))
    progress.mark(8, cursor(8))
    assert progress.durable(None, None).position == 0
    assert progress.durable(change(2), cursor(2)) == Watermark(cursor(2), 2, 2)
    assert progress.durable(change(3), cursor(3)) == Watermark(cursor(8), 8, 3)


def test_an_idle_lane_keeps_no_pile_of_marks():
    progress = Progress(Watermark(cursor(0), 0))
    progress.hand((1, 0))
    for position in range(2, 5000):
        progress.mark(position, cursor(position))
    assert len(progress._marks) == 1


def test_a_change_with_an_ordinal_moves_the_watermark_only_through_the_mark_behind_it() -> None:
    progress = Progress(Watermark(Cursor("0"), 0, None))
    progress.hand((7, 3))
    progress.mark(7, Cursor("7"))
    made = [Change(7, Op.REFRESH, "orders", "{}", ordinal=ordinal) for ordinal in (1, 2, 3)]
    assert progress.durable(made[1], Cursor("7")).position == 0
    assert progress.durable(made[2], Cursor("7")) == Watermark(Cursor("7"), 7, 7)
