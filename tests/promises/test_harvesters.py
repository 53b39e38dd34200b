"""goharvest's file and goharvest's table: the program, and several harvests in one process, on one outbox."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
import yaml

from deadline import PATIENCE, until
from penstock.cli import main
from penstock.config import load
from servers.broker import Broker

# Two harvests of one process, told to stop one after the other: the first that leads, then the other.
_SCRIPT = """
import json, sys, threading
from penstock.harvest import Harvest, HarvestConfig
from penstock.harvest.config import load

def main():
    config = load(sys.argv[1]).harvest
    told = threading.Condition()
    def hear(number):
        def tell(event):
            with told:
                print(json.dumps([number, type(event).__name__]), flush=True)
                told.notify_all()
        return tell
    made = [Harvest(config, hear(number)) for number in range(2)]
    for one in made:
        one.start()
    for line in sys.stdin:
        leading = [one for one in made if one.is_leader]
        print(json.dumps(["leading", len(leading), made[0].state.value]), flush=True)
        (leading or [one for one in made if one.state.value == "running"])[0].stop()
    for one in made:
        one.stop()
    print(json.dumps(["ended", [one.wait(900) for one in made]]), flush=True)

if __name__ == "__main__":
    main()
"""


def reaper_file(folder: Path, broker: Broker, dsn: str) -> Path:
    limits = {"heartbeatTimeout": "20s", "maxInFlightRecords": 50, "minMetricsInterval": "1s"}
    names = {"leaderTopic": f"{folder.name}.neli", "leaderGroupID": folder.name, "dataSource": dsn}
    harvest = {"baseKafkaConfig": {"bootstrap.servers": broker.servers}, **names, "limits": limits}
    file = folder / "reaper.yaml"
    file.write_text(yaml.safe_dump({"harvest": harvest, "logging": {"level": "Info"}}))
    return file


def test_harvests_of_a_process_and_the_program_take_turns_on_a_table_and_lose_or_reverse_nothing(
    broker: Broker, postgres: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["outbox", "init", postgres, "--layout", "goharvest"]) == 0
    topic, file = broker.create(partitions=3), reaper_file(tmp_path, broker, postgres)
    pump = ["pump", "--ds", postgres, "--keys", "7", "--records", "200", "--topic", topic]
    said = tmp_path / "said"
    log = tmp_path / "reap.log"

    def is_drained() -> bool:
        with psycopg.connect(postgres) as connection:
            return connection.execute("select count(*) from outbox").fetchall() == [(0,)]

    def tail() -> str:
        return (said.read_text() if said.exists() else "") + (log.read_text() if log.exists() else "")

    with said.open("w") as out, log.open("w") as err:
        library = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(file)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )
        program: subprocess.Popen[bytes] | None = None
        try:
            assert main(pump) == 0
            until(lambda: '"LeaderAcquired"' in said.read_text(), what=tail)
            command = [sys.executable, "-m", "penstock", "reap", "-f", str(file)]
            program = subprocess.Popen(command, stdout=err, stderr=err, start_new_session=True)
            with psycopg.connect(postgres) as connection:  # one that no broker takes
                connection.execute(
                    "insert into outbox (create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values)"
                    " values (now(), 'no-such-topic', 'lost', '{a}', '{1,2}')"
                )
            until(is_drained, what=tail)
            assert library.stdin
            for _ in range(2):
                library.stdin.write("next\n")
                library.stdin.flush()
                assert main(pump) == 0
                until(is_drained, what=tail)
            library.stdin.close()
            assert library.wait(PATIENCE) == 0, tail()
            assert main(pump) == 0
            until(is_drained, what=tail)
            program.send_signal(signal.SIGTERM)
            assert program.wait(PATIENCE) == 0, tail()
        finally:
            for process in (library, program):
                if process:
                    process.kill()
                    process.wait()
    assert '["ended", [true, true]]' in said.read_text()
    assert '["leading", 1, "running"]' in said.read_text()
    assert '"MeterRead"' in said.read_text()

    made: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)
    records = broker.records(topic)
    for record in records:
        made[record.partition, record.key].append(int(dict(record.headers)["Seq"] or b""))
    assert {record.value for record in records} == {f"value-{n:x}".encode() for n in range(200)}
    assert sum(len(seen) for seen in made.values()) >= 4 * 200
    for seen in made.values():
        turns = sum(before > after for before, after in pairwise(seen))
        assert turns <= 3, seen  # each pump begins at nothing; within one, no number comes after a greater one

    capsys.readouterr()
    assert main(["reap", "-f", str(file), "--print-pipeline"]) == 0
    printed = tmp_path / "orders.yaml"
    printed.write_text(capsys.readouterr().out)
    loaded = load(printed)
    [letter] = loaded.state.letters(loaded.name)
    assert letter.change.table == "no-such-topic"
    assert not loaded.state.pipeline_state(loaded.name).is_held
