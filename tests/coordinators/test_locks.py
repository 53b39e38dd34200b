"""Locks that die with their process."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.coordinators import locks
from penstock.errors import StateUnavailable


def test_a_lock_is_held_once_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "a"
    assert locks.is_locked(path) is False
    lock = locks.seize(path)
    assert lock
    assert locks.seize(path) is None
    assert locks.is_locked(path) is True
    lock.release()
    assert locks.is_locked(path) is False
    assert not path.exists()


def test_asking_does_not_take_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    assert locks.is_locked(path) is False
    lock = locks.seize(path)
    assert lock
    lock.release()


def seized(path: Path, second: Path) -> locks.Lock:
    """A lock whose file has a second name, which outlives its release."""
    lock = locks.seize(path)
    assert lock
    second.hardlink_to(path)
    return lock


def test_a_forked_child_does_not_inherit_a_lock(tmp_path: Path) -> None:
    lock = seized(tmp_path / "a", tmp_path / "b")
    (ready, say_ready), (end, say_end) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        lock.release()  # what a child's clean-up might do
        os.write(say_ready, b"x")
        os.read(end, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        assert locks.is_locked(tmp_path / "a") is True
        lock.release()
        assert locks.is_locked(tmp_path / "b") is False
    finally:
        os.write(say_end, b"x")
        os.waitpid(child, 0)
        for pipe in (ready, say_ready, end, say_end):
            os.close(pipe)


def test_a_program_that_is_started_does_not_inherit_a_lock(tmp_path: Path) -> None:
    lock = seized(tmp_path / "a", tmp_path / "b")
    program = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout
        child.stdout.readline()
        lock.release()
        is_inherited = locks.is_locked(tmp_path / "b")
        child.communicate(b"\n")
    assert not is_inherited


def test_a_file_that_was_removed_meanwhile_is_not_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "a"
    lock = locks.seize(path)
    assert lock
    path.unlink()
    other = locks.seize(path)
    assert other, "a new file at the path is another lock"
    lock.disown()
    assert locks.is_locked(path) is True
    other.release()


def test_at_most_one_holds_a_lock_however_often_its_file_comes_and_goes(tmp_path: Path) -> None:
    path, inside, worst = tmp_path / "a", [0], [0]

    def contend() -> None:
        held = 0
        while held < 500:
            if lock := locks.seize(path):
                held, inside[0] = held + 1, inside[0] + 1
                worst[0] = max(worst[0], inside[0])
                time.sleep(0)
                inside[0] -= 1
                lock.release()

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worst == [1]


def test_only_files_that_nobody_holds_are_removed(tmp_path: Path) -> None:
    held, dead = tmp_path / "held", tmp_path / "dead"
    dead.touch()
    lock = locks.seize(held)
    assert lock
    locks.reap(list(tmp_path.iterdir()))
    assert list(tmp_path.iterdir()) == [held]
    lock.release()


def test_a_folder_that_cannot_be_made_is_an_unavailable_state(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateUnavailable):
        locks.seize(tmp_path / "file" / "a")
    with pytest.raises(StateUnavailable):
        locks.is_locked(tmp_path / "file" / "a")


def test_a_file_system_without_locks_is_an_unavailable_state_and_keeps_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(StateUnavailable, match="No locks available"):
        locks.seize(tmp_path / "a")
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    assert str(tmp_path / "a") not in [os.readlink(link) for link in links if os.path.islink(link)]
