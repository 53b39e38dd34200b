"""How an error names a worker that ended inside a call of the function."""

import signal
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.change import Change, Op
from penstock.retry import Retry
from penstock.spark.death import Death, how_it_ended, name_of, place_in

CHANGE = Change(7, Op.UPDATE, "orders", '{"id":1}', None, "{}")
TRACE = """Fatal Python error: Segmentation fault

Current thread 0x00007f8a (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/me/rules.py", line 8 in enrich
  File "/home/me/rules.py", line 20 in all
"""


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (7, "ended its worker process with exit code 7"),
        (0, "ended its worker process with exit code 0"),
        (-signal.SIGSEGV, "ended its worker process with SIGSEGV"),
        (-50, "ended its worker process with signal 50"),
        (-signal.SIGALRM, "did not return within 1.5 s"),
        (None, "ended its worker process"),
    ],
)
def test_an_exit_code_a_signal_and_the_limit_are_told_apart(code, how):
    assert how_it_ended(code, timedelta(seconds=1.5)) == how


@pytest.mark.parametrize(
    ("module", "place"),
    [
        ("/home/me/rules.py", " at /home/me/rules.py:8"),
        ("/elsewhere.py", " at /usr/lib/python3.11/ctypes/__init__.py:519"),
        (None, " at /usr/lib/python3.11/ctypes/__init__.py:519"),
    ],
)
def test_the_place_is_the_innermost_line_of_the_functions_module(module, place):
    assert place_in(TRACE, module) == place
    assert place_in("", module) == ""


@pytest.mark.parametrize(
    ("how", "remedy"),
    [
        ("did not return within 60 s", "correct the function or raise transform.timeout; "),
        ("ended its worker process with SIGKILL", "correct the function, or give the machine more memory if it ran out; "),
        ("ended its worker process with exit code 1", "correct the function; "),
    ],
)
def test_the_error_and_the_trouble_name_the_change_the_tries_and_the_remedy(how, remedy):
    death = Death(3, how, " at rules.py:8", "change 7 of orders, key {}")
    error, trouble = death.error("rules:f", CHANGE), death.trouble("rules:f", Retry(tries=5))
    assert error.message == f'transform.function rules:f {how} at rules.py:8 on change 7 of orders, key {{"id":1}}, in 3 of 3 tries'
    assert error.remedy.startswith(remedy)
    assert error.remedy.endswith("penstock run FILE --from 7")
    assert trouble.message == f"transform.function rules:f {how} at rules.py:8 on change 7 of orders, key {{}}; try 3 failed"
    assert trouble.remedy == f"{remedy}after 5 tries it is poison"
    assert death.trouble("rules:f", Retry(tries="forever")).remedy == f"{remedy}it is tried again for ever"


def test_a_row_of_a_range_is_known_by_its_key_and_any_other_change_by_its_position():
    assert name_of(CHANGE) == name_of(replace(CHANGE, key="{}"))
    row = replace(CHANGE, ordinal=3)
    assert name_of(row) == name_of(replace(row, position=9, ordinal=4))
    assert len({name_of(CHANGE), name_of(row), name_of(replace(row, key="{}")), name_of(replace(row, table="items"))}) == 4
