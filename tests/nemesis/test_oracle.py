"""Every oracle is silent about an honest record and speaks up about a planted breach."""

import json
from dataclasses import replace

import pytest

from penstock.testing import oracle
from penstock.testing.oracle import Reached, deliveries
from penstock.testing.replica import Replica, row_name
from penstock.testing.request import Request

MADE = {
    1: {"table": "t", "op": "insert", "key": {"id": 1}, "after": {"id": 1, "n": 0}},
    2: {"table": "t", "op": "insert", "key": {"id": 2}, "after": {"id": 2, "n": 0}},
    3: {"table": "t", "op": "update", "key": {"id": 1}, "before": {"id": 1, "n": 0}, "after": {"id": 1, "n": 1}},
    4: {"table": "t", "op": "delete", "key": {"id": 2}, "before": {"id": 2, "n": 0}},
    5: {"table": "t", "op": "update", "key": {"id": 9}, "before": {"id": 1, "n": 1}, "after": {"id": 9, "n": 1}},
}
TABLES = {"t": [{"id": 9, "n": 1}]}


def request(*positions, at, epoch=1, is_taken=True, **altered):
    changes = [{"position": one, "previous": one - 1 or None, **MADE[one], **altered} for one in positions]
    body = json.dumps({"pipeline": "p", "changes": changes}, separators=(",", ":")).encode()
    headers = {"penstock-epoch": str(epoch), "idempotency-key": f"p-{positions[0]}-{positions[-1]}"}
    return Request(at=at, connection=1, path="/", headers=headers, body=body, is_taken=is_taken)


def record(*runs, epochs=None):
    """A request for each run, one second after the other."""
    epochs = epochs or [1] * len(runs)
    return deliveries(request(*run, at=float(at), epoch=epoch) for at, (run, epoch) in enumerate(zip(runs, epochs, strict=True)))


def every(seen, marks=()):
    found = oracle.order(seen) + oracle.completeness(seen, MADE) + oracle.chain(seen) + oracle.rebuilt(seen, TABLES)
    return found + oracle.repeats(seen, marks) + oracle.resolved(seen, marks)


HONEST = [
    record([1, 2, 3, 4, 5]),
    record([1], [2, 3], [4, 5]),
    record([1, 2, 3], [2, 3, 4], [5]),
    record([1, 2], [1, 2], [1, 2, 3, 4], [3, 4, 5]),
    record([1, 2, 3, 4], [3], [3, 4, 5]),
    record([1, 2, 3], [3, 4, 5], [4], epochs=[1, 2, 1]),
]


@pytest.mark.parametrize("seen", HONEST)
def test_an_honest_record_passes_every_oracle(seen):
    assert every(seen, [Reached(0.5, 0), Reached(9.0, 5)]) == []


def test_what_was_not_taken_does_not_count():
    seen = deliveries([request(1, at=1.0, is_taken=False), request(1, at=2.0)])
    assert [delivery.at for delivery in seen] == [2.0]


def test_requests_count_in_the_order_in_which_they_arrived():
    seen = deliveries([request(2, at=2.0), request(1, at=1.0)])
    assert [delivery.position for delivery in seen] == [1, 2]


def test_bytes_are_kept_as_they_came():
    [seen] = deliveries([request(1, at=1.0, after={"x": 1.10, "é": "\u2028,]}"})])
    assert json.loads(seen.text) == seen.change
    assert '"\\u00e9":"\\u2028,]}"' in seen.text


def test_order_sees_a_first_delivery_that_was_overtaken():
    [breach] = oracle.order(record([2], [3], [1], [4]))
    assert breach == 't {"id": 1}: change 1 came first after change 3 had come'


@pytest.mark.parametrize("runs", [([3], [1]), ([5], [1]), ([5], [3]), ([4], [2])])
def test_order_is_kept_per_key_also_by_changes_of_the_key(runs):
    assert oracle.order(record(*runs))


def test_order_lets_other_keys_pass():
    assert oracle.order(record([1], [4], [3])) == []


def test_completeness_sees_what_is_missing():
    assert oracle.completeness(record([1, 2], [4, 5]), MADE) == [f"change 3 was never delivered: {MADE[3]}"]


