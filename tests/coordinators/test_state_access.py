"""Who can open a state file, its journals and its locks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.change import Lane
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Cursor, Watermark
from penstock.errors import StateUnsafe
from penstock.files import privacy

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@contextmanager
def umask(wanted: int) -> Iterator[None]:
    before = os.umask(wanted)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def leading(path: Path) -> Iterator[None]:
    """A leader that holds a lane."""
    state = SqliteCoordinator(str(path))
    with closing(state.candidate("p", "a")) as candidate:
        term = candidate.campaign()
        assert term
        state.place(term, {Lane("main"): Watermark(Cursor("c"), 0, 0)})
        with state.claim(term, Lane("main"), 0):
            yield


def modes(path: Path) -> dict[str, int]:
    """Of all files of the state: by their endings, and those of the locks by their kinds."""
    beside = {file.name.removeprefix("state."): file for file in path.parent.iterdir()}
    locks = {file.name.partition(".")[0]: file for file in beside["db-locks"].iterdir()}
    return {name: file.stat().st_mode & 0o7777 for name, file in (beside | locks).items()}


@pytest.mark.parametrize("mask", [0, 0o002, 0o022, 0o077])
def test_only_the_owner_can_open_what_is_made(path: Path, mask: int) -> None:
    with umask(mask), leading(path):
        made = modes(path)
    assert made == {"db": 0o600, "db-wal": 0o600, "db-shm": 0o600, "db-locks": 0o700, "seat": 0o600, "lane": 0o600}


def test_at_no_moment_can_others_open_a_new_file(path: Path) -> None:
    """SQLite would make it with the mode that the umask leaves; so it is there before SQLite is asked."""
    script = """
import os, sys
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
os.umask(0)
def follow(event, arguments):
    if event == "sqlite3.connect":
        print(oct(os.stat(sys.argv[1]).st_mode & 0o777))
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT and sys.argv[1] in str(arguments[0]):
        print(arguments[0], "made")
sys.addaudithook(follow)
SqliteCoordinator(sys.argv[1]).candidate("p", "a").close()
"""
    ended = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    said = ended.stdout.splitlines()
    assert said.index(f"{path} made") < said.index("0o600")


def widened(path: Path) -> None:
    """As earlier versions made it."""
    for file in path.parent.iterdir():
        file.chmod(0o755 if file.is_dir() else 0o644)


def test_a_wider_file_of_an_earlier_version_is_closed_to_others_once_it_is_opened_for_writing(path: Path) -> None:
    with leading(path):
        widened(path)
        SqliteCoordinator(str(path)).pipeline_state("p")
        assert path.stat().st_mode & 0o777 == 0o644
        with closing(SqliteCoordinator(str(path)).candidate("p", "b")) as rival:
            assert rival.campaign() is None, "both still find each other's locks"
            after = modes(path)
    assert {name: mode for name, mode in after.items() if name.startswith("db")} == {
        "db": 0o600,
        "db-wal": 0o600,
        "db-shm": 0o600,
        "db-locks": 0o700,
    }


def test_a_file_that_its_owner_shares_with_a_group_stays_shared_with_its_journals_and_locks(path: Path) -> None:
    SqliteCoordinator(str(path)).candidate("p", "a").close()
    path.chmod(0o660)
    with umask(0o077), leading(path):
        made = modes(path)
    assert made == {"db": 0o660, "db-wal": 0o660, "db-shm": 0o660, "db-locks": 0o2770, "seat": 0o660, "lane": 0o660}


@pytest.mark.parametrize(
    ("mode", "is_wide"),
    [(0o600, False), (0o400, False), (0o660, False), (0o2770, False), (0o640, True), (0o620, True), (0o644, True), (0o664, True)],
)
def test_a_mode_is_wide_unless_only_the_owner_or_a_group_that_may_also_write_can_use_it(mode: int, is_wide: bool) -> None:
    assert privacy.is_wide(mode) is is_wide


def as_another(script: str, path: str) -> subprocess.CompletedProcess[str]:
    """Run by a user who is not root: this one, or nobody in its place."""
    start = (
        "import os, sys\nfrom penstock.coordinators.sqlite.coordinator import SqliteCoordinator\n"
        f"if not os.geteuid(): os.setuid({NOBODY})\n"
    )
    return subprocess.run([sys.executable, "-c", start + script, path], capture_output=True, text=True, check=False)


def test_a_wide_file_of_another_user_is_refused_with_the_remedy() -> None:
    ended = as_another('SqliteCoordinator(sys.argv[1]).candidate("p", "a")', "/etc/passwd")
    said = ended.stderr.splitlines()[-1]
    assert "[state.unsafe] other users can open /etc/passwd, which is a file of user 0 with mode 644" in said
    assert "as its owner: chmod 600 /etc/passwd" in said


def test_root_can_open_the_file_of_another_user_who_can_still_use_it() -> None:
    """Without root, of this user."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.chown(folder, *([NOBODY, NOBODY] if os.geteuid() == 0 else [-1, -1]))
        path = f"{folder}/state.db"
        stands = 'SqliteCoordinator(sys.argv[1]).candidate("p", "a").campaign() or sys.exit("nobody leads")'
        assert as_another(stands, path).stderr == ""
        os.chmod(path, 0o644)
        with leading(Path(path)):
            assert os.stat(path).st_mode & 0o777 == 0o600
            reads = (
                'standing = SqliteCoordinator(sys.argv[1]).pipeline_state("p"); standing.is_held or sys.exit("it sees no leader")'
            )
            assert as_another(reads, path).stderr == ""
        assert as_another(stands, path).stderr == ""


def test_locks_that_another_user_has_put_there_are_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    SqliteCoordinator(str(path)).candidate("p", "a").close()
    locks = Path(f"{path}-locks")
    for file in locks.iterdir():
        file.unlink()
    locks.rmdir()
    locks.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateUnsafe, match="a symbolic link of user"):
        SqliteCoordinator(str(path)).candidate("p", "a")
    assert list((tmp_path / "elsewhere").iterdir()) == []
