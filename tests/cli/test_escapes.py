"""No text of a database, a receiver or a file steers the terminal of the person who looks at it."""

from __future__ import annotations

import ast
import io
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.core import CounterMetricFamily
from rich.console import Console

from penstock.change import Change, Op
from penstock.cli import main, terminal
from penstock.cli.log import LogFormat, log_to
from penstock.config import load
from penstock.coordinator import Tally
from penstock.cursor import Watermark
from penstock.demo.figures import Figures
from penstock.demo.screen import Lines, picture
from penstock.demo.story import ACTS, View
from penstock.errors import DeliveryExhausted
from penstock.event import ChangeParked, Halted
from penstock.harvest.translation import file_of
from penstock.metrics.exposition import _family
from penstock.poison.condemned import Circumstances
from penstock.poison.policy import Poison
from penstock.sources.sqlite.source import LANE

PACKAGE = Path(__file__).parents[2] / "src" / "penstock"
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202ecod\u200b\x7f"
"""A title, a cleared screen, a colour, a text that runs backwards, and two characters that nobody sees."""
FORBIDDEN = set(EVIL) - set("]0;owned[2J31mcod")
TABLE = f"t{EVIL}"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Those of the program itself, on a terminal."""


def harmful(text: str) -> list[str]:
    """The characters of this text that a terminal must not get."""
    return sorted(FORBIDDEN.intersection(text))


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = f"no: {EVIL}\ufe0f".encode()
        self.send_response(422)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute(f'create table "{TABLE}"(id text primary key, "v{EVIL}")')
    return tmp_path / "shop.db"


@pytest.fixture
def file(database: Path, refusing: str) -> Iterator[Path]:
    """A pipeline with everything hostile that it can have, led so that letters can be parked."""
    file = database.parent / f"p{EVIL}.yaml".replace("/", "")
    source = {"type": "sqlite", "database": "shop.db", "tables": re.escape(TABLE)}
    sink = {"type": "webhook", "url": refusing, "retry": {"tries": 1, "then": "dead-letter"}}
    file.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": sink, "transform": {"where": f"'{EVIL}' = table"}}))
    assert main(["capture", "enable", str(database)]) == 0
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(f'insert into "{TABLE}" values (?, ?)', (EVIL, EVIL))
    pipeline = load(file)
    pipeline.source.retention.register(f"other{EVIL}", LANE, pipeline.source.head(LANE))
    with ExitStack() as stage:
        term = stage.enter_context(closing(pipeline.state.candidate("orders", f"host{EVIL}"))).campaign()
        assert term
        cursor = pipeline.source.begin(LANE, "beginning")
        pipeline.state.place(term, {LANE: Watermark(cursor, 0)})
        claim = stage.enter_context(pipeline.state.claim(term, LANE, 1))
        poison = Poison("dead-letter", "wait", claim, Circumstances("orders", LANE, "cafe", term.epoch, lambda _: None))
        key, image = json.dumps({"id": EVIL}, ensure_ascii=False), json.dumps({"v": EVIL}, ensure_ascii=False)
        poison.condemn(Change(1, Op.INSERT, TABLE, key, None, image, 0), DeliveryExhausted(f"no: {EVIL}", f"repair {EVIL}"))
        claim.advance(Watermark(pipeline.source.head(LANE), 1), Tally())
        stage.close()
        term = stage.enter_context(closing(pipeline.state.candidate("orders", f"host{EVIL}"))).campaign()
        assert term
        pipeline.state.halt(term, DeliveryExhausted(f"no: {EVIL}", f"repair {EVIL}").facts())
    return file


@pytest.mark.parametrize("option", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    "words",
    [
        ["status", "FILE"],
        ["validate", "FILE"],
        ["doctor", "FILE"],
        ["dead", "list", "FILE"],
        ["dead", "show", "FILE", "all"],
        ["dead", "redrive", "FILE", "all", "--force"],
        ["dead", "drop", "FILE", "all", "--yes"],
        ["capture", "status", "shop.db"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_shows_hostile_data_by_codes(
    words: list[str], option: list[str], file: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    here = {"FILE": str(file), "shop.db": str(file.parent / "shop.db")}
    for name in ("NO_COLOR", "FORCE_COLOR") if words[0] in ("status", "capture") else ("NO_COLOR",):
        monkeypatch.setenv(name, "1")
        capsys.readouterr()
        main([*(here.get(word, word) for word in words), *option])
        said = capsys.readouterr()
        told = COLOURS.sub("", said.out + said.err)
        assert "Traceback" not in told
        assert harmful(told) == []
        assert "u202e" in told or words[1] == "drop", told
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "words",
    [
        ["capture", "enable", "shop.db"],
        ["capture", "enable", "shop.db", "--print-sql"],
        ["capture", "disable", "shop.db", "--print-sql"],
        ["capture", "repair", "shop.db"],
        ["capture", "suspend", "shop.db"],
        ["capture", "resume", "shop.db"],
        ["capture", "enable", f"none{EVIL}.db"],
        ["forget", "--database", "shop.db", f"other{EVIL}"],
        ["forget", "--database", "shop.db", "nobody"],
        ["init", f"folder{EVIL}", "--url", f"http://h/{EVIL}"],
        ["init", f"folder{EVIL}"],
        ["status", f"none{EVIL}.yaml"],
        ["outbox", "init", f"{EVIL}.db", "--table", f"x{EVIL}", "--layout", "goharvest"],
        ["rewind", "FILE", "--to", f"2x{EVIL}"],
        ["dead", "show", "FILE", f"x{EVIL}"],
        ["status", f"--{EVIL}"],
        [f"x{EVIL}"],
    ],
    ids=lambda words: " ".join(words[:2]).replace(EVIL, ""),
)
def test_what_a_command_does_with_hostile_names_is_told_by_codes(words: list[str], file: Path, capsys: Any) -> None:
    capsys.readouterr()
    here = {"FILE": str(file), "shop.db": str(file.parent / "shop.db"), f"folder{EVIL}": str(file.parent / f"folder{EVIL}")}
    main([here.get(word, word) for word in words])
    said = capsys.readouterr()
    assert said.out + said.err
    assert "Traceback" not in said.err
    assert harmful(said.out + said.err) == []


def test_a_text_log_is_one_line_for_each_event_whatever_it_says() -> None:
    for kind in LogFormat:
        stream = io.StringIO()
        emit = log_to(stream, kind, verbose=True)
        emit(
            Halted(pipeline="orders", code="sink.exhausted", message=f"no: {EVIL}\n12:00:00 info  orders: all is well", remedy=EVIL)
        )
        emit(ChangeParked(pipeline="orders", position=1, table=TABLE, key=EVIL, code="sink.exhausted", message=EVIL))
        assert harmful(stream.getvalue()) == []
        assert stream.getvalue().count("\n") == 2


def test_the_mistakes_of_a_hostile_file_are_told_by_codes(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "p.yaml").write_text(
        yaml.safe_dump({"name": EVIL, EVIL: 1, "source": {"type": EVIL, EVIL: EVIL}, "sink": {EVIL: 2}})
    )
    assert main(["validate", str(tmp_path / "p.yaml")]) == 2
    said = capsys.readouterr().err
    assert harmful(said) == []
    assert r"\x1b]0;owned\x07" in said


def test_the_demo_and_the_bars_of_a_scan_show_codes(capsys: Any) -> None:
    figures = Figures()
    arrival = SimpleNamespace(
        change={"table": TABLE, "op": "insert", "key": {"id": EVIL}}, latency=0.1, is_repeat=False, position=1
    )
    figures.recent.append(arrival)  # type: ignore[arg-type]
    stream = io.StringIO()
    console = Console(file=stream, width=400)
    for trouble in ("", f"no: {EVIL}"):
        view = View(act=ACTS[0], seconds=9.0, committed=1, figures=figures, trouble=trouble)
        Lines(console).show(view)
        console.print(picture(view))
    Lines(console).step([], f"Spark {EVIL}", 1.0)
    assert harmful(stream.getvalue()) == []
    with terminal.scanning() as show:
        show(TABLE, 1, 2)
    assert harmful(capsys.readouterr().err) == []


def test_yaml_that_can_hide_something_is_written_in_ascii() -> None:
    assert harmful(file_of({"name": EVIL})) == []
    assert yaml.safe_load(file_of({"name": EVIL, "k": "Grüße"})) == {"name": EVIL, "k": "Grüße"}
    assert "Grüße" in file_of({"k": "Grüße"})


def test_metrics_have_codes_too() -> None:
    family = _family(CounterMetricFamily, "x_total", "x", ("reader",), [(("orders", EVIL), 1.0)])
    assert harmful(str([sample.labels for sample in family.samples])) == []
    assert harmful(family.samples[0].labels["reader"]) == []


def test_sql_that_shows_codes_is_said_to_be_of_no_use_and_other_sql_is_exact(capsys: Any) -> None:
    terminal.say_code("create trigger x\n  on y;")
    assert capsys.readouterr() == ("create trigger x\n  on y;\n", "")
    terminal.say_code(f"create trigger x\n  on {EVIL};")
    said = capsys.readouterr()
    assert harmful(said.out) == []
    assert "cannot be run" in said.err


ALLOWED = {"cli/terminal.py", "demo/screen.py", "spark/java.py", "spark/training.py"}
"""The modules that print; the last two print for a process of our own."""


def writers(package: Path) -> Iterator[str]:
    """Every module that prints beside them."""
    for path in sorted(package.rglob("*.py")):
        where = str(path.relative_to(package))
        if where in ALLOWED or where.startswith("testing/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in ("print", "Text", "Text.assemble", "Text.from_markup", "warnings.warn") or called.startswith(
                ("typer.echo", "typer.secho", "typer.confirm", "click.", "sys.stdout.write", "sys.stderr.write", "rich.print")
            ):
                yield f"{where}: {called}"


def test_all_text_goes_through_the_few_functions_that_escape_it() -> None:
    assert list(writers(PACKAGE)) == []


def test_a_module_that_prints_by_itself_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import typer\ntyper.echo(name)\nprint(name)\n")
    assert len(list(writers(tmp_path))) == 2