def test_completeness_sees_what_nobody_made():
    [breach] = oracle.completeness(record([1, 2, 3, 4, 5]), {key: MADE[key] for key in (1, 2, 3, 4)})
    assert "5 was delivered and never made" in breach


def test_completeness_sees_other_values():
    seen = deliveries([request(1, at=1.0, after={"id": 1, "n": 7}), request(2, 3, 4, 5, at=2.0)])
    [breach] = oracle.completeness(seen, MADE)
    assert '"n":7' in breach


def test_repeats_sees_other_bytes():
    seen = deliveries([request(1, at=1.0), request(1, at=2.0, at_="later")])
    [breach] = oracle.repeats(seen)
    assert "and again as" in breach


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (([1, 2, 3], [1], [4, 5]), "4 came directly after change 1"),
        (([1, 2, 3], [1, 3]), "3 came directly after change 1"),
        (([1, 2], [4]), "4 came directly after change 2"),
        (([1, 2, 1],), "1 came directly after change 2"),
        (([1, 2, 3], [3, 4], [2, 3, 4, 5]), "starts at 2; an earlier one had started at 3"),
    ],
)
def test_repeats_sees_runs_that_are_not_contiguous_or_go_back(runs, text):
    assert any(text in breach for breach in oracle.repeats(record(*runs)))


def test_repeats_sees_a_run_that_starts_below_the_watermark():
    seen = record([1, 2, 3], [2, 3, 4, 5])
    assert oracle.repeats(seen, [Reached(0.5, 1)]) == []
    assert "2 came again when the watermark already stood at 2" in oracle.repeats(seen, [Reached(0.5, 2)])[0]


def test_chain_sees_a_gap():
    [breach] = oracle.chain(record([1, 2], [4, 5]))
    assert "change 4 names 3" in breach


def test_chain_starts_where_it_is_told():
    assert oracle.chain(record([3, 4]), start=2) == []
    assert oracle.chain(record([3, 4]))


def test_rebuilt_sees_a_difference_on_either_side():
    assert oracle.rebuilt(record([1, 2, 3, 4]), TABLES) == [
        't: the copy lacks {"id": 9, "n": 1}',
        't: the source lacks {"id": 1, "n": 1}',
    ]


def test_rebuilt_passes_over_what_is_not_beyond_the_last():
    assert oracle.rebuilt(record([1, 2, 3, 4, 5], [1, 2]), TABLES) == []


def test_rebuilt_follows_changes_of_schema_and_rescans():
    columns = {"table": "t", "columns": ["id", "n"], "key": ["id"]}
    renamed = {"table": "u", "columns": ["nr", "m"], "key": ["nr"], "renamed": {"id": "nr"}, "added": {"m": 0}}
    replica = Replica()
    story = [
        {"table": "t", "op": "insert", "key": {"id": 1}, "after": {"id": 1, "n": 1}},
        {"table": "t", "op": "insert", "key": {"id": 2}, "after": {"id": 2, "n": 2}},
        {"table": "u", "op": "schema", "key": {}, "before": columns, "after": renamed},
        {"table": "u", "op": "schema", "key": {}, "after": renamed | {"rescan": "begin"}},
        {"table": "u", "op": "refresh", "key": {"nr": 2}, "after": {"nr": 2, "m": 5}},
    ]
    for again in range(2):
        for position, change in enumerate(story, start=1):
            replica.take((position, 0), change, {row_name(change["table"], change["key"])})
        assert list(replica.tables["u"].values()) == [{"nr": 1, "m": 0}, {"nr": 2, "m": 5}], again
        assert not replica.tables.get("t")
    replica.take((6, 0), {"table": "u", "op": "schema", "after": {"rescan": "end", "since": 4}}, {row_name("u", {})})
    assert list(replica.tables["u"].values()) == [{"nr": 2, "m": 5}]
    replica.take((7, 0), {"table": "u", "op": "schema", "before": columns}, {row_name("u", {})})
    assert not replica.tables["u"]


def test_resolved_sees_what_is_new_below_the_watermark():
    seen = record([1, 2], [3, 4])
    assert oracle.resolved(seen, [Reached(0.5, 2), Reached(1.5, 4)]) == []
    assert len(oracle.resolved(seen, [Reached(0.5, 4)])) == 2


