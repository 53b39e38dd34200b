"""YAML as plain values."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.config import document
from penstock.errors import ConfigInvalid


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "p.yaml"


def read(file: Path, text: str, **environment: str) -> document.Document:
    file.write_text(text)
    with patch.dict(os.environ, environment):
        return document.read(file)


def test_plain_values_keep_their_types_and_words_stay_words(file: Path) -> None:
    found = read(file, "a: 1\nb: x\nc: [true, 1.5, null]\nd: {e: '2'}\nf: 2026-01-01\ng:\n").values
    assert found == {"a": 1, "b": "x", "c": [True, 1.5, None], "d": {"e": "2"}, "f": "2026-01-01", "g": None}


def test_every_key_has_its_line(file: Path) -> None:
    found = read(file, "a: 1\n\nb:\n  c: {d: 2}\n")
    assert found.where(("b", "c", "d")) == "b.c.d (line 4)"
    assert found.where(("b", "missing")) == "b.missing (line 3)"
    assert found.where(("missing",)) == "missing"


def test_variables_and_files_are_substituted(file: Path) -> None:
    (file.parent / "secret").write_text("s3cret\n")
    found = read(file, "a: http://${HOST}:${PORT}/x\nb: ${file:secret}\nc: $${HOST} costs $5\nd: 'x$'\n", HOST="h", PORT="1").values
    assert found == {"a": "http://h:1/x", "b": "s3cret", "c": "${HOST} costs $5", "d": "x$"}


def test_the_home_folder_may_be_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(file.parent))
    (file.parent / "secret").write_text("s3cret\n")
    assert read(file, "a: ${file:~/secret}\n").values == {"a": "s3cret"}


def test_a_home_folder_that_is_not_there_is_told(file: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read(file, "a: ${file:~nosuchuser/secret}\n")
    assert "a (line 1) refers to ${file:~nosuchuser/secret}, but the file ~nosuchuser/secret cannot" in caught.value.message
    assert "without ~" in caught.value.message
    assert caught.value.remedy


def test_what_is_substituted_is_text_unless_it_is_an_unquoted_whole_number(file: Path) -> None:
    found = read(file, "a: ${N}\nb: '${N}'\nc: ${ON}\nd: ${ZERO}\ne: ${MAP}\n", N="100", ON="on", ZERO="007", MAP="{x: 1}").values
    assert found == {"a": 100, "b": "100", "c": "on", "d": "007", "e": "{x: 1}"}


def test_what_is_substituted_is_not_substituted_again(file: Path) -> None:
    assert read(file, "a: ${A}\n", A="${B}", B="x").values == {"a": "${B}"}


def test_everything_that_is_missing_is_named(file: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read(file, "a: ${GONE}\nb:\n  c: ${file:none.txt}\nd: '${'\n")
    assert "a (line 1) refers to ${GONE}, but the environment variable GONE is not set" in caught.value.message
    assert "b.c (line 3) refers to ${file:none.txt}, but the file none.txt cannot be read (No such file" in caught.value.message
    assert "d (line 4) refers to ${...}, but only ${NAME} and ${file:PATH} are supported" in caught.value.message


@pytest.mark.parametrize("text", ["${HOME", "x${HOME:s3cret", "${HOME:-s3cret}", "${HOME-}", "${file:secret", "${file-}"])
def test_what_looks_like_a_reference_and_is_none_is_told_and_what_it_may_hide_is_not(file: Path, text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read(file, f"a: '{text}'\n", HOME="h")
    assert f"a (line 1) refers to ${{{text.partition('${')[2][:4]}...}}, but only ${{NAME}}" in caught.value.message
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_not_text_cannot_be_substituted(file: Path) -> None:
    (file.parent / "secret").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigInvalid, match="not UTF-8"):
        read(file, "a: ${file:secret}\n")


def test_a_key_that_is_given_twice_is_an_error(file: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"a\.b is given twice, on lines 2 and 3"):
        read(file, "a:\n  b: 1\n  b: 2\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "is not YAML: line 1"),
        ("a: 1\n---\nb: 2\n", "is not YAML: line 2"),
        ("a: &x 1\nb: *x\n", "line 2: aliases"),
        ("a: !!python/object:os.system 1\nb: [", "is not YAML"),
        ("", "must consist of keys and values"),
        ("just words", "must consist of keys and values"),
        ("a: \x07", "not a YAML file of text"),
    ],
)
def test_what_is_no_pipeline_file_is_refused(file: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        read(file, text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("none", ".", "binary"):
        with pytest.raises(ConfigInvalid):
            document.read(tmp_path / name)
