"""What is said of rewinds, of a second pipeline and of epochs: nothing about an honest record, and something about each breach."""

import json

import pytest
from wide import Rewind, broken, cut, rewound

from far_side import FarSide, Lenient, foreign, interleaved, late
from penstock.receiver import MemoryStore
from penstock.testing.oracle import Delivery

BACK = [Rewind(epoch=2, was=4, to=2)]


def come(*positions, epoch=1, **altered):
    changes = [
        {"position": one, "previous": one - 1 or None, "table": "t", "op": "update", "key": {"id": 1}, **altered}
        for one in positions
    ]
    return [Delivery(float(epoch), epoch, epoch, f"{epoch}", json.dumps(change), change) for change in changes]


def test_what_comes_again_whole_and_as_it_was_is_honest():
    assert rewound(come(1, 2, 3, 4) + come(3, 4, 5, epoch=3), BACK) == []
    assert rewound(come(1, 2, 3, 4) + come(3, epoch=3, previous=None) + come(4, 5, epoch=3), BACK) == []
    assert rewound(come(1, 2), []) == []


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (come(3, 5, epoch=3), "change 4 did not come again"),
        (come(4, 3, epoch=3), "change 3 came first after change 4"),
        (come(3, epoch=3, op="delete") + come(4, epoch=3), "change 3 came again as"),
    ],
)
def test_what_is_missing_or_out_of_order_or_different_behind_a_rewind_is_told(again, said):
    [breach] = rewound(come(1, 2, 3, 4) + again, BACK)
    assert breach.startswith(said) or said in breach


def test_a_rewind_that_the_next_one_cut_short_owes_only_what_it_had_reached():
    seen = come(1, 2, 3, 4) + come(3, epoch=3) + come(2, 3, 4, 5, epoch=5)
    assert rewound(seen, [*BACK, Rewind(epoch=4, was=3, to=1)]) == []
    assert rewound(seen, [*BACK, Rewind(epoch=4, was=4, to=1)]) != []


def test_each_life_of_a_pipeline_that_was_forgotten_is_judged_by_itself():
    lives = cut(come(1, 2) + come(1, 2, 3, epoch=3), [0, 2])
    assert [[one.position for one in life] for life in lives] == [[1, 2], [1, 2, 3]]
    assert [broken(life, {1, 2, 3}) for life in lives] == [[], []]
    assert any("lacks change 2" in breach for breach in broken(come(1, 3), {1, 2, 3}))
    assert broken(come(2, 1), {1, 2}) != []


def far_side(receiver, *epochs):
    made = FarSide(receiver)
    for epoch in epochs:
        body = json.dumps({"pipeline": "p", "changes": [dict(come(1)[0].change)]}).encode()
        made.take({"penstock-epoch": str(epoch), "penstock-lane": "log", "penstock-incarnation": "i"}, body)
    return made.judged


def test_a_receiver_takes_one_epoch_at_a_time_and_one_that_does_not_is_told():
    judged, lenient = far_side(None, 1, 2, 1), far_side(Lenient(MemoryStore()), 1, 2, 1)
    assert [one.is_accepted for one in judged] == [True, True, False]
    assert len(late(judged)) == 1
    assert interleaved(judged) == []
    assert len(interleaved(lenient)) == 1
    assert foreign(judged[1:], 2) == []
    assert len(foreign(lenient[1:], 2)) == 1