def test_a_deposed_leaders_late_request_is_the_one_exception():
    seen = record([1, 2], [3, 4], [3], [5], epochs=[1, 2, 1, 2])
    assert every(seen) == []
    assert oracle.repeats(seen, epochs=oracle.everything)


def test_a_late_request_of_a_deposed_leader_is_no_delivery_to_a_receiver_that_refuses_it():
    seen = record([1, 2], [4, 5], [3], epochs=[1, 2, 1])
    assert oracle.completeness(seen, MADE)
    assert oracle.completeness(seen, MADE, epochs=oracle.everything) == []
    assert oracle.order(seen, epochs=oracle.everything)
    assert oracle.chain(seen, epochs=oracle.everything)
    assert oracle.resolved(seen, [Reached(1.5, 5)], epochs=oracle.everything)
    assert oracle.resolved(seen, [Reached(1.5, 5)]) == []


def several(*places, at=1.0):
    """One request with what a function made: ordinals where they are not 0."""
    changes = []
    for position, ordinal in places:
        made = MADE[position] | ({"ordinal": ordinal} if ordinal else {})
        changes.append({"position": position, "previous": (position if ordinal > 1 else position - 1) or None, **made})
    body = json.dumps({"pipeline": "p", "changes": changes}, separators=(",", ":")).encode()
    headers = {"penstock-epoch": "1", "idempotency-key": f"p-{places[0]}-{places[-1]}"}
    return Request(at=at, connection=1, path="/", headers=headers, body=body, is_taken=True)


SPREAD = {(1, 0): MADE[1], (2, 1): MADE[2], (2, 2): MADE[2], 3: MADE[3]}


def test_what_a_function_made_of_one_change_is_told_apart():
    seen = deliveries([several((1, 0), (2, 1), at=1.0), several((2, 1), (2, 2), at=2.0), several((2, 2), (3, 0), at=3.0)])
    assert oracle.completeness(seen, SPREAD) + oracle.order(seen) + oracle.chain(seen) + oracle.repeats(seen) == []


def test_breaches_among_what_a_function_made_are_seen():
    missing = deliveries([several((1, 0), (2, 2), (3, 0))])
    assert "change 2.1 was never delivered" in oracle.completeness(missing, SPREAD)[0]
    assert "2.1 came first after change 2.2" in oracle.order(deliveries([several((2, 2)), several((2, 1), at=2.0)]))[0]
    altered = [several((2, 1)), several((2, 1), at=2.0)]
    altered[1] = replace(altered[1], body=altered[1].body.replace(b'"n":0', b'"n":5'))
    assert "change 2.1 came as" in oracle.repeats(deliveries(altered))[0]


def test_by_row_every_row_is_judged_as_a_lane_of_its_own():
    seen = record([2], [1], [4], [3], [5], [3, 5])
    assert oracle.chain(seen)
    parts = oracle.by_row(seen)
    assert {row: [one.position for one in part] for row, part in parts.items()} == {
        't {"id": 1}': [1, 3, 5, 3, 5],
        't {"id": 2}': [2, 4],
        't {"id": 9}': [5, 5],
    }
    assert [said for part in parts.values() for said in oracle.chain(part) + oracle.repeats(part)] == []
    assert oracle.chain(oracle.by_row(record([3], [1]))['t {"id": 1}'])


def test_the_end_of_a_rescan_takes_away_what_it_has_not_told_of():
    def told(position, op, number, **more):
        change = {"position": position, "previous": None, "table": "t", "op": op, "key": {"id": number} if number else {}, **more}
        return oracle.Delivery(0.0, 1, position, str(position), "", change)

    rows = [told(1, "insert", 1, after={"id": 1}), told(2, "insert", 2, after={"id": 2})]
    marks = [told(3, "schema", None, after={"rescan": "begin"}), told(5, "schema", None, after={"rescan": "end", "since": 3})]
    seen = [*rows, marks[0], told(4, "refresh", 2, after={"id": 2}), marks[1]]
    assert oracle.rebuilt(seen, {"t": [{"id": 2}]}) == []
    assert oracle.rebuilt(seen[:-1], {"t": [{"id": 2}]}) == ['t: the source lacks {"id": 1}']
