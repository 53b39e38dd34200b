"""Where the claims of a state in Kafka have their locks on one machine, and who believes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deadline import until
from penstock.coordinators import locks
from penstock.coordinators.kafka import seats
from penstock.errors import StateUnavailable, StateUnsafe

OTHER_ENVIRONMENT = ("TMPDIR", "HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "PENSTOCK_CACHE")


@contextmanager
def sitting(folder: Path) -> Iterator[str]:
    """The seat of another process of this user, whose environment has nothing in common with ours."""
    script = """
import sys
from penstock.coordinators.kafka import seats
seat = seats.new_seat()
held = seats.sit(seat)
print(seat, flush=True)
sys.stdin.read()
"""
    env = {**os.environ, **dict.fromkeys(OTHER_ENVIRONMENT, str(folder))}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as other:
        assert other.stdin
        assert other.stdout
        with closing(other.stdin):
            yield other.stdout.readline().strip()


def test_processes_of_a_user_see_each_others_locks_whatever_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OTHER_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with sitting(tmp_path) as seat:
        assert seats.is_alive(seat) is True
    until(lambda: seats.is_alive(seat) is False)


def test_a_lock_in_a_folder_that_this_process_does_not_see_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a service with a /tmp and a home of its own: to call its claim dead would put two writers on one lane."""
    with sitting(tmp_path) as seat:
        monkeypatch.setattr(seats, "_home", lambda: None)
        monkeypatch.setattr(seats, "TEMPORARY", tmp_path)
        assert seats.is_alive(seat) is None
    seat = seats.new_seat()
    seats.sit(seat).release()
    (tmp_path / f"penstock-{os.geteuid()}-lanes").rename(tmp_path / "gone")
    assert seats.is_alive(seat) is None, "nor one in a folder that was removed"


def test_a_seat_of_an_earlier_version_is_not_taken_for_one_of_this_folder_nor_the_other_way_round() -> None:
    earlier = f"{locks.machine()}/{os.getuid()}/"
    assert seats.is_alive(f"{earlier}0123456789abcdef") is None
    assert not seats.new_seat().startswith(earlier)


def test_the_folder_is_in_the_home_of_the_user_or_where_there_is_none_in_a_fixed_one_for_temporary_files(tmp_path: Path) -> None:
    temporary = tmp_path / f"penstock-{os.geteuid()}-lanes"
    assert seats.chosen(tmp_path, Path("/tmp")) == tmp_path / ".cache" / "penstock" / "lanes"
    for home in (None, Path("relative"), tmp_path / "nonexistent", Path("/dev/null")):
        assert seats.chosen(home, tmp_path) == temporary


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(seats, "_home", lambda: tmp_path)
    return tmp_path / ".cache" / "penstock" / "lanes"


def test_the_folder_and_its_locks_are_for_this_user_alone_from_the_first_moment_on(place: Path) -> None:
    before = os.umask(0)
    try:
        held = seats.sit(seats.new_seat())
    finally:
        os.umask(before)
    assert (place.stat().st_mode & 0o777, held.path.stat().st_mode & 0o777) == (0o700, 0o600)
    held.release()


def test_a_folder_that_others_can_enter_is_refused_with_its_mode_and_the_remedy(place: Path) -> None:
    seats.folder()
    place.chmod(0o750)
    with pytest.raises(StateUnsafe) as caught:
        seats.new_seat()
    assert f"{place} is a folder of user {os.geteuid()} with mode 750" in caught.value.message
    assert caught.value.remedy.endswith(f"rm -r {place}")


def test_a_symbolic_link_in_place_of_the_folder_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateUnsafe, match=f"{place} is a symbolic link of user {os.geteuid()}"):
        seats.new_seat()


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """The folder is this user's, and another one asks; where this user is root, it is nobody."""
    os.chmod(tmp_path, 0o700)
    script = """
import os, sys
from pathlib import Path
from penstock.files import privacy
found = Path(sys.argv[1]).lstat()
if not os.geteuid(): os.setuid(65534)
else: found = os.stat("/")
print(privacy.is_foreign(found), privacy.described(found))
"""
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("True a folder of user 0 with mode")


def test_a_lock_file_that_is_a_symbolic_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    seat = seats.new_seat()
    (place / locks.digest(seat)).symlink_to(tmp_path / "victim")
    with pytest.raises(StateUnavailable, match="symbolic links"):
        seats.sit(seat)
    assert not (tmp_path / "victim").exists()
