"""Named places where a test may stop or kill a process."""

import signal
import subprocess
import sys
from threading import Thread

import pytest

from deadline import PATIENCE, until
from penstock import failpoint


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(failpoint, "_folder", str(tmp_path))
    return tmp_path


def test_a_point_that_is_not_armed_does_nothing(folder):
    failpoint.reach("sink.sending")
    assert list(folder.iterdir()) == []


def test_a_pause_lasts_until_its_file_is_gone_and_says_which_point_was_reached(folder):
    (folder / "sink.sending").write_text("pause")
    paused = Thread(target=failpoint.reach, args=("sink.sending",))
    paused.start()
    until((folder / "sink.sending.reached").exists)
    assert not (folder / "sink.sent.reached").exists()
    assert paused.is_alive()
    (folder / "sink.sending").unlink()
    paused.join(PATIENCE)
    assert not paused.is_alive()


def test_a_kill_happens_once(folder):
    (folder / "writer.claimed").write_text("kill")
    program = f"import penstock.failpoint as f; f._folder = {str(folder)!r}; f.reach('writer.claimed')"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
