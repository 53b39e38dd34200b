"""The folder of a run: for its owner only, and gone after the next start where a killed process has left it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.files.sockets import make_folder
from penstock.spark.workplace import PREFIX, workplace

KILLED = """
import os, signal
from penstock.spark.workplace import workplace
with workplace() as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder whose path is short enough for sockets."""
    folder = make_folder("penstock-")
    monkeypatch.setenv("TMPDIR", folder)
    yield Path(folder)
    shutil.rmtree(folder)


def test_only_its_owner_can_enter_it_whatever_the_umask(base: Path) -> None:
    before = os.umask(0)
    try:
        with workplace() as folder:
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    finally:
        os.umask(before)
    assert list(base.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_and_those_of_living_ones_stay(base: Path) -> None:
    with workplace() as living:
        done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
        left = Path(done.stdout.strip())
        assert left.parent == base
        assert left.exists()
        with workplace() as own:
            assert {one.name for one in base.iterdir()} == {Path(living).name, Path(own).name}


def test_a_folder_that_is_not_surely_of_this_user_is_left_alone(base: Path) -> None:
    elsewhere = base / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "alive").touch()
    (base / f"{PREFIX}link").symlink_to(elsewhere)
    (base / f"{PREFIX}open").mkdir()
    (base / f"{PREFIX}open").chmod(0o777)
    (base / f"{PREFIX}open" / "alive").touch()
    (base / f"{PREFIX}new").mkdir(mode=0o700)  # of a process that has not locked it yet
    with workplace():
        pass
    assert (elsewhere / "alive").exists()
    assert {one.name for one in base.iterdir()} == {"elsewhere", f"{PREFIX}link", f"{PREFIX}open", f"{PREFIX}new"}
