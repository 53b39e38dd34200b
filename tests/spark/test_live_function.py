"""A function in a live query: what it makes is delivered in order, told apart, and moves the watermark."""

import json

import pytest
from filesink import positions, written
from test_live import TOTAL, Live


@pytest.fixture
def live(spark, tmp_path, monkeypatch):
    made = Live(spark, tmp_path, monkeypatch)
    yield made
    made.stop()


def test_condition_fields_and_function_follow_each_other(live):
    live.start(
        where="try_variant_get(after, '$.total', 'double') < 100",
        select={"total": "after:total::double", "id": "after:id"},
        function="rules:spread",
    )
    live.until_position()
    assert live.query.wait(lambda: len(written(live.out)) >= TOTAL // 2, 30)
    got = [(int(line[0]), line[5], line[6], line[4]) for line in written(live.out)]
    kept = [at for at in range(1, TOTAL + 1) if at % 200 < 100]
    after = {at: json.dumps({"total": at % 200 + 0.5, "id": at % 1000}, separators=(",", ":")) for at in kept}
    expected = {1: lambda at: [(at, "insert", "None", after[at])], 0: lambda at: []}
    expected[2] = lambda at: [(at, "insert", "1", after[at]), (at, "delete", "2", "None")]
    assert got == [line for at in kept for line in expected[at % 3](at)]
    assert live.watermark().position == TOTAL
    assert live.watermark().delivered == got[-1][0]


@pytest.mark.parametrize(
    ("function", "said", "times"),
    [
        ("rules:twice_up_to_1500", "raised KeyError: 'total' at ", 2),
        ("rules:rename_key", "returned a change with key '{}': it may not change it", 1),
    ],
)
def test_what_came_before_a_failing_change_is_delivered_and_then_the_pipeline_halts(live, function, said, times):
    live.start(function=function)
    assert live.query.wait(live.query.was_stopped_inside, 60)
    error = live.state.standing("live").error
    assert error["code"] == "transform.invalid"
    assert f"transform.function {function} {said}" in error["message"]
    assert error["message"].endswith('on change 1500 of synthetic, key {"id":500}')
    assert positions(live.out) == [at for at in range(1, 1500) for _ in range(times)]
    assert live.query.wait(lambda: live.watermark().position == 1499, 10)
    assert live.watermark().delivered == 1499


def test_a_module_that_workers_do_not_have_halts(live):
    live.start(function="nowhere:f")
    assert live.query.wait(live.query.was_stopped_inside, 60)
    assert live.state.standing("live").error["code"] == "config.invalid"
    assert "there is no module nowhere" in live.state.standing("live").error["message"]
