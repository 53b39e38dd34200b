"""A row that exhausts the heap ends the process with an error that names the setting, and every line of its output is JSON."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from penstock.sources.sqlite.install import enable
from program import Program

FILE = """\
name: blobs
source: {type: sqlite, database: blobs.db, max_row: 1GB}
sink: {type: discard}
spark: {memory: 512m}
"""


def test_a_row_that_exhausts_the_heap_ends_the_process_with_an_error_that_names_the_setting(tmp_path: Path) -> None:
    """It is the second JVM of a process that has begun anew, so that there is no third."""
    with sqlite3.connect(tmp_path / "blobs.db", isolation_level=None) as writer:
        writer.execute("create table blob(id integer primary key, data blob)")
        enable(str(tmp_path / "blobs.db"))
        writer.execute("insert into blob values(1, x'00'), (2, zeroblob(200000000))")
    writer.close()
    (tmp_path / "blobs.yaml").write_text(FILE)
    program = Program(tmp_path, tmp_path / "blobs.yaml", env={"PENSTOCK_REBORN": "1"})
    assert program.exit_code() == 1
    events = [json.loads(line) for line in program.said().splitlines()]
    [failed] = [event for event in events if event["event"] == "Failed"]
    assert failed["code"] == "engine.memory"
    assert "512m" in failed["message"]
    assert "raise spark.memory, or lower source.max_row" in failed["remedy"]
    assert [event["code"] for event in events if event["event"] == "Halted"] == ["engine.memory"]
