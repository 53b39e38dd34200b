"""The tests' README tells the truth, and no test is passed over."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadline import PATIENCE
from penstock.text.duration import parse

TESTS = Path(__file__).parent

WAITS = {"wait", "join", "result", "exit_code", "terminate"}
"""Methods whose first argument is a deadline."""

NAMED = {"timeout", "within", "connect_timeout", "request_timeout"}
"""Parameters that are a deadline."""

SHORT_ONES: set[str] = {
    "nemesis/test_nemesis.py::test_nothing_is_lost_or_out_of_order_whatever_is_broken",  # its receiver leaves requests unanswered
    "nemesis/wide.py::wide_rig",  # the same
    "sinks/test_receiver.py::test_waiting_in_vain_is_an_error",
    "sinks/test_webhook_delivery.py::test_closing_waits_for_a_silent_receiver_no_longer_than_the_timeout",
    "sinks/test_webhook_parallel.py::test_closing_waits_for_silent_requests_one_timeout_altogether",
    "sources/mark/test_marking.py::test_of_two_that_mark_at_the_same_moment_the_old_leader_gets_nothing_that_is_the_new_ones",
    "test_postgres_server.py::test_paused_it_answers_nobody_until_it_goes_on",
}
"""Functions with a shorter deadline: its expiry is the subject, and a slow host changes no outcome."""

TIMING: set[str] = set()
"""Tests that may be repeated once if they fail."""


def test_every_test_that_the_readme_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", (TESTS / "README.md").read_text()))
    found = {name for file in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    assert len(named) > 30
    assert named <= found, named - found


def test_the_readme_maps_all_26():
    numbers = re.findall(r"^\| T0\.(\d+) \|", (TESTS / "README.md").read_text(), re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 27))


@pytest.mark.parametrize(
    "text",
    ["import pytest\ndef test_it(): pytest.skip('no server')", "import pytest\n@pytest.mark.skip('no server')\ndef test_it(): ..."],
)
def test_a_test_that_is_skipped_fails(tmp_path, text):
    (tmp_path / "test_one.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "fix_skips", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command,
        timeout=PATIENCE,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == 1
    assert "skipped: no server" in done.stdout


def deadlines(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Every deadline that is written as a literal, with the function that it is in; the pace of a loop is none."""
    loops = (one.test for one in ast.walk(tree) if isinstance(one, ast.While | ast.If))
    paces = {one.operand if isinstance(one, ast.UnaryOp) else one for one in loops}
    for function in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)):
        for call in (one for one in ast.walk(function) if isinstance(one, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if call in paces:
                continue
            given = [one.value for one in call.keywords if one.arg in NAMED]
            given += call.args[:1] if name in WAITS else call.args[1:2] if name == "until" else []
            yield from ((function.name, one) for one in given if isinstance(one, ast.Constant))


def is_short(value: object) -> bool:
    """Whether a literal is a deadline that a slow host misses: of a test, or of a sink or a term."""
    if isinstance(value, str):
        return bool(re.fullmatch(r"\d+m?s", value)) and parse(value).total_seconds() < 60
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < PATIENCE


def test_no_test_waits_for_less_than_the_common_deadline():
    found = {
        f"{path.relative_to(TESTS)}::{function} {one.value!r}"
        for path in TESTS.rglob("*.py")
        for function, one in deadlines(ast.parse(path.read_text()))
        if is_short(one.value) and f"{path.relative_to(TESTS)}::{function}" not in SHORT_ONES
    }
    assert found == set()


def test_no_test_is_decided_by_an_upper_bound_on_elapsed_seconds():
    pattern = re.compile(r"assert .*(?:monotonic|time|perf_counter)\(\) - \w+ <|assert .*\bseconds\b[^=]* < ")
    found = [
        f"{path.name}: {line.strip()}"
        for path in TESTS.rglob("*.py")
        for line in path.read_text().splitlines()
        if pattern.search(line)
    ]
    assert found == []


def test_only_the_tests_of_the_list_may_be_repeated():
    pattern = r"mark\.timing[^\n]*\n(?:@[^\n]*\n)*def (test_\w+)"
    marked = {name for path in TESTS.rglob("test_*.py") for name in re.findall(pattern, path.read_text())}
    assert marked == TIMING


@pytest.mark.parametrize(
    ("failures", "code", "said"),
    [(0, 0, "1 passed"), (1, 0, "first run of test_one.py::test_it, repeated once"), (2, 1, "1 failed")],
)
def test_a_test_of_that_list_is_repeated_exactly_once_and_both_outcomes_are_printed(tmp_path, failures, code, said):
    body = f"    runs.append(1)\n    assert len(runs) > {failures}, f'run {{len(runs)}}'"
    (tmp_path / "test_one.py").write_text(f"import pytest\nruns = []\n@pytest.mark.timing\ndef test_it():\n{body}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = timing\n")
    command = [sys.executable, "-m", "pytest", "-p", "fix_timing", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout
    assert ("run 1" in done.stdout, "run 2" in done.stdout, "run 3" in done.stdout) == (failures > 0, failures > 1, False)


def test_a_run_that_starts_spark_too_often_fails_and_says_where(tmp_path):
    (tmp_path / "test_one.py").write_text(
        "import os\ndef test_it():\n    open(os.environ['PENSTOCK_TEST_STARTS'], 'a').write('test_one.py::test_it run\\n' * 61)\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "PENSTOCK_TEST_STARTS"}
    path = os.pathsep.join([str(TESTS), str(TESTS / "site")])
    command = [sys.executable, "-m", "pytest", "-p", "fix_budget", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**env, "PYTHONPATH": path})
    assert done.returncode == 1
    assert "61 starts of Spark, of which 60 are allowed" in done.stdout
    assert "61 test_one.py" in done.stdout
