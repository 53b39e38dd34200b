"""The frame of the program: help, version, errors, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import COMMANDS, LATER, main


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "penstock 0.1.0\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_it_helps(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments)
    assert "Usage: penstock [OPTIONS] COMMAND" in capsys.readouterr().out


def test_help_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    said = capsys.readouterr().out
    assert all(f"│ {name} " in said for name in COMMANDS)


@pytest.mark.parametrize("name", LATER)
def test_a_command_of_a_later_version_says_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "orders.yaml", "--whatever"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "config.unsupported",
        f"  `penstock {name}` is not supported yet",
        "  what to do: see `penstock --help` for the commands",
    ]


@pytest.mark.parametrize("arguments", [["nonsense"], ["validate"], ["status", "--nonsense"]])
def test_a_wrong_request_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_error_is_three_short_lines_and_no_traceback(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "penstock", "validate", str(tmp_path / "none.yaml")], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    code, happened, remedy = ended.stderr.splitlines()
    assert code == "config.invalid"
    assert happened == f"  cannot read {tmp_path}/none.yaml: No such file or directory"
    assert remedy.startswith("  what to do: ")


def test_version_and_help_load_nothing_heavy() -> None:
    script = (
        "import sys; from penstock.cli import main; main(['--help']); main(['--version']); print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"pyspark", "pyarrow", "pydantic", "yaml", "sqlite3"} & set(ended.stderr.split())
