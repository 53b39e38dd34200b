"""`penstock dead`, over a real state file and a real receiver of webhooks."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import yaml

from facts import facts
from penstock.change import Change, Lane, Op
from penstock.checkup.standing import leader
from penstock.cli import main
from penstock.cli.dead import described
from penstock.config import load
from penstock.coordinator import Tally, Term
from penstock.cursor import Cursor, Watermark
from penstock.errors import DeliveryExhausted
from penstock.finding import Severity
from penstock.letter import DeadLetter
from penstock.poison.condemned import Circumstances
from penstock.poison.policy import Poison
from penstock.receiver import MemoryStore, Receiver
from penstock.running.redrive import REACH_SECONDS, Redriven, redrive
from penstock.settings import settings
from penstock.sink import Assignment, Sink
from penstock.status import _poison, summarise

LANE = Lane("log")
ERROR = DeliveryExhausted("http://h/: status 422; changes were not taken in 1 tries")


def change(position: int, key: int = 1, **more: Any) -> Change:
    return Change(position, Op.INSERT, "orders", f'{{"id":{key}}}', None, f'{{"id":{key},"n":{position}}}', position, **more)


def mark(position: int) -> Watermark:
    return Watermark(Cursor(json.dumps({"incarnation": "cafe", "position": position, "witness": ""})), position)


class Hook:
    """A receiver of webhooks as a user would write it, with `penstock.receiver` inside; refuses changes with certain numbers."""

    def __init__(self, by: Literal["lane", "row"]) -> None:
        self.applied: list[int] = []
        self.refused: set[int] = set()
        self.repeats = 0
        self.headers: list[dict[str, str]] = []
        self.before: dict[int, Any] = {}
        judge = Receiver(MemoryStore(), by=by)
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(hook.take(judge, dict(self.headers), body))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def take(self, judge: Receiver, headers: dict[str, str], body: bytes) -> int:
        positions = [one["position"] for one in json.loads(body)["changes"]]
        for position in positions:
            self.before.pop(position, lambda: None)()
        if self.refused.intersection(positions):
            return 422
        with judge.accepting(headers, body) as verdict:
            self.applied += [one["position"] for one in verdict.changes]
            self.repeats += verdict.repeats
        self.headers.append({name.lower(): value for name, value in headers.items()})
        return verdict.status


@dataclass
class Office:
    """A pipeline that is led, so that letters can be parked, and its receiver."""

    file: Path
    hook: Hook
    term: Term
    claim: Any
    told: list[Any] = field(default_factory=list)

    @property
    def pipeline(self) -> Any:
        return load(self.file)

    def poison(self, keys: Any = "wait") -> Poison:
        return Poison("dead-letter", keys, self.claim, Circumstances("orders", LANE, "cafe", self.term.epoch, self.told.extend))

    def parked(self) -> list[int]:
        return [letter.change.position for letter in self.pipeline.state.letters("orders")]

    def run(self, capsys: Any, *words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["dead", words[0], str(self.file), *words[1:]])
        said = capsys.readouterr()
        return code, said.out + said.err


@pytest.fixture(params=["row"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    hook = Hook(request.param)
    thread = Thread(target=hook.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    content = {
        "name": "orders",
        "source": {"type": "sqlite", "database": "shop.db"},
        "sink": {"type": "webhook", "url": hook.url, "timeout": "180s", "retry": {"then": "dead-letter"}},
    }
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(content))
    state = load(tmp_path / "p.yaml").state
    with ExitStack() as stage:
        term = stage.enter_context(closing(state.candidate("orders", "test"))).campaign()
        assert term
        state.place(term, {LANE: mark(0)})
        claim = stage.enter_context(state.claim(term, LANE, 1))
        claim.advance(mark(999), Tally())
        yield Office(tmp_path / "p.yaml", hook, term, claim)
    hook.server.shutdown()
    hook.server.server_close()
    thread.join()


def parked_chain(office: Office) -> Poison:
    """Letter 3 with 5 and 7 behind it, and letter 4 of another key."""
    poison = office.poison()
    poison.condemn(change(3), ERROR, tries=2)
    poison.condemn(change(4, 2), ERROR)
    assert poison.sift([change(5), change(7)]) == []
    return poison


def test_letters_are_listed_and_shown_for_people_and_for_programs(
    office: Office, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert office.run(capsys, "list") == (0, "0 dead letters, 0 of them wait for another of their key.\n")
    parked_chain(office)
    code, said = office.run(capsys, "list")
    assert code == 0
    assert "waits for another" in said
    assert "4 dead letters, 2 of them wait for another of their key." in said
    code, said = office.run(capsys, "list", "--json", "table=orders", 'key={"id": 1}')
    found = [json.loads(line) for line in said.splitlines()]
    assert [(one["position"], one["behind"]) for one in found] == [(3, False), (5, True), (7, True)]
    code, said = office.run(capsys, "show", str(found[0]["number"]), "--json")
    shown = json.loads(said)
    assert (shown["key"], shown["after"], shown["code"], shown["tries"]) == ({"id": 1}, {"id": 1, "n": 3}, "sink.exhausted", 2)
    code, said = office.run(capsys, "show", "position=4")
    assert "status 422" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["redrive"], "no letter is named"),
        (["drop"], "no letter is named"),
        (["show"], "no letter is named"),
        (["show", "99"], "there is no such dead letter"),
        (["redrive", "keys=1"], "'keys=1' does not select letters"),
        (["redrive", "key=5"], "key=5 is not a JSON object"),
        (["redrive", "position=x"], "'position=x' does not select letters"),
        (["drop", "table=drafts"], "there is no such dead letter"),
    ],
)
def test_a_wrong_request_says_what_is_meant(office: Office, capsys: Any, words: list[str], said: str) -> None:
    parked_chain(office)
    code, told = office.run(capsys, *words)
    assert code == 2
    assert said in told
    assert len(office.parked()) == 4


@settings
class FullSink(Sink):
    """Its deliveries never have room."""

    def open(self, assignment: Assignment) -> Any:
        return SimpleNamespace(offer=lambda *_: False, drain=lambda wait: True, close=lambda: None)


def test_a_letter_for_which_the_sink_has_no_room_stays(office: Office) -> None:
    parked_chain(office)
    done = list(redrive(replace(office.pipeline, sink=FullSink()), lambda letter: letter.change.position == 4))
    assert [(one.outcome, one.error and one.error.code) for one in done] == [("failed", "sink.exhausted")]
    assert 4 in office.parked()


@pytest.mark.parametrize("office", ["row", "lane"], indirect=True)
def test_a_redrive_sends_a_key_in_order_and_its_receiver_takes_each_once(office: Office, capsys: Any) -> None:
    parked_chain(office)
    number = office.pipeline.state.letters("orders")[-1].number
    code, said = office.run(capsys, "redrive", str(number))
    assert (code, office.hook.applied, office.parked()) == (0, [3, 5, 7], [4])
    assert "3 of 3 dead letters are removed." in said
    assert {headers["penstock-redriven"] for headers in office.hook.headers} == {"true"}
    assert {headers["penstock-epoch"] for headers in office.hook.headers} == {"1"}
    key = office.hook.headers[0]["idempotency-key"]
    assert re.fullmatch(r"orders-cafe-3-3-redriven-[0-9a-f]{16}", key)
    office.poison().condemn(change(3), ERROR)  # the redrive was killed before it could remove the letter
    code, said = office.run(capsys, "redrive", "all", "--json")
    assert (code, office.hook.applied, office.parked()) == (0, [3, 5, 7, 4], [])
    assert office.hook.repeats == 1
    assert [headers["idempotency-key"] for headers in office.hook.headers].count(key) == 2, "the same body has the same key"
    assert [json.loads(line)["outcome"] for line in said.splitlines()] == ["sent", "sent"]
    assert office.pipeline.state.pipeline_state("orders").redriven == 5


def test_a_letter_that_was_corrected_is_sent_with_another_key(office: Office, capsys: Any) -> None:
    content = yaml.safe_load(office.file.read_text())
    for total in (1, 2):
        (office.file.parent / f"rules_{total}.py").write_text(
            f"def f(change):\n    return change.replace(after='{{\"n\":{total}}}')\n"
        )
        office.file.write_text(yaml.safe_dump(content | {"transform": {"function": f"rules_{total}:f"}}))
        office.poison().condemn(change(3), ERROR, stage="function")
        assert office.run(capsys, "redrive", "all")[0] == 0
    first, second = (headers["idempotency-key"] for headers in office.hook.headers)
    assert first.startswith("orders-cafe-3-3-redriven-")
    assert second.startswith("orders-cafe-3-3-redriven-")
    assert first != second, "a receiver that knows the first one would leave the correction out"


def test_what_fails_again_stays_with_all_behind_it_and_the_others_go(office: Office, capsys: Any) -> None:
    parked_chain(office)
    office.hook.refused = {5}
    code, said = office.run(capsys, "redrive", "all")
    assert (code, office.hook.applied, office.parked()) == (1, [3, 4], [5, 7])
    assert "change 5 of orders" in said
    assert "failed again" in said
    assert "status 422" in said
    assert "waits for one that failed" in said


def test_changes_that_come_for_the_key_meanwhile_are_parked_and_sent_by_the_same_redrive(office: Office) -> None:
    poison = parked_chain(office)
    arrived: list[int] = []
    office.hook.before = {
        3: lambda: arrived.extend(one.position for one in poison.sift([change(9)])),
        7: lambda: arrived.extend(one.position for one in poison.sift([change(11)])),
        11: lambda: arrived.extend(one.position for one in poison.sift([change(13), change(14, 5)])),
    }
    told = [(one.letter.change.position, one.outcome) for one in redrive(office.pipeline, lambda one: one.change.position == 3)]
    assert [position for position, outcome in told if outcome == "sent"] == [3, 5, 7, 9, 11, 13]
    assert office.hook.applied == [3, 5, 7, 9, 11, 13]
    assert arrived == [14], "another key does not wait"
    assert office.parked() == [4]
    assert [one.position for one in poison.sift([change(15)])] == [15], "the key is free"


def test_a_letter_is_not_sent_before_what_lies_before_it_is_delivered(
    office: Office, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.running.redrive.REACH_SECONDS", 0.3)
    poison = office.poison()
    for position in (7, 1001, 1003):
        poison.condemn(change(position, position), ERROR)
    code, said = office.run(capsys, "redrive", "all")
    assert (code, office.hook.applied, office.parked()) == (1, [7], [1001, 1003])
    assert "changes before it are not delivered yet" in said
    office.hook.before[1001] = lambda: office.claim.advance(mark(1003), Tally())
    monkeypatch.setattr("penstock.running.redrive.REACH_SECONDS", 60.0)
    office.claim.advance(mark(1001), Tally())
    assert office.run(capsys, "redrive", "all")[0] == 0
    assert office.hook.applied == [7, 1001, 1003]
    poison.condemn(change(2000), ERROR)
    assert office.run(capsys, "redrive", "all", "--force")[0] == 0


def test_a_pipeline_that_does_not_come_on_is_waited_for_once_and_not_for_each_letter(
    office: Office, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    clock = SimpleNamespace(sleep=looks.append, monotonic=lambda: sum(looks))
    monkeypatch.setattr("penstock.running.redrive.time", clock)
    poison = office.poison()
    for position in range(1001, 1021):
        poison.condemn(change(position, position), ERROR)
    assert office.run(capsys, "redrive", "all")[0] == 1
    assert (round(sum(looks)), len(office.parked())) == (REACH_SECONDS, 20)


def test_to_send_all_where_there_is_none_is_no_error(office: Office, capsys: Any) -> None:
    assert office.run(capsys, "redrive", "all") == (0, "0 of 0 dead letters are removed.\n")


def test_a_letter_of_another_life_of_the_source_waits_for_nothing(office: Office, capsys: Any) -> None:
    about = Circumstances("orders", LANE, "an older one", office.term.epoch, office.told.extend)
    Poison("dead-letter", "wait", office.claim, about).condemn(change(5000), ERROR)
    assert office.run(capsys, "redrive", "all")[0] == 0
    assert office.hook.applied == [5000]


def test_a_letter_that_was_overtaken_is_sent_by_force_alone(office: Office, capsys: Any) -> None:
    poison = office.poison("go-on")
    poison.condemn(change(3), ERROR)
    poison.condemn(change(4, 2), ERROR)
    assert len(poison.sift([change(5)])) == 1
    code, said = office.run(capsys, "redrive", "all")
    assert (code, office.hook.applied, office.parked()) == (1, [4], [3])
    assert "would overwrite later changes of its key with an old image (--force sends it)" in said
    assert office.run(capsys, "redrive", "all", "--force")[0] == 0
    assert office.parked() == []


def test_a_receiver_in_trouble_ends_a_redrive_after_ten(office: Office) -> None:
    poison = office.poison()
    for position in range(1, 31):
        poison.condemn(change(position, position), ERROR)
    office.hook.refused = set(range(1, 31))
    told: list[Redriven] = list(redrive(office.pipeline, lambda one: True))
    assert [one.outcome for one in told] == ["failed"] * 10
    assert len(office.parked()) == 30


def test_two_redrives_at_once_are_refused(office: Office, capsys: Any) -> None:
    parked_chain(office)
    with office.pipeline.state.redriving("orders"):
        code, said = office.run(capsys, "redrive", "all")
        assert code == 1
        assert "another process sends or drops dead letters of orders" in said
        assert office.run(capsys, "drop", "all", "--yes")[0] == 1


def test_dropping_asks_counts_and_leaves_what_waits(office: Office, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parked_chain(office)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, said = office.run(capsys, "drop", "position=3")
    assert (code, len(office.parked())) == (1, 4), "nobody said yes"
    code, said = office.run(capsys, "drop", "position=3", "--yes")
    assert code == 0
    assert "1 dead letters are dropped." in said
    assert "2 other letters of their keys are still parked" in said
    assert office.parked() == [4, 5, 7]
    assert office.pipeline.state.pipeline_state("orders").dropped == 1
    assert office.run(capsys, "redrive", 'key={"id":1}')[0] == 0
    assert office.hook.applied == [5, 7]


def test_what_is_parked_while_a_person_is_asked_is_not_dropped(
    office: Office, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked_chain(office)

    def confirm(*_: Any, **__: Any) -> None:
        office.poison().condemn(change(90, 9), ERROR)

    monkeypatch.setattr("typer.confirm", confirm)
    assert office.run(capsys, "drop", "all")[0] == 0
    assert office.parked() == [90]


def test_programs_are_told_all_of_a_letter() -> None:
    change = Change(
        7, Op.UPDATE, "t", '{"id":1}', '{"id":1}', '{"id":1}', 1_767_225_600_250_000, facts(1, 2), "odd", 9, 3, (("a", b"b"),), 4
    )
    letter = DeadLetter("cafe", Lane("log"), change, "sink", "c", "m", 2, 4, True, False, True, number=5)
    told = described(letter)
    names = {one.name for part in (change, letter) for one in fields(part)} - {"change", "facts"}
    assert {
        "at": "2026-01-01T00:00:00.250Z",
        "old_row_id": 1,
        "new_row_id": 2,
        "error": "odd",
        "transaction": 9,
        "headers": [["a", "b"]],
        "schema": 4,
    }.items() <= told.items()
    assert set(told) == {name.removeprefix("is_") for name in names} | {"old_row_id", "new_row_id"}


def test_dropping_tells_programs_what_is_gone(office: Office, capsys: Any) -> None:
    parked_chain(office)
    listed = [json.loads(line) for line in office.run(capsys, "list", "--json")[1].splitlines()]
    code, said = office.run(capsys, "drop", "position=3", "--yes", "--json")
    assert code == 0
    assert [json.loads(line) for line in said.splitlines()] == [one for one in listed if one["position"] == 3]
    assert office.parked() == [4, 5, 7]


def test_status_doctor_and_forget_tell_of_letters(office: Office, capsys: Any) -> None:
    parked_chain(office)
    office.claim.advance(Watermark(Cursor("c7"), 7, 7), Tally(3, 0.0, dropped=2, passed=1))
    pipeline = office.pipeline
    standing = pipeline.state.pipeline_state("orders")
    assert (standing.dead, standing.waiting, standing.dropped, standing.passed) == (4, 2, 2, 1)
    assert summarise(pipeline, standing, {}, datetime.now(UTC)).dead == 4
    _, warned = leader(pipeline)
    assert (warned.verdict, "4 changes could not be delivered" in warned.said) == (Severity.WARNING, True)
    assert list(_poison("orders", standing)) == [
        "orders: 4 dead letters, 2 of them wait for another, passed by 1 later changes of their keys: penstock dead list FILE",
        "orders: 2 changes were dropped",
    ]


def test_letters_of_a_function_go_through_the_function_as_it_is_now(office: Office, tmp_path: Path) -> None:
    (tmp_path / "dead_rules.py").write_text(
        "def mend(change):\n"
        "    if change.position == 4:\n"
        "        raise ValueError('no')\n"
        "    return None if change.position == 3 else [change, change.replace(table='books')]\n"
    )
    content = yaml.safe_load(office.file.read_text()) | {"transform": {"function": "dead_rules:mend"}}
    office.file.write_text(yaml.safe_dump(content))
    poison = office.poison()
    for position in (3, 4, 5):
        poison.condemn(change(position, position), ERROR, stage="function")
    told = {one.letter.change.position: one for one in redrive(office.pipeline, lambda one: True)}
    assert {position: one.outcome for position, one in told.items()} == {3: "left out", 4: "failed", 5: "sent"}
    assert office.hook.applied == [5, 5]
    failed = told[4].error
    assert failed
    assert "raised ValueError: no" in failed.message
