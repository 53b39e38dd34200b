"""A function in a live query: what it makes is delivered in order, told apart, and moves the watermark."""

import json

import pytest
from filesink import positions, written
from test_live import TOTAL, Live

from deadline import PATIENCE
from penstock.errors import TransformInvalid
from penstock.retry import Retry
from penstock.sources.synthetic import SyntheticSource


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
    assert live.query.wait(lambda: len(written(live.out)) >= TOTAL // 2, PATIENCE)
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
        ("rules:rename_key", "returned a change with key '{}': it must not alter it", 1),
    ],
)
def test_what_came_before_a_failing_change_is_delivered_and_then_the_pipeline_halts(live, function, said, times):
    live.start(function=function)
    assert live.query.wait(live.query.was_stopped_inside, PATIENCE)
    error = live.state.pipeline_state("live").error
    assert error["code"] == "transform.invalid"
    assert f"transform.function {function} {said}" in error["message"]
    assert error["message"].endswith('on change 1500 of synthetic, key {"id":500}')
    assert positions(live.out) == [at for at in range(1, 1500) for _ in range(times)]
    assert live.query.wait(lambda: live.watermark().position == 1499, PATIENCE)
    assert live.watermark().delivered == 1499


@pytest.mark.parametrize(
    ("transform", "key", "said", "form"),
    [
        (
            {"where": "10 / (position - 1500) is not null"},
            "where: 10 / (position - 1500) is not null",
            "[DIVIDE_BY_ZERO]",
            "try_divide",
        ),
        (
            {"where": "position % 2 = 0", "select": {"id": "after:id", "n": "cast(if(position = 1500, 'abc', '1') as int)"}},
            "select.n: cast(if(position = 1500, 'abc', '1') as int)",
            "[CAST_INVALID_INPUT] The value 'abc' of the type",
            "try_cast",
        ),
    ],
)
def test_the_change_that_an_expression_raised_on_is_named_when_all_before_it_is_delivered(live, transform, key, said, form):
    live.start(**transform)
    assert live.query.wait(live.query.was_stopped_inside, PATIENCE)
    error = live.state.pipeline_state("live").error
    assert error["code"] == "transform.invalid"
    assert error["message"].startswith(f'transform.{key} raised on change 1500 of synthetic, key {{"id":500}}: {said}')
    assert form in error["remedy"]
    assert "--from 1500" in error["remedy"]
    assert live.query.wait(lambda: live.watermark().position == 1499, PATIENCE)
    assert list(dict.fromkeys(positions(live.out))) == [at for at in range(1, 1500) if "select" not in transform or at % 2 == 0]


def raising(part, bad):
    """A transform of which this part raises on what the condition says."""
    ways = {
        "where": {"where": f"10 / if({bad}, 0, 1) is not null"},
        "select": {"select": {"n": f"cast(if({bad}, 'abc', '1') as int)"}},
        "function": {"select": {"bad": bad}, "function": "rules:refuse_bad"},
    }
    return ways[part]


def parked(live):
    return [letter.change.position for letter in live.state.letters("live")]


parts = pytest.mark.parametrize("part", ["where", "select", "function"])


@parts
def test_ten_in_a_row_that_a_transform_raises_on_are_parked_as_they_were_and_the_rest_arrives(live, part):
    live.start(**raising(part, "position between 1500 and 1520 and position <> 1510"), retry=Retry(then="dead-letter"))
    live.until_position()
    bad = [*range(1500, 1510), *range(1511, 1521)]
    assert parked(live) == bad
    assert positions(live.out) == [at for at in range(1, TOTAL + 1) if at not in bad]
    letter = live.state.letters("live")[0]
    assert (letter.stage, letter.code) == ("function" if part == "function" else "sql", "transform.invalid")
    assert letter.message.startswith(f"transform.{part}")
    assert json.loads(letter.change.after).keys() == ({"bad"} if part == "function" else {"id", "total", "text"})


def test_what_gets_another_table_waits_behind_a_letter_of_the_row_it_was_made_of(live):
    live.start(function="rules:refuse_1500", retry=Retry(then="dead-letter"))
    live.until_position()
    refused, behind = live.state.letters("live")
    assert [(one.change.position, one.change.table, one.stage, one.is_behind) for one in (refused, behind)] == [
        (1500, "synthetic", "function", False),
        (2500, "synthetic", "function", True),
    ]
    assert refused.change.key == behind.change.key
    assert list(dict.fromkeys(positions(live.out))) == [at for at in range(1, TOTAL + 1) if at not in (1500, 2500)]
    assert live.state.pipeline_state("live").delivered == len(positions(live.out))


@parts
def test_the_eleventh_in_a_row_that_a_transform_raises_on_halts_when_all_before_them_is_delivered(live, part):
    live.start(**raising(part, "position between 1500 and 1510"), retry=Retry(then="dead-letter"), is_lazy=True)
    assert live.query.wait(live.query.was_stopped_inside, PATIENCE)
    error = live.state.pipeline_state("live").error
    assert error["code"] == "transform.invalid"
    assert error["message"].startswith(f"transform.{part}")
    assert 'on change 1510 of synthetic, key {"id":510}' in error["message"]
    assert list(dict.fromkeys(positions(live.out))) == list(range(1, 1500))
    assert parked(live) == list(range(1500, 1510))


@parts
def test_what_a_transform_raises_on_is_dropped_and_counted_and_the_rest_arrives(live, part):
    live.start(**raising(part, "position in (1, 700, 701, 3000)"), retry=Retry(then="drop"))
    live.until_position()
    assert live.query.wait(lambda: live.state.pipeline_state("live").dropped == 4, PATIENCE)
    assert parked(live) == []
    assert positions(live.out) == [at for at in range(1, TOTAL + 1) if at not in (1, 700, 701, 3000)]
    if part == "select":
        assert {line[4] for line in written(live.out)} == {'{"n":1}'}


def test_an_expression_that_needs_more_than_one_change_is_refused(live):
    with pytest.raises(TransformInvalid, match="ROW_NUMBER"):
        live.start(select={"n": "row_number() over (order by position)"})


def test_an_expression_that_raises_on_any_change_halts_also_while_there_is_none(live):
    live.start(SyntheticSource(total=0), where="1 / 0 = 1")
    with pytest.raises(TransformInvalid, match=r"transform\.where: 1 / 0 = 1 raised on any change: \[DIVIDE_BY_ZERO\]"):
        live.query.wait(lambda: False, PATIENCE)


def test_a_module_that_workers_do_not_have_halts(live):
    live.start(function="nowhere:f")
    assert live.query.wait(live.query.was_stopped_inside, PATIENCE)
    assert live.state.pipeline_state("live").error["code"] == "config.invalid"
    assert "there is no module nowhere" in live.state.pipeline_state("live").error["message"]
