"""The calls of a function in processes that die in them: which change is counted, and how it was."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.change import Change, Op, to_batch
from penstock.config import parse
from penstock.coordinator import Term
from penstock.errors import EngineFailed
from penstock.spark import calls as module
from penstock.spark import endings
from penstock.spark.calls import Calls
from penstock.spark.task_spec import TaskSpec
from penstock.transform.function import Function

CHANGES = [Change(at, Op.INSERT, "orders", f'{{"id":{at}}}', None, "{}") for at in range(1, 6)]
ROWS = [replace(change, position=9, ordinal=change.position) for change in CHANGES]
LONG = "\u00e4" * 150_000
LONGER = [ROWS[0], replace(ROWS[1], key=f'{{"id":"{LONG}"}}')]
WAYS = {
    "exit": lambda: os._exit(7),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "wait": signal.pause,
    "wait in C with the lock of Python": lambda: ctypes.PyDLL(None).pause(),
    "return": lambda: None,
}


def spec(folder, tries=3, timeout="60s"):
    transform = {"function": "rules:f", "timeout": timeout}
    sink = {"type": "webhook", "url": "http://127.0.0.1:1/", "retry": {"tries": tries}}
    source = {"type": "sqlite", "database": "shop.db"}
    pipeline = parse({"name": "orders", "source": source, "sink": sink, "transform": transform}, folder)
    return TaskSpec(pipeline, Term("orders", "me", 1), str(folder), "query", 300.0)


def die(folder, way, bad=3, changes=CHANGES, **how):
    """A process that calls a function with changes and dies in one of the calls; what its successor finds."""
    name = {id(CHANGES): "CHANGES", id(ROWS): "ROWS", id(LONGER): "LONGER"}[id(changes)]
    script = f"import test_calls; test_calls.call({str(folder)!r}, {way!r}, {bad}, test_calls.{name}, {how!r})"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parent)


def call(folder, way, bad, changes, how):
    """As the daemon of workers does: fork, wait, note; this process stays and is asked for the endings."""
    stops, bad_key = how.pop("stops", False), changes[bad - 1].key
    for _ in range(how.pop("times", 1)):
        pid = os.fork()
        if pid == 0:
            watch = Calls(spec(folder, **how), "main", 0)
            Function("rules:f", lambda change: change if change.key != bad_key else WAYS[way]()).apply(
                to_batch(changes), watch=watch
            )
            os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        endings.reap(signal.SIGCHLD, None)
    if stops:
        spec(folder).stop()
    found = Calls(spec(folder, **how), "main", 0)
    found.close()
    Path(folder, "found").write_text((found.trouble_after(-1) or {"message": "nothing"})["message"])


def begin_and_die(folder):
    """A process that dies in a call; one after it that dies at each line of its begin, in turn; what the third one finds."""
    found, at, is_killed = [], 0, True
    while is_killed:
        at += 1
        place = Path(folder, str(at))
        place.mkdir(mode=0o700)
        ended(lambda: Calls(spec(place), "main", 0).enter(CHANGES[2]), dies=True)  # noqa: B023
        is_killed = ended(lambda: traced(at, lambda: Calls(spec(place), "main", 0)))  # noqa: B023
        successor = Calls(spec(place), "main", 0)
        successor.close()
        found.append((successor.trouble_after(-1) or {"message": "nothing"})["message"].rpartition("; ")[2])
    Path(folder, "found").write_text("\n".join(found))


def ended(work, dies=False):
    """Whether a process with this work was killed."""
    pid = os.fork()
    if pid == 0:
        work()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    endings.reap(signal.SIGCHLD, None)
    return endings.ending_of(pid).code == -signal.SIGKILL


def traced(at, work):
    """Do this, and be killed before so many lines that begin or save files of calls."""
    left = [at]

    def follow(frame, event, argument):
        if frame.f_code.co_filename != module.__file__ or frame.f_code.co_name not in ("_open", "_save", "_begun"):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return follow

    sys.settrace(follow)
    work()
    sys.settrace(None)


def said(folder):
    return Path(folder, "found").read_text()


@pytest.mark.parametrize(
    ("way", "how", "bad", "changes"),
    [
        ("exit", "ended its worker process with exit code 7", 3, CHANGES),
        ("exit", "ended its worker process with exit code 7", 3, ROWS),
        ("segfault", "ended its worker process with SIGSEGV at ", 3, CHANGES),
        ("kill", "ended its worker process with SIGKILL", 3, CHANGES),
        ("wait", "did not return within 0.1 s at ", 1, CHANGES),
        ("wait in C with the lock of Python", "did not return within 0.1 s at ", 1, CHANGES),
    ],
)
def test_the_successor_counts_how_its_predecessor_died(tmp_path, way, how, bad, changes):
    die(tmp_path, way, bad, changes, times=2, tries=9, timeout="100ms" if "wait" in way else "60s")
    assert said(tmp_path).startswith(f"transform.function rules:f {how}")
    assert said(tmp_path).endswith("; try 2 failed")
    watch = Calls(spec(tmp_path, tries=9), "main", 1)
    met = [(part.num_rows, death and death.tries) for part, death in watch.parts(to_batch(changes))]
    watch.close()
    assert met == [part for part in ((bad - 1, None), (1, 2), (5 - bad, None)) if part[0]]


def test_a_row_with_a_very_long_key_is_recognised_and_its_error_shows_the_begin_of_the_key(tmp_path):
    die(tmp_path, "kill", 2, LONGER, times=2, tries=2)
    watch = Calls(spec(tmp_path, tries=2), "main", 1)
    rows = [part.num_rows for part, death in watch.parts(to_batch(LONGER)) if death]
    error = watch.meet(LONGER[1])
    watch.close()
    assert rows == [1]
    assert f"key {LONGER[1].key[:200]}..., in 2 of 2 tries" in error.message
    assert len(error.message) < 1000


def test_a_death_is_counted_once_wherever_the_next_process_is_killed_as_it_begins(tmp_path):
    script = f"import test_calls; test_calls.begin_and_die({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parent)
    found = said(tmp_path).splitlines()
    assert len(found) > 10
    assert set(found) == {"try 1 failed"}


@pytest.mark.parametrize("size", [None, 0, 100])
def test_a_file_of_calls_that_is_missing_or_short_names_no_call(tmp_path, size):
    die(tmp_path, "return")
    [calls] = tmp_path.glob("*.calls")
    calls.unlink() if size is None else os.truncate(calls, size)
    watch = Calls(spec(tmp_path), "main", 1)
    watch.close()
    assert watch.trouble_after(-1) is None


def test_nothing_is_read_from_or_written_to_a_folder_that_other_users_can_enter(tmp_path):
    os.mkdir(tmp_path / "run", 0o755)
    with pytest.raises(EngineFailed, match=r"run is a folder of user \d+ with mode 755"):
        Calls(spec(tmp_path / "run"), "main", 1)
    assert not list((tmp_path / "run").iterdir())


def test_who_returns_or_ends_outside_of_a_call_leaves_nothing(tmp_path):
    die(tmp_path, "return")
    assert said(tmp_path) == "nothing"


def test_another_lane_and_another_pipeline_count_for_themselves(tmp_path):
    die(tmp_path, "kill")
    other = spec(tmp_path)
    for one, lane in ((other, "other"), (replace(other, pipeline=replace(other.pipeline, name="items")), "main")):
        watch = Calls(one, lane, 1)
        watch.close()
        assert watch.trouble_after(-1) is None


def test_who_was_ended_because_its_query_stops_is_not_counted(tmp_path):
    spec(tmp_path).stop()
    die(tmp_path, "kill")
    assert said(tmp_path) == "nothing"


def test_a_query_that_stops_because_of_a_death_does_not_excuse_it(tmp_path):
    die(tmp_path, "exit", stops=True)
    assert said(tmp_path).endswith("try 1 failed")


@pytest.fixture
def watch(tmp_path):
    die(tmp_path, "kill", times=2, tries=2)
    made = Calls(spec(tmp_path, tries=2), "main", 1)
    yield made
    made.close()


def test_a_change_whose_tries_are_spent_is_poison_and_one_that_survives_is_forgotten(watch, tmp_path):
    assert watch.trouble_after(-1) is None, "its tries are spent"
    error = watch.meet(CHANGES[2])
    assert (
        error.message
        == 'transform.function rules:f ended its worker process with SIGKILL on change 3 of orders, key {"id":3}, in 2 of 2 tries'
    )
    assert error.remedy.endswith("penstock run FILE --from 3")
    watch.survive(CHANGES[2])
    assert [death for _, death in watch.parts(to_batch(CHANGES))] == [None]


def test_how_many_in_a_row_were_condemned_is_known_where_they_are_recorded(watch, tmp_path):
    watch.settle(4, 2)
    assert [death and death.tries for _, death in watch.parts(to_batch(CHANGES))] == [None, 2, None]
    watch.settle(4, 17)
    assert [death for _, death in watch.parts(to_batch(CHANGES))] == [None], "what is behind the watermark does not come again"
    successor = Calls(spec(tmp_path, tries=2), "main", 2)
    successor.close()
    assert [successor.in_row(17), successor.in_row(16)] == [4, 0]


def test_the_timer_is_set_again_after_a_tenth_of_the_limit_and_off_between_runs(tmp_path, monkeypatch):
    watch, now = Calls(spec(tmp_path, timeout="1h"), "main", 1), [time.monotonic()]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    left = []
    for later in (0, 300, 300):
        now[0] += later
        watch.enter(CHANGES[0])
        left.append(signal.getitimer(signal.ITIMER_REAL)[0])
        signal.setitimer(signal.ITIMER_REAL, 1800)
    watch.leave()
    off = signal.getitimer(signal.ITIMER_REAL)[0]
    watch.close()
    assert [round(seconds / 1800) for seconds in left] == [2, 1, 2]
    assert off == 0
