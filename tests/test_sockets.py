"""Folders for Unix sockets have short paths, whatever TMPDIR is."""

import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from penstock.errors import ConfigInvalid
from penstock.files import sockets

OF_SPARK = ".00000000-0000-0000-0000-000000000000.sock"


@pytest.fixture
def long_folder(tmp_path):
    folder = tmp_path / ("l" * 120)
    folder.mkdir()
    return folder


@pytest.fixture
def short_folder():
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def made(monkeypatch):
    folders = []

    def make(**environment):
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, str(value))
        folders.append(Path(sockets.make_folder("penstock-run-")))
        return folders[-1]

    yield make
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_socket_of_spark_can_be_bound_below_a_folder_made_under_a_long_tmpdir(made, long_folder):
    folder = made(TMPDIR=long_folder)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / OF_SPARK))
    (folder / OF_SPARK).unlink()
    assert len(os.fsencode(folder)) <= sockets.LONGEST


def test_nobody_else_can_enter_the_folder_and_its_name_is_never_the_same(made, long_folder):
    first, second = (made(TMPDIR=long_folder) for _ in range(2))
    assert first != second
    assert (first.stat().st_uid, stat.S_IMODE(first.stat().st_mode)) == (os.geteuid(), 0o700)


def test_a_short_tmpdir_is_where_the_folder_is(made, short_folder):
    assert made(TMPDIR=short_folder).parent == short_folder


def test_bytes_are_counted_and_not_letters(made, short_folder):
    wide = short_folder / ("ü" * 20)
    wide.mkdir()
    assert made(TMPDIR=wide).parent != wide


def test_a_short_link_to_a_long_folder_is_as_short_as_it_is_written(made, short_folder, long_folder):
    link = short_folder / "link"
    link.symlink_to(long_folder)
    folder = made(TMPDIR=link)
    assert (folder.parent, folder.resolve().parent) == (link, long_folder)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / OF_SPARK))


def test_the_longest_path_of_a_socket_fits_with_its_zero_where_there_are_104_bytes(made, short_folder):
    most = sockets.LONGEST - len("/penstock-run-") - 8
    longest, longer = (short_folder / ("l" * (most + more - len(f"{short_folder}/"))) for more in (0, 1))
    longest.mkdir()
    longer.mkdir()
    folder = made(TMPDIR=longest)
    assert folder.parent == longest
    assert len(os.fsencode(folder / OF_SPARK)) + 1 == 104
    assert made(TMPDIR=longer).parent != longer


def test_the_runtime_folder_is_used_where_no_other_can_be(made, monkeypatch, short_folder, long_folder):
    monkeypatch.setattr(sockets, "_COMMON", (str(short_folder / "none"),))
    assert made(TMPDIR=long_folder, XDG_RUNTIME_DIR=short_folder).parent == short_folder


def test_where_no_folder_can_be_each_refusal_is_named_with_the_remedy(made, monkeypatch, short_folder, long_folder):
    missing = short_folder / "none"
    monkeypatch.setattr(sockets, "_COMMON", (str(missing),))
    with pytest.raises(ConfigInvalid) as caught:
        made(TMPDIR=long_folder)
    length = len(os.fsencode(long_folder))
    assert f"{long_folder} has {length} bytes; {missing}: No such file or directory" in caught.value.message
    assert "a path of at most 38 bytes" in caught.value.remedy
