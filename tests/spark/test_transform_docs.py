"""Every example of the page on transforms, as it is printed there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from penstock.change import Change, Op, from_batch, to_batch
from penstock.config import parse
from penstock.formats.penstock import PenstockFormat
from penstock.pipeline import Transform
from penstock.spark.failing_row import Trial
from penstock.spark.rows import rows
from penstock.spark.transform import apply
from penstock.transform.function import Function

PAGE = (Path(__file__).parents[2] / "docs" / "transform.md").read_text()
AT = 1767225600000000


def blocks(kind: str) -> list[str]:
    return [text for name, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if name == kind]


def table(heading: str) -> list[list[str]]:
    lines = PAGE.split(f"\n| {heading}")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in re.split(r" \| ", line.strip("| "))] for line in lines]


def change(line: str) -> Change:
    given = json.loads(line)
    images = [json.dumps(given[name], separators=(",", ":")) if name in given else None for name in ("key", "before", "after")]
    return Change(given["position"], Op(given["op"]), given["table"], *images, AT)


CHANGES = [change(line) for line in blocks("json")[0].splitlines()]


@pytest.fixture(scope="module")
def stream(spark):
    return spark.createDataFrame(pa.Table.from_batches([rows(to_batch(CHANGES))]))


def test_conditions_keep_what_the_page_says(stream):
    said = table("condition")
    assert len(said) >= 5
    for condition, kept in said:
        found = apply(stream, Transform(where=condition)).collect()
        assert " ".join(str(row.position) for row in found) == kept, condition


def test_fields_have_the_values_that_the_page_says(stream):
    said = [(expression, int(number), value) for expression, number, value in table("expression")]
    assert len(said) >= 10
    for number in {number for _, number, _ in said}:
        mine = [(expression, value) for expression, at, value in said if at == number]
        select = {f"f{index}": expression for index, (expression, _) in enumerate(mine)}
        [row] = apply(stream.where(f"position = {number}"), Transform(select=select)).collect()
        assert row.after == "{" + ",".join(f'"{name}":{value}' for name, (_, value) in zip(select, mine, strict=True)) + "}"


def test_one_form_raises_where_the_other_gives_null(spark):
    said = table("raises on change 3")
    assert len(said) >= 8
    third = to_batch([CHANGES[2]])
    for raising, quiet in said:
        failing = Trial(spark, Transform(select={"x": raising})).failing_row(third)
        form = re.search(r"gives NULL: (\w+)", failing.error.remedy)[1]
        assert form in quiet or form.removeprefix("try_") in ("add", "cast"), (raising, failing.error.remedy)
    given = spark.createDataFrame(pa.Table.from_batches([rows(third)]))
    [row] = apply(given, Transform(select={f"f{index}": quiet for index, (_, quiet) in enumerate(said)})).collect()
    assert set(json.loads(row.after).values()) == {None}


def test_the_error_of_an_expression_is_the_one_on_the_page(spark):
    failing = Trial(spark, Transform(select={"id": "after:id", "total": "after:total::double"})).failing_row(to_batch(CHANGES))
    assert f"{failing.error}\n" in blocks("")
    assert failing.change == CHANGES[2]


def enrich(folder) -> Function:
    found: dict = {}
    file = folder / "rules.py"
    file.write_text(blocks("python")[0])
    exec(compile(file.read_text(), "rules.py", "exec"), found)
    return Function("rules:enrich", found["enrich"])


def test_the_pipeline_of_the_page_makes_what_the_page_shows(stream, tmp_path):
    transform = parse(yaml.safe_load(blocks("yaml")[0])).transform
    kept = apply(stream, transform).toArrow().combine_chunks().to_batches()[0]
    found = enrich(tmp_path).apply(kept)
    assert found.error is None
    assert PenstockFormat("orders").texts(found.changes, None) == blocks("json")[1].splitlines()


def test_the_error_of_a_function_is_the_one_on_the_page(tmp_path):
    found = enrich(tmp_path).apply(to_batch([CHANGES[0], CHANGES[4]]))
    assert f"{found.error}\n" in blocks("")
    assert [one.position for one in from_batch(found.changes)] == [1]
