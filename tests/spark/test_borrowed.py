"""What Spark's jobs carry of a source whose address is a secret."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark import cloudpickle

from penstock.config import load, written
from penstock.errors import ConfigInvalid
from penstock.spark.changes import ChangeBatch, ChangeStream
from penstock.spark.request import Request

DSN = "postgresql://app:s3cret-password@db/shop"
FILE = "name: orders\nsource: {{type: outbox, database: '{database}'}}\nsink: {{type: discard, nothing: '${{NOT_SET}}'}}\n"


def request(folder: Path, database: str) -> Request:
    file = folder / "orders.yaml"
    file.write_text(FILE.format(database=database))
    return Request(load(file, delivers=False).source, {}, file=str(file), written=written(file, "source"))


@pytest.mark.parametrize(
    ("database", "asked"),
    [
        ("${SHOP_DSN}", "the environment variable SHOP_DSN is not set"),
        ("postgresql://app:${file:password.txt}@db/shop", "the file password.txt cannot be read"),
    ],
)
def test_a_reference_travels_in_place_of_a_secret_and_each_process_resolves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str, asked: str
) -> None:
    monkeypatch.setenv("SHOP_DSN", DSN)
    (tmp_path / "password.txt").write_text("s3cret-password\n")
    sent = request(tmp_path, database)
    assert sent.source.database == DSN  # type: ignore[attr-defined]
    packed = [cloudpickle.dumps(one) for one in (sent, ChangeBatch(sent), ChangeStream(sent))]
    assert [one for one in packed if b"s3cret" in one] == []
    assert [pickle.loads(packed[0]), *(pickle.loads(one).request for one in packed[1:])] == [sent] * 3

    monkeypatch.delenv("SHOP_DSN")
    (tmp_path / "password.txt").unlink()
    with pytest.raises(ConfigInvalid, match=f"orders.yaml: source.database refers to .*, but {asked}") as caught:
        pickle.loads(packed[0])
    assert caught.value.remedy == "provide it on every host with a Spark worker"


def test_a_source_without_references_travels_as_it_is(tmp_path: Path) -> None:
    sent = request(tmp_path, DSN)
    assert pickle.loads(pickle.dumps(sent)) == sent
