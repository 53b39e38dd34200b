"""A function that ends its worker process: the change is found, is poison after as many deaths as tries, and the rest arrives."""

import re
from collections import Counter
from datetime import timedelta

import pytest
from filesink import positions
from test_live import TOTAL, Live

from deadline import PATIENCE
from penstock.retry import Retry

BAD = [1, 1500, 1501, 3000]
LIMIT = timedelta(seconds=5)


@pytest.fixture
def live(spark, tmp_path, monkeypatch):
    made = Live(spark, tmp_path, monkeypatch)
    yield made
    made.stop()


def arrived(live):
    """What arrived, in the order in which it first did; after a death only what was not recorded comes again, and once."""
    found = positions(live.out)
    assert max(Counter(found).values()) <= 2
    return list(dict.fromkeys(found))


def test_changes_that_end_the_worker_are_parked_and_everything_around_them_arrives(live):
    live.start(function="rules:exits", retry=Retry(then="dead-letter", tries=1))
    live.until_position()
    letters = live.state.letters("live")
    assert [(one.change.position, one.stage, one.code, one.tries) for one in letters] == [
        (at, "function", "transform.invalid", 1) for at in BAD
    ]
    assert "transform.function rules:exits ended its worker process with exit code 7 on change 1500 of" in letters[1].message
    assert arrived(live) == [at for at in range(1, TOTAL + 1) if at not in BAD]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("rules:is_killed", "ended its worker process with SIGKILL on change 1500"),
        ("rules:hangs_in_c", "did not return within 5 s at "),
    ],
)
def test_when_its_tries_are_spent_the_pipeline_halts_behind_everything_before_it(live, function, said):
    live.start(function=function, timeout=LIMIT if "hangs" in function else timedelta(seconds=60), retry=Retry(tries=2))
    assert live.query.wait(live.query.was_stopped_inside, PATIENCE)
    error = live.state.pipeline_state("live").error
    assert error["code"] == "transform.invalid"
    assert error["message"].startswith(f"transform.function {function} {said}")
    assert error["message"].endswith('on change 1500 of synthetic, key {"id":500}, in 2 of 2 tries')
    assert "--from 1500" in error["remedy"]
    assert live.query.wait(lambda: live.watermark().position == 1499, PATIENCE)
    assert arrived(live) == list(range(1, 1500))


def test_a_change_on_which_the_function_never_returns_is_dropped(live):
    live.start(function="rules:waits", timeout=LIMIT, retry=Retry(then="drop", tries=2))
    live.until_position()
    assert live.query.wait(lambda: live.state.pipeline_state("live").dropped == 1, PATIENCE)
    assert arrived(live) == [at for at in range(1, TOTAL + 1) if at != 1500]


def test_until_then_everything_before_it_is_delivered_once_and_the_trouble_names_the_change_and_the_tries(live):
    live.start(function="rules:crashes", retry=Retry(tries="forever"), is_lazy=True)
    trouble = {}

    def is_told():
        live.candidate.renew()
        trouble.update(live.state.pipeline_state("live").trouble or {})
        return re.search(r"; try [3-9] failed$", trouble.get("message", ""))

    assert live.query.wait(is_told, PATIENCE), trouble
    assert trouble["code"] == "engine.failed"
    assert "with SIGSEGV at " in trouble["message"]
    assert 'on change 1500 of synthetic, key {"id":500}; try' in trouble["message"]
    assert live.watermark().position == 1499
    assert positions(live.out) == list(range(1, 1500))
    assert live.state.pipeline_state("live").error is None
