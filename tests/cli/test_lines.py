"""`--log-format json`: whatever is written to stderr, and whoever writes it, is a JSON object per line."""

import json
import subprocess
import sys

from deadline import PATIENCE

PROGRAM = """
import os, subprocess, sys, threading, logging, typer
from penstock.cli.log import LogFormat, lines
from penstock.errors import EngineMemory

def fail():
    raise ValueError("in a thread")

try:
    with lines(LogFormat.JSON) as stream:
        stream.write('{"event":"Led"}' + chr(10))
        stream.flush()
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        os.write(2, b"a library in C\\n")
        subprocess.run(["sh", "-c", "echo a child >&2"])
        try:
            raise ConnectionResetError("gone")
        except ConnectionResetError:
            logging.info("Exception while sending command.", exc_info=True)
            logging.getLogger("py4j.clientserver").exception("no connection")
        raise EngineMemory("the heap was exhausted")
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


def test_every_line_is_an_object_whoever_writes_it():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE, check=False)
    said = [json.loads(line) for line in ended.stderr.splitlines()]
    printed = " ".join(one["message"] for one in said if one["event"] == "Printed")
    assert said[0]["event"] == "Led"
    assert "ValueError: in a thread" in printed
    assert "a library in C" in printed
    assert "a child" in printed
    assert "ConnectionResetError" not in printed
    [failed] = [one for one in said if one["event"] == "Failed"]
    assert (failed["level"], failed["code"], ended.returncode) == ("error", "engine.memory", 1)


def test_a_wrong_file_is_an_object_too(tmp_path):
    command = [sys.executable, "-m", "penstock", "run", str(tmp_path / "none.yaml"), "--log-format", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 2
    [failed] = map(json.loads, ended.stderr.splitlines())
    assert failed["code"] == "config.invalid"
