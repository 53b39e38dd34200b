"""`penstock demo` as a person runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deadline import PATIENCE, until
from penstock.cli import main

LONG = "temporary" * 14
"""Too long for the path of a Unix socket, which has 107 bytes at most."""


def start(home: Path, *options: str) -> subprocess.Popen[str]:
    """A demo whose temporary files, and those of all its children, go to a folder of their own."""
    home.mkdir()
    with (home.parent / "said").open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", "demo", *options],
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(home)},
            text=True,
            start_new_session=True,
        )


def said(home: Path) -> str:
    return (home.parent / "said").read_text()


def survivors(home: Path) -> list[str]:
    """Processes that were started by the demo and still run."""
    mark = f"TMPDIR={home}".encode()
    return [process.name for process in Path("/proc").glob("[0-9]*") if mark in fact(process, "environ")]


def fact(process: Path, name: str) -> bytes:
    try:
        return (process / name).read_bytes()
    except OSError:
        return b""


def socket_folder(home: Path) -> Path:
    """The folder that the demo's JVM was given for its sockets."""
    lines = b"".join(fact(Path("/proc", process), "cmdline") for process in survivors(home))
    found = re.search(rb"spark\.python\.unix\.domain\.socket\.dir=([^\0]+)", lines)
    assert found
    return Path(os.fsdecode(found[1]))


def test_it_tells_its_story_proves_its_promises_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / LONG
    demo = start(home, "--seconds", "4", "--rate", "1")
    assert demo.wait(PATIENCE) == 0
    told = said(home)
    assert all(f"-- {act}:" in told for act in ("flow", "lost answers", "outage", "repaired", "proof"))
    assert "status 503; try " in told
    assert told.count("✓ ") == 4
    assert "honest repeats   0 changes" not in told
    assert list(home.iterdir()) == []
    until(lambda: not survivors(home), what=lambda: f"still there: {survivors(home)}")


def test_ctrl_c_ends_it_with_the_proof_and_a_breach_ends_it_with_1(tmp_path: Path) -> None:
    home, kept = tmp_path / LONG, tmp_path / "kept"
    demo = start(home, "--forever", "--directory", str(kept))
    try:
        until(lambda: "delivered 1" in said(home), what=lambda: said(home))
        sockets = socket_folder(home)
        assert {file.suffix for file in sockets.iterdir() if file.is_socket()} == {"", ".sock"}, "those of Penstock and of Spark"
        tamper(kept / "received.jsonl")
    finally:
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does it: all processes in the foreground hear it
    assert demo.wait(PATIENCE) == 1
    assert "✗ nothing lost     1 breaches; first: change" in said(home)
    assert "✓ in order" in said(home)
    assert {"shop.db", "pipeline.yaml", "penstock.db", "received.jsonl"} <= {file.name for file in kept.iterdir()}
    until(lambda: not survivors(home), what=lambda: f"still there: {survivors(home)}")
    assert not sockets.exists()


def tamper(received: Path) -> None:
    """Make an insert that has arrived a delete, in place."""
    place = received.read_bytes().index(b'"op":"insert"') + len(b'"op":"')
    with received.open("r+b") as file:
        file.seek(place)
        file.write(b"delete")


def test_the_files_of_an_earlier_demo_are_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop.db").write_text("precious")
    assert main(["demo", "--directory", str(tmp_path)]) == 2
    assert "has the files of an earlier demo" in capsys.readouterr().err
    assert (tmp_path / "shop.db").read_text() == "precious"
