"""`penstock doctor` against real things that are really broken."""

from __future__ import annotations

import base64
import ctypes
import gzip
import json
import os
import re
import resource
import socket
import sqlite3
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trustme
import yaml
from standardwebhooks.webhooks import Webhook

from deadline import PATIENCE
from penstock import finding
from penstock.capture import ReaderState, Survey
from penstock.checkup import machine, secrecy, standing
from penstock.checkup.examination import checks, examine
from penstock.cli import main
from penstock.config import load
from penstock.coordinator import PipelineState
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.errors import JavaMissing, TransformInvalid
from penstock.files import room
from penstock.finding import Check, Finding, Severity, examined
from penstock.sinks.webhook import certificate
from penstock.sinks.webhook import checks as endpoint
from penstock.sinks.webhook.signing import Signing
from penstock.sinks.webhook.sink import WebhookSink
from penstock.sinks.webhook.tls import Tls
from penstock.sources.sqlite import checks as capture
from penstock.sources.sqlite.source import LANE, SqliteSource
from penstock.testing.receiver import Receiver
from shop import Shop

OK, WARNING, FAILED = Severity
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
Write = Callable[..., Path]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


def settle(receiver: Receiver) -> None:
    """Connections that were opened only to be closed have been seen when a later one is answered."""
    with closing(HTTPConnection("127.0.0.1", receiver.port, timeout=PATIENCE)) as connection:
        connection.request("POST", "/_dials", b"{}")
        connection.getresponse().read()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made
        settle(made)


@pytest.fixture
def write(tmp_path: Path, receiver: Receiver, shop: Shop) -> Write:
    def written(url: str = receiver.url, **others: Any) -> Path:
        content = {
            "name": "orders",
            "source": {"type": "sqlite", "database": "shop.db"},
            "sink": {"type": "webhook", "url": url, "timeout": "60s"},
        }
        (tmp_path / "orders.yaml").write_text(yaml.safe_dump(content | others))
        return tmp_path / "orders.yaml"

    return written


def found(check: Check) -> list[Finding]:
    return remedied(examined("it", check))


def remedied(findings: Iterable[Finding]) -> list[Finding]:
    """All of them; each that is not in order must say what to do."""
    told = list(findings)
    assert [one for one in told if one.verdict is not OK and not one.remedy] == []
    return told


def files_in(folder: Path) -> dict[Path, bytes]:
    """What is there, but for what SQLite puts beside a database that somebody reads."""
    return {path: path.read_bytes() for path in folder.rglob("*") if not path.name.endswith(("-wal", "-shm"))}


def of(findings: Iterable[Finding], check: str) -> list[tuple[Severity, str]]:
    return [(one.verdict, f"{one.said} | {one.remedy}") for one in remedied(findings) if one.check == check]


