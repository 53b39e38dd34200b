"""What a spec says to those who only plan."""

import base64
import os
import pickle
import resource
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from itertools import islice

import pytest

from penstock.change import Change, Op, to_batch
from penstock.config import parse
from penstock.coordinator import Term
from penstock.errors import EngineFailed
from penstock.event import ChangeParked, from_line
from penstock.spark import bundles
from penstock.spark.cipher import KEY, made_key
from penstock.spark.plan import planned
from penstock.spark.task_spec import DATAGRAM, Events, TaskSpec, datagrams

HEAVY = ("psycopg", "confluent_kafka", "pyarrow", "penstock.sources.outbox", "penstock.sinks.kafka", "penstock.pipeline")


def spec(**given):
    source = {"type": "outbox", "database": "postgresql://nobody@127.0.0.1:1/nothing"}
    sink = {"type": "kafka", "config": {"bootstrap.servers": "127.0.0.1:1"}}
    pipeline = parse({"name": "orders", "source": source, "sink": sink})
    return TaskSpec(pipeline, Term("orders", "me", 1), "folder", "query", 300.0, **given)


def test_a_process_that_only_plans_loads_neither_clients_nor_arrow_nor_the_pipeline():
    script = "import sys; from penstock.spark.source import PenstockSource as S; s = S({'spec': sys.argv[1]});"
    script += "s.streamWriter(s.schema(), False); r = s.streamReader(s.schema());"
    script += "print(type(r).__name__, [p.value for p in r.partitions({}, {})], *(set(sys.argv[2:]) & set(sys.modules)))"
    command = [sys.executable, "-c", script, spec().encrypt(made_key()), *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "LiveReader ['outbox']"


def test_an_encrypted_spec_comes_back_whole_where_the_key_of_the_run_is(monkeypatch):
    sent, key = spec(target={"outbox": "{}"}), made_key()
    line = sent.encrypt(key)
    assert planned(line) == ("batch", ["outbox"], bundles.DDL)
    with pytest.raises(EngineFailed, match=f"{KEY} in the environment of this worker is not the key of the run"):
        TaskSpec.decode(line)
    monkeypatch.setenv(KEY, key)
    assert TaskSpec.decode(line) == sent


def test_the_line_of_a_spec_holds_no_secret_and_its_file_is_for_its_owner_only(tmp_path):
    sink = {"type": "webhook", "url": "http://127.0.0.1:1/", "auth": {"bearer": "s3cret-token"}}
    pipeline = parse({"name": "orders", "source": {"type": "sqlite", "database": "shop.db"}, "sink": sink}, tmp_path)
    sent = replace(spec(), pipeline=pipeline, folder=str(tmp_path))
    assert b"s3cret-token" in pickle.dumps(sent)
    assert b"s3cret-token" not in unpacked(sent.encrypt(made_key()))
    before = os.umask(0)
    try:
        line = sent.store()
    finally:
        os.umask(before)
    assert b"s3cret-token" not in unpacked(line)
    [file] = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert TaskSpec.decode(line) == sent
    assert planned(line) == planned(sent.encrypt(made_key()))
    other = replace(sent, pipeline=replace(pipeline, name="items"))
    assert (TaskSpec.decode(other.store()), TaskSpec.decode(line)) == (other, sent)


def unpacked(line):
    """The bytes of a line's words, packed or not."""
    words = [word.encode() for word in line.split(" ")]
    return b" ".join([*words, *(base64.b85decode(word) for word in words if not word.startswith(b"/"))])


def test_many_events_come_in_order_though_the_driver_looks_only_later(tmp_path):
    told = [_parked(position) for position in range(100)]
    heard = Events(str(tmp_path))
    replace(spec(), folder=str(tmp_path)).emit_all(told)
    assert list(islice(heard, len(told))) == told


def test_an_event_that_is_larger_than_a_datagram_comes_shortened_and_an_attempt_fails_with_its_own_error(tmp_path):
    heard, sent = iter(Events(str(tmp_path))), replace(spec(), folder=str(tmp_path))
    with pytest.raises(ValueError, match="x"), sent.reporting(1):
        raise ValueError("\U0001f600x" * 200_000)
    failed = next(heard)
    assert failed.attempt == 1
    assert failed.message.startswith("\U0001f600x")
    assert failed.message.endswith("...")
    heard.close()


def test_events_are_sent_in_pieces_that_the_system_takes_and_in_order():
    told = [replace(_parked(position), message="y" * 9000) for position in range(40)]
    sent = list(datagrams(told))
    assert max(map(len, sent)) <= DATAGRAM
    assert [from_line(line) for piece in sent for line in piece.decode().split("\n")] == told


def test_a_folder_that_others_can_enter_gets_no_events_and_one_that_is_missing_is_private(tmp_path):
    sent = replace(spec(), folder=str(tmp_path / "run"))
    with pytest.raises(ValueError, match="no"), sent.reporting(1):
        raise ValueError("no")
    assert stat.S_IMODE(os.stat(sent.folder).st_mode) == 0o700
    assert sent.has_failed(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"{sent.folder}/events")
        heard.setblocking(False)
        sent.emit(_parked(1))
        assert heard.recv(1 << 18)
        os.chmod(sent.folder, 0o755)
        sent.emit(_parked(1))
        with pytest.raises(BlockingIOError):
            heard.recv(1 << 18)


ROW = to_batch([Change(7, Op.INSERT, "t", '{"id":1}', after="x" * 100_000)])


def test_a_new_attempt_removes_the_file_that_an_earlier_one_of_its_lane_has_left(tmp_path):
    before, now = replace(spec(), folder=str(tmp_path)), replace(spec(), folder=str(tmp_path), query="later")
    of_other_lane, other = before.put_aside("b", 2, ROW), replace(now.pipeline, name="items")
    of_other_pipeline = replace(now, pipeline=other).put_aside("a", 3, ROW)
    before.put_aside("a", 1, ROW)
    path = now.put_aside("a", 4, ROW)
    assert {str(file) for file in tmp_path.iterdir()} == {path, of_other_lane, of_other_pipeline}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    now.discard()
    assert [str(file) for file in tmp_path.iterdir()] == [of_other_lane]


def test_a_file_that_does_not_fit_on_the_disk_is_removed(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            replace(spec(), folder=str(tmp_path)).put_aside("a", 1, ROW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_no_change_is_written_to_a_folder_that_other_users_can_enter_or_have_made(tmp_path):
    folder, link = tmp_path / "run", tmp_path / "link"
    folder.mkdir(mode=0o755)
    link.symlink_to(folder)
    for path in (folder, link):
        with pytest.raises(EngineFailed, match=r"is a (folder|symbolic link) of user"):
            replace(spec(), folder=str(path)).put_aside("a", 1, ROW)
    assert list(folder.iterdir()) == []


def _parked(position):
    return ChangeParked(
        pipeline="orders", position=position, table="t", key='{"id":1}', code="delivery.exhausted", message="no\n" * 50
    )