def test_a_pipeline_in_order_passes_and_nothing_is_changed_or_sent(
    write: Write, receiver: Receiver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, before = write(), files_in(tmp_path)
    assert main(["doctor", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"]
    assert {one["check"] for one in told["checks"] if one["about"] == str(file)} == {
        *("file", "secrets", "database", "capture", "log", "clock", "disk", "state file", "state", "leader", "endpoint")
    }
    assert [one["check"] for one in told["checks"] if one["about"] == "machine"] == [
        *("memory", "java", "spark", "python workers", "class archive", "cache folder", "disk")
    ]
    assert {one["check"] for one in told["checks"] if one["result"] != "ok"} <= {"class archive", "disk"}
    assert files_in(tmp_path) == before
    assert receiver.requests == []


def test_what_failed_is_shown_with_its_remedy_and_ends_with_1(write: Write, shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    file = write()
    shop.path.unlink()
    assert main(["doctor", str(file)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "failed there is no database" in said
    assert "what to do: check the path, then run: penstock capture enable" in said


def test_a_file_that_does_not_load_is_a_finding_and_others_are_looked_at(write: Write, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: x\nnonsense: 1\n")
    findings = remedied(examine([tmp_path / "bad.yaml", write()]))
    assert [(one.about.rpartition("/")[2], one.verdict) for one in findings if one.check == "file"] == [
        ("bad.yaml", FAILED),
        ("orders.yaml", OK),
    ]


def test_the_documented_checks_are_those_that_there_are(write: Write) -> None:
    file = write(transform={"function": "json:loads"})
    package = Path(finding.__file__).parent
    told = "".join(
        path.read_text() for path in (*package.glob("checkup/*.py"), package / "files" / "room.py", *package.rglob("checks.py"))
    )
    names = {*machine.checks(), *checks(file, load(file), probes=True), *_TOLD.findall(told)}
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text().partition("## Metrics")[0]
    assert set(re.findall(r"^\| `([a-z ]+)` \|", text, re.MULTILINE)) == names


_TOLD = re.compile(r"\b(?:ok|warning|failed|examined)\(\s*\"([a-z ]+)\"")
"""Names of checks where they are told; some have findings only where there is trouble, or another source or sink."""


# The machine.


def test_a_missing_java_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    [one] = found(machine.java)
    assert (one.verdict, one.remedy) == (FAILED, JavaMissing.remedy)


def test_a_java_that_does_not_start_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [one] = found(machine.java)
    assert one.verdict is FAILED
    assert "exit code 3): no memory" in one.said


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python"])
def test_workers_without_a_fit_python_fail(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", program)
    [one] = found(machine.workers)
    assert one.verdict is FAILED
    assert "PYSPARK_PYTHON" in one.remedy


def test_workers_of_another_version_fail() -> None:
    assert machine.judged_workers("python", [3, 11, "4.3.0"], '[3, 12, "4.3.0"]', "").verdict is FAILED
    assert machine.judged_workers("python", [3, 11, "4.3.0"], '[3, 11, "4.3.0"]', "").verdict is OK


def test_a_class_archive_that_is_missing_or_does_not_fit_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    [missing] = found(machine.class_archive)
    (tmp_path / "spark-11-0123.archive").touch()
    [other] = found(machine.class_archive)
    assert (missing.verdict, other.verdict) == (WARNING, WARNING)
    assert "none in" in missing.said
    assert "another Java" in other.said


@pytest.mark.parametrize("place", ["/proc/penstock", "/dev/null/penstock"])
def test_a_cache_folder_that_cannot_be_written_fails(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", place)
    [one] = found(machine.cache_folder)
    assert one.verdict is FAILED


def test_a_folder_where_nothing_more_fits_cannot_be_written(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        why = room.unwritable(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert why == "File too large"
    assert room.unwritable(tmp_path) is None


@pytest.mark.parametrize(("free", "verdict"), [(room.LEAST - 1, FAILED), (room.LEAST, WARNING), (room.ENOUGH, OK)])
def test_room_on_the_disk(free: int, verdict: Severity) -> None:
    assert room.judged(Path("/"), free).verdict is verdict


# The database.


def source(shop: Shop, **settings: Any) -> SqliteSource:
    return SqliteSource(database=str(shop.path), **settings)


def test_broken_capture_fails_for_the_tables_of_the_pipeline_alone(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.path)) as connection:
        [(trigger,)] = connection.execute("select name from sqlite_schema where type = 'trigger' and tbl_name = 'orders' limit 1")
        connection.execute(f'drop trigger "{trigger}"')
    broken = found(lambda: capture.capture(source(shop)))
    assert [one.verdict for one in broken] == [FAILED, OK]
    assert f"penstock capture repair {shop.path} orders" in broken[0].remedy
    assert [one.verdict for one in found(lambda: capture.capture(source(shop, tables="stock")))] == [OK]


def test_suspended_and_uncaptured_tables_are_warnings_and_no_table_at_all_fails(shop: Shop, capsys: Any) -> None:
    assert main(["capture", "suspend", str(shop.path), "stock"]) == 0
    with closing(sqlite3.connect(shop.path)) as connection:
        connection.execute("create table new(id integer primary key)")
    assert [one.verdict for one in found(lambda: capture.capture(source(shop)))] == [WARNING, OK]
    assert [one.verdict for one in found(lambda: capture.capture(source(shop, tables="new|orders")))] == [WARNING, OK]
    [none] = found(lambda: capture.capture(source(shop, tables="nonsense")))
    assert none.verdict is FAILED


def test_a_database_without_write_ahead_logging_is_a_warning(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.path)) as connection:
        connection.execute("pragma journal_mode = delete")
    [one] = found(lambda: capture.database(source(shop)))
    assert (one.verdict, one.remedy) == (WARNING, f"penstock capture enable {shop.path} --wal")


def unprivileged(check: Check) -> list[Finding]:
    """What is found by one to whom the modes of files apply, also where the tests run as root."""
    told: list[Finding] = []

    def work() -> None:  # in a thread of its own, since what Linux lets it give up is that thread's alone, and for good
        version_3, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None, use_errno=True).capset(version_3, nothing) == 0, os.strerror(ctypes.get_errno())
        told.extend(examined("it", check))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    return remedied(told)


@pytest.mark.parametrize("locked", ["shop.db", "."])
def test_a_database_that_this_user_may_read_and_not_write_fails(shop: Shop, tmp_path: Path, locked: str) -> None:
    with closing(sqlite3.connect(shop.path)) as writer:  # while somebody has it open, it can be read without a right to the folder
        writer.execute("select * from orders").fetchall()
        assert [one.verdict for one in unprivileged(lambda: capture.database(source(shop)))] == [OK]
        before = (tmp_path / locked).stat().st_mode
        (tmp_path / locked).chmod(before & ~0o222)
        try:
            [one] = unprivileged(lambda: capture.database(source(shop)))
        finally:
            (tmp_path / locked).chmod(before)
    assert (one.verdict, "progress is recorded in it" in one.said) == (FAILED, True)
    assert one.remedy == "give this user the right to write"


def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_text("this is no database, and long enough to be seen as none " * 20)
    [one] = found(lambda: capture.database(SqliteSource(database=str(tmp_path / "shop.db"))))
    assert one.verdict is FAILED


def test_a_log_that_is_held_back_or_very_long_is_a_warning() -> None:
    def judged(length: int, *readers: ReaderState) -> list[Finding]:
        return list(capture.judged_log("shop.db", Survey("shop.db", True, "wal", "x", 1, length, (), readers)))

    gone = ReaderState("old", "main", 1, "2026-01-01T00:00:00Z", 9, "gone")
    [held] = judged(10, gone)
    assert (held.verdict, "penstock forget --database shop.db old" in held.remedy) == (WARNING, True)
    assert [one.verdict for one in judged(capture.LONG_LOG + 1)] == [WARNING]
    assert [one.verdict for one in judged(10)] == [OK]


def test_a_clock_behind_the_last_change_is_a_warning(shop: Shop) -> None:
    shop.sell(1)
    assert [one.verdict for one in found(lambda: capture.clock(source(shop)))] == [OK]
    with closing(sqlite3.connect(shop.path)) as connection, connection:
        connection.execute("update _penstock_log set at = at + 1")
    [one] = found(lambda: capture.clock(source(shop)))
    assert one.verdict is WARNING


# The state.


def test_a_state_that_the_source_remembers_and_the_file_does_not_fails(write: Write, shop: Shop) -> None:
    pipeline = load(write())
    assert of(found(lambda: standing.state(pipeline)), "state")[0][0] is OK
    pipeline.source.retention.register("orders", LANE, pipeline.source.begin(LANE, "now"))
    [one] = found(lambda: standing.state(pipeline))
    assert (one.verdict, "progress is lost" in one.said) == (FAILED, True)


def test_the_error_that_a_pipeline_stopped_with_fails_with_its_remedy(write: Write) -> None:
    pipeline = load(write())
    candidate = pipeline.state.candidate("orders", "me")
    term = candidate.campaign()
    assert term
    pipeline.state.place(term, {LANE: Watermark(pipeline.source.begin(LANE, "now"), 0)})
    assert [one.verdict for one in found(lambda: standing.leader(pipeline))] == [OK]
    pipeline.state.halt(term, {"code": "sink.exhausted", "message": "no", "remedy": "repair it"})
    candidate.close()
    [one] = found(lambda: standing.leader(pipeline))
    assert (one.verdict, one.said, one.remedy) == (FAILED, "halted by sink.exhausted: no", "repair it")


def test_nobody_at_work_is_a_warning_and_a_new_pipeline_is_not() -> None:
    assert standing.judged_leader(PipelineState(epoch=3)).verdict is WARNING
    assert standing.judged_leader(PipelineState()).verdict is OK


@pytest.mark.parametrize("state", ["/proc/penstock.db", "missing/penstock.db"])
def test_a_state_file_that_cannot_be_written_fails(state: str, write: Write) -> None:
    [one] = found(lambda: standing.state(load(write(state=state))))
    assert one.verdict is FAILED


def test_a_state_file_that_is_something_else_fails(write: Write, tmp_path: Path) -> None:
    (tmp_path / "penstock.db").write_text("something else entirely, and long enough to be read " * 20)
    [one] = found(lambda: standing.state(load(write())))
    assert one.verdict is FAILED


# The endpoint.


def at(url: str, seconds: float = PATIENCE) -> list[Finding]:
    return found(lambda: endpoint.endpoint(WebhookSink(url=url, timeout=timedelta(seconds=seconds))))


def test_an_endpoint_that_cannot_be_reached_fails() -> None:
    with Receiver() as receiver:
        url = receiver.url
        assert [one.verdict for one in at(url)] == [OK]
        settle(receiver)
    [refused], [unknown] = at(url), at("http://nowhere.invalid/hooks")
    assert (refused.verdict, unknown.verdict) == (FAILED, FAILED)
    assert "Connection refused" in refused.said
    assert "is not known" in unknown.said


@contextmanager
def shaking_hands(context: ssl.SSLContext, then: Callable[[ssl.SSLSocket], object] = lambda line: line.recv(1)) -> Iterator[int]:
    """A TLS server for one connection; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError), listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as line:
                then(line)

        thread = Thread(target=serve)
        thread.start()
        yield int(listening.getsockname()[1])
        thread.join(PATIENCE)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize(
    ("days", "name", "trusts", "verdict", "said"),
    [
        (90, "localhost", True, OK, "its certificate ends in 89 days"),
        (5, "localhost", True, WARNING, "its certificate ends in 4 days"),
        (-1, "localhost", True, FAILED, "certificate has expired"),
        (90, "example.org", True, FAILED, "mismatch"),
        (90, "localhost", False, FAILED, "is not trusted"),
    ],
)
def test_certificates(
    authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    days: int,
    name: str,
    trusts: bool,
    verdict: Severity,
    said: str,
) -> None:
    context, now = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), datetime.now(UTC)
    authority.issue_cert(name, not_before=now - timedelta(days=9), not_after=now + timedelta(days=days)).configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    if trusts:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    with shaking_hands(context) as port:
        [one] = at(f"https://localhost:{port}/hooks")
    assert one.verdict is verdict
    assert said in one.said


def test_a_certificate_of_ours_that_has_gone_since_fails(authority: trustme.CA, receiver: Receiver, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    sink = WebhookSink(url=receiver.url.replace("http://", "https://"), tls=Tls(ca=str(tmp_path / "authority.pem")))
    (tmp_path / "authority.pem").unlink()
    [one] = found(lambda: endpoint.endpoint(sink))
    assert (one.verdict, "tls.ca cannot be read" in one.said) == (FAILED, True)


@pytest.fixture
def asking(authority: trustme.CA) -> ssl.SSLContext:
    """Of a server that wants a certificate to be shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


Showing = Callable[..., Tls]


@pytest.fixture
def showing(authority: trustme.CA, tmp_path: Path) -> Showing:
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))

    def shown(issuer: trustme.CA | None, days: float = 90) -> Tls:
        """Trust the authority, and show a certificate of this issuer that ends in so many days."""
        if issuer is None:
            return Tls(ca=str(tmp_path / "authority.pem"))
        now, file = datetime.now(UTC), tmp_path / "client.pem"
        made = issuer.issue_cert("penstock.example.org", not_before=now - timedelta(days=9), not_after=now + timedelta(days=days))
        made.private_key_and_cert_chain_pem.write_to_path(str(file))
        return Tls(ca=str(tmp_path / "authority.pem"), cert=str(file))

    return shown


def shown_to(port: int, tls: Tls) -> list[Finding]:
    return found(lambda: endpoint.endpoint(WebhookSink(url=f"https://localhost:{port}/hooks", tls=tls)))


_SEE = "see the keys below sink.tls, and the certificate there"


@pytest.fixture
def patient() -> Iterator[None]:
    """Listen until something is said: on a starved machine that may take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoint, "LISTENING", PATIENCE)
        yield


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("issuer", "why"), [(None, "certificate required"), (trustme.CA(), "unknown ca")])
def test_a_receiver_that_refuses_our_certificate_fails_though_hands_were_shaken(
    asking: ssl.SSLContext, showing: Showing, issuer: trustme.CA | None, why: str
) -> None:
    with shaking_hands(asking) as port:
        refused, *_ = shown_to(port, showing(issuer))
    said = (
        f"localhost, port {port}: it refused the certificate shown to it, or that there is none: {why} (see tls.cert and tls.key)"
    )
    assert (refused.verdict, refused.said, refused.remedy) == (FAILED, said, _SEE)


@pytest.mark.usefixtures("patient")
def test_an_expired_certificate_of_ours_fails_where_the_receiver_asks_for_it(
    authority: trustme.CA, asking: ssl.SSLContext, showing: Showing
) -> None:
    with shaking_hands(asking) as port:
        refused, expired = shown_to(port, showing(authority, days=-1))
    assert (refused.verdict, refused.remedy) == (FAILED, _SEE)
    assert "it refused the certificate shown to it, or that there is none: certificate expired" in refused.said
    assert expired.verdict is FAILED


def test_an_expired_certificate_of_ours_fails_where_the_receiver_does_not_ask_for_it(
    authority: trustme.CA, asking: ssl.SSLContext, showing: Showing
) -> None:
    asking.verify_mode = ssl.CERT_NONE
    with shaking_hands(asking) as port:
        reached, expired = shown_to(port, showing(authority, days=-1))
    assert reached.verdict is OK
    assert (expired.verdict, "client.pem has expired: it ended at 20" in expired.said) == (FAILED, True)
    assert expired.remedy == "have it renewed, and put the new one, with its key, into the files of tls.cert and tls.key"


@pytest.mark.parametrize(
    ("days", "verdict", "said"),
    [(90, OK, "client.pem ends in 89 days"), (endpoint.SOON_DAYS, WARNING, f"client.pem ends in {endpoint.SOON_DAYS - 1} days")],
)
def test_a_certificate_of_ours_that_is_taken_is_in_order_until_it_soon_ends(
    authority: trustme.CA, asking: ssl.SSLContext, showing: Showing, days: int, verdict: Severity, said: str
) -> None:
    with shaking_hands(asking) as port:
        reached, ours = shown_to(port, showing(authority, days))
    assert (reached.verdict, "can be reached" in reached.said) == (OK, True)
    assert (ours.verdict, said in ours.said) == (verdict, True)


def _reset(line: ssl.SSLSocket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("then", [_reset, ssl.SSLSocket.close, ssl.SSLSocket.unwrap])
def test_a_receiver_that_hangs_up_as_soon_as_hands_are_shaken_fails(
    asking: ssl.SSLContext, authority: trustme.CA, showing: Showing, then: Callable[[ssl.SSLSocket], object]
) -> None:
    with shaking_hands(asking, then) as port:
        closed, *_ = shown_to(port, showing(authority))
    reason = "it closed the connection without an answer (it may require a certificate: see tls.cert and tls.key)"
    said = f"localhost, port {port}: {reason}"
    assert (closed.verdict, closed.said, closed.remedy) == (FAILED, said, _SEE)


@pytest.mark.parametrize("year", [1951, 2049, 2050, 2999])
def test_the_end_of_a_certificate_is_read_from_the_first_in_the_file(authority: trustme.CA, year: int) -> None:
    until = datetime(year, 2, 28, 13, 59, 58, tzinfo=UTC)
    issued = authority.issue_cert("a.example.org", not_before=datetime(1950, 1, 1, tzinfo=UTC), not_after=until)
    whole = issued.private_key_and_cert_chain_pem.bytes() + authority.cert_pem.bytes()
    assert certificate.end_of(b"as people note it \xff\n" + whole) == until


@pytest.mark.parametrize("body", [b"", b"AAAA", b"MII=", b"MAAwADAA", b"nonsense"])
def test_a_certificate_that_cannot_be_read_is_told_with_the_key_that_names_it(body: bytes) -> None:
    for pem in (body, b"-----BEGIN CERTIFICATE-----\n" + body + b"\n-----END CERTIFICATE-----\n"):
        with pytest.raises(ValueError, match=r"tls\.cert holds .*: (it must be|have it)"):
            certificate.end_of(pem)


def test_tls_spoken_to_a_plain_server_fails(receiver: Receiver) -> None:
    [one] = at(receiver.url.replace("http://", "https://"), seconds=0.5)
    assert one.verdict is FAILED


def test_a_probe_is_one_empty_batch_with_the_credentials_of_deliveries(write: Write, receiver: Receiver) -> None:
    file = write(receiver.url.replace("http://", "http://me:secret@"))
    assert of(examine([file], probes=True), "probe") == [(OK, "status 200 to an empty batch | ")]
    [request] = receiver.requests
    assert json.loads(request.body) == {"pipeline": "orders", "changes": []}
    assert request.headers["penstock-probe"] == "1"
    assert request.headers["authorization"].startswith("Basic ")
    assert "webhook-signature" not in request.headers
    receiver.turn(cut_rate=1.0)
    assert of(examine([file], probes=True), "probe")[0][0] is FAILED


def test_a_probe_is_signed_and_formatted_as_deliveries_are(receiver: Receiver) -> None:
    secret = "whsec_" + base64.b64encode(bytes(24)).decode()
    sink = WebhookSink(url=receiver.url, format="cloudevents", signing=Signing(secret=secret), headers={"X-Tenant": "7"})
    assert [one.verdict for one in found(lambda: endpoint.probe(sink, "orders"))] == [OK]
    [request] = receiver.requests
    assert (request.body, request.headers["x-tenant"]) == (b"[]", "7")
    assert Webhook(secret).verify(request.body, request.headers) == []


def test_a_probe_is_compressed_as_deliveries_are(receiver: Receiver) -> None:
    [one] = found(lambda: endpoint.probe(WebhookSink(url=receiver.url, compression="gzip"), "orders"))
    assert one.verdict is OK
    [request] = receiver.requests
    assert (request.headers["content-encoding"], json.loads(gzip.decompress(request.body))["changes"]) == ("gzip", [])


def test_a_probe_that_is_not_trusted_names_the_key_that_mends_it(authority: trustme.CA) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Receiver(tls=context) as stranger:
        [one] = found(lambda: endpoint.probe(WebhookSink(url=stranger.url), "orders"))
    assert (one.check, one.verdict) == ("probe", FAILED)
    assert "tls.ca" in one.said


@pytest.mark.parametrize(
    ("status", "verdict"), [(204, OK), (302, FAILED), (401, FAILED), (404, FAILED), (422, WARNING), (503, FAILED)]
)
def test_what_an_answer_to_the_probe_means(status: int, verdict: Severity) -> None:
    assert endpoint.judged_answer(status).verdict is verdict


# Secrets, functions, transforms.


def test_a_secret_that_everybody_can_read_is_a_warning(write: Write, receiver: Receiver, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    file = write(receiver.url.replace("http://", "http://me:${file:password}@"))
    os.chmod(file, 0o644)
    for mode, verdict in ((0o644, WARNING), (0o640, OK)):
        password.chmod(mode)
        [one] = found(lambda: secrecy.secrets(file, []))
        assert one.verdict is verdict
    [one] = found(lambda: secrecy.secrets(write(receiver.url.replace("http://", "http://me:secret@")), []))
    assert (one.verdict, one.remedy) == (WARNING, f"chmod o-r {file}")
    assert "secret@" not in one.said


def test_a_pipe_from_which_the_pipeline_was_loaded_is_not_read_again() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with open(reading):
        assert [one.verdict for one in secrecy.secrets(Path(f"/dev/fd/{reading}"), [])] == [OK]


def test_a_secret_in_a_home_folder_is_found(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "password").write_text("secret")
    (tmp_path / "password").chmod(0o644)
    file = write("http://me:${file:~/password}@h/")
    [one] = found(lambda: secrecy.secrets(file, []))
    assert (one.verdict, one.remedy) == (WARNING, f"chmod o-r {tmp_path}/password")


def test_a_state_file_or_journal_that_others_can_open_is_a_warning_and_stays_as_it_is(write: Write, tmp_path: Path) -> None:
    file = write()
    path = Path(load(file).state.path)  # type: ignore[attr-defined]
    assert of(examine([file]), "state file") == [(OK, f"{path} does not exist yet | ")]
    with closing(SqliteCoordinator(str(path)).candidate("orders", "a")):
        assert of(examine([file]), "state file") == [(OK, f"only its owner can open {path} | ")]
        wal = Path(f"{path}-wal")
        wal.chmod(0o640)
        [(verdict, said)] = of(examine([file]), "state file")
        assert (verdict, said.partition(" | ")[2]) == (
            WARNING,
            f"chmod 600 {wal}; to share them with their group: chmod 660",
        )
        path.chmod(0o644)
        for _ in range(2):
            [(verdict, said)] = of(examine([file]), "state file")
            assert f"{path}, {wal}" in said
        wal.chmod(0o660)
        path.chmod(0o660)
        assert of(examine([file]), "state file") == [(OK, f"{path} is shared with its group (mode 660) | ")]


@pytest.mark.parametrize(
    ("line", "is_secret"),
    [
        ("url: https://example.org/hooks?x=1", False),
        ("url: https://me@example.org/", False),
        ("# url: https://[nonsense", False),
        ("url: https://me:${PASSWORD}@example.org/", False),
        ('url: "https://me:secret@example.org/"', True),
        ("auth: {bearer: '${file:token}'}", False),
        ("auth: {bearer: abc}", True),
        ("    password: abc", True),
        ("    password: ${PASSWORD}", False),
        ("    # password: abc", False),
        ('signing: {secret: ["whsec_a", "${B}"]}', True),
        ('signing: {secret: ["${A}", "${B}"]}', False),
    ],
)
def test_a_secret_counts_as_written_out_unless_it_is_substituted(line: str, is_secret: bool) -> None:
    assert secrecy.has_password(f"name: orders\n{line}\n") is is_secret


def test_a_function_that_cannot_be_imported_fails(write: Write) -> None:
    [(verdict, said)] = of(examine([write(transform={"function": "nowhere:rule"})]), "function")
    assert verdict is FAILED
    assert "nowhere" in said


def test_spark_understands_a_transform_or_says_what_is_wrong(spark: Any) -> None:
    from penstock.pipeline import Transform
    from penstock.spark.trial import understand

    understand(spark, Transform(where="table = 'orders'", select={"id": "try_variant_get(after, '$.id', 'int')"}))
    with pytest.raises(TransformInvalid, match=r"transform\.where"):
        understand(spark, Transform(where="tabel = 'orders'"))
