"""`where` and `select` as Spark evaluates them: exact values, on changes that stand still."""

import json

import pytest
from pyspark.sql.types import Row

from facts import facts
from penstock.change import Change, Op, from_batch, to_batch
from penstock.cursor import Cursor
from penstock.errors import TransformInvalid
from penstock.pipeline import Transform
from penstock.spark.failing_row import Trial
from penstock.spark.rows import DDL, Mark, Raised, pieces, rows
from penstock.spark.transform import apply
from penstock.spark.trial import put_through

DOCUMENT = (
    '{"id":9223372036854775807,"least":-9223372036854775808,"beyond":18446744073709551616,"tenth":0.1,"whole":5.0,"tiny":5e-324,'
    '"price":12345678901234567890.12,"text":"é \\u2028 \\" \\\\ \\u0000 </a> 𝄞","nothing":null,"yes":true,'
    '"deep":{"b":[1,null,{"x":"y"}],"a":{}},"image":{"$blob":"AAE="},"a b":1,"when":"2026-01-01T00:00:00Z"}'
)
AT = 1767225600123456
CHANGES = [
    Change(1, Op.INSERT, "orders", '{"id":1}', None, DOCUMENT, AT, facts(None, 1)),
    Change(2, Op.UPDATE, "orders", '{"id":1}', '{"total": 1.50}', '{"total": 2.50, "text": "abc"}', AT, facts(1, 1)),
    Change(3, Op.DELETE, "orders", '{"id":1}', '{"total": 2.50}', None, AT, facts(1, None)),
    Change(4, Op.SCHEMA, "orders", "{}", None, '{"columns": ["id"]}', AT),
]
MARK = Mark("log", 4, Cursor('{"position":4}'))


@pytest.fixture(scope="module")
def stream(spark):
    import pyarrow as pa

    return spark.createDataFrame(pa.Table.from_batches([rows(to_batch(CHANGES), MARK)])).to(spark.createDataFrame([], DDL).schema)


def transformed(stream, **transform):
    return apply(stream, Transform(**transform)).collect()


def built(stream, **select):
    return transformed(stream, select=select)[0].after


VALUES = [
    ("after:id", "9223372036854775807"),
    ("after:id::bigint", "9223372036854775807"),
    ("after:least", "-9223372036854775808"),
    ("after:beyond", "18446744073709551616"),
    ("after:tenth", "0.1"),
    ("after:tenth::double", "0.1"),
    ("after:tiny::double", "4.9E-324"),
    ("after:whole", "5"),
    ("after:whole::double", "5.0"),
    ("after:price", "12345678901234567890.12"),
    ("after:price::decimal(30,4)", "12345678901234567890.1200"),
    ("after:tenth::decimal(10,2) * 3", "0.30"),
    ("after:nothing", "null"),
    ("after:missing", "null"),
    ("null", "null"),
    ("try_variant_get(after, '$.text', 'int')", "null"),
    ("after:yes", "true"),
    ("after:yes::boolean and false", "false"),
    ("after:image", '{"$blob":"AAE="}'),
    ("after:['a b']", "1"),
    ("after:deep", '{"a":{},"b":[1,null,{"x":"y"}]}'),
    ("after:deep.b[2].x", '"y"'),
    ("array(after:yes, null)", "[true,null]"),
    ("named_struct('b', 1, 'a', null)", '{"b":1,"a":null}'),
    ("upper(table)", '"ORDERS"'),
    ("op", '"insert"'),
    ("position", "1"),
    ("key:id::int + 1", "2"),
    ("before:total", "null"),
    ("at", '"2026-01-01T00:00:00.123456Z"'),
    ("cast(after:when::string as timestamp)", '"2026-01-01T00:00:00.000000Z"'),
    ("cast(after:when::string as timestamp_ntz)", '"2026-01-01T00:00:00.000000"'),
    ("to_date(at)", '"2026-01-01"'),
    ("cast('NaN' as double)", '"NaN"'),
    ("cast('-Infinity' as double)", '"-Infinity"'),
]


def test_fields_have_exactly_these_values(stream):
    select = {f"{at} {expression}": expression for at, (expression, _) in enumerate(VALUES)}
    after = built(stream, **select).replace(',"', ',\n"')
    assert (
        after
        == "{" + ",".join(f'"{name}":{text}' for name, (_, text) in zip(select, VALUES, strict=True)).replace(',"', ',\n"') + "}"
    )


def test_a_text_arrives_as_it_is(stream):
    for expression in ("after:text", "after:text::string"):
        after = built(stream, field=expression)
        assert json.loads(after)["field"] == json.loads(DOCUMENT)["text"]
        after.encode()


def test_fields_have_the_order_and_the_names_of_the_file(stream):
    after = built(stream, **{"z": "1", "a": "2", "A": "3", 'q"\\.é': "4"})
    assert after == '{"z":1,"a":2,"A":3,"q\\"\\\\.é":4}'


def test_every_double_survives(spark):
    import random

    import pyarrow as pa

    chance = random.Random(4)
    numbers = [chance.uniform(-1, 1) * 10 ** chance.randrange(-300, 300) for _ in range(500)] + [0.1 + 0.2, 1e16, 1e22, 123456789.0]
    changes = [Change(at, Op.INSERT, "t", "{}", None, json.dumps({"x": x})) for at, x in enumerate(numbers, 1)]
    found = apply(
        spark.createDataFrame(pa.Table.from_batches([rows(to_batch(changes))])), Transform(select={"x": "after:x::double"})
    )
    assert [json.loads(row.after)["x"] for row in found.collect()] == numbers


def test_only_rows_get_a_new_after_and_nothing_else_changes(stream):
    found = transformed(stream, select={"total": "after:total"})
    before = stream.collect()
    assert found[1:] == [
        Row(**{**before[1].asDict(), "after": '{"total":2.5}'}),
        *before[2:],
    ]
    assert found[0].asDict() | {"after": ""} == before[0].asDict() | {"after": ""}
    assert found[2].after is None
    assert found[3].after == '{"columns": ["id"]}'
    assert found[-2].mark == MARK.cursor


def test_fields_are_made_of_what_where_has_kept(stream):
    found = transformed(stream, where="op = 'update'", select={"total": "cast(after:text::string || 'x' as string)"})
    assert [(row.op, row.after) for row in found] == [("update", '{"total":"abcx"}'), ("resolved", None), ("resolved", None)]
    assert transformed(stream, where="table = 'orders' and op = 'delete'", select={"n": "1 / (position - 2)"})[0].position == 3


@pytest.mark.parametrize("where", ["no_such_column = 1", "table = = 'x'", "1 + 1", "table = 'x') or (1 = 1", "count(*) > 1"])
def test_a_condition_that_spark_does_not_understand_is_named(stream, where):
    with pytest.raises(TransformInvalid, match=r"transform\.where: \["):
        transformed(stream, where=where)


@pytest.mark.parametrize(
    "expression",
    [
        "no_such_column",
        "1 +",
        "after:id::no_type",
        "sum(position)",
        "explode(array(1))",
        "1) as x, (2",
        "(select 1 from t)",
    ],
)
def test_an_expression_that_spark_does_not_understand_is_named(stream, expression):
    with pytest.raises(TransformInvalid, match=r"transform\.select\.wrong: \["):
        transformed(stream, select={"right": "1", "wrong": expression})


NEEDING_MORE = {
    "java_method('java.lang.System', 'getProperty', 'user.home') is null": "gives another value each time",
    "reflect('java.lang.System', 'getProperty', 'user.home') is null": "gives another value each time",
    "try_reflect('java.lang.System', 'getProperty', 'user.home') is null": "gives another value each time",
    "input_file_name() = 'x'": "gives another value each time",
    "position in (select 1 from text.`/etc/passwd`)": "has a subquery",
    "(select count(*) from text.`/etc/passwd`) > 3": "has a subquery",
    "exists(select 1 from text.`/etc/passwd`)": "has a subquery",
    "at < now()": "depends on the clock",
    "at < current_timestamp": "depends on the clock",
    "to_date(at) < current_date": "depends on the clock",
    "at::timestamp_ntz < localtimestamp()": "depends on the clock",
    "current_user() = 'x'": "depends on the clock or the session",
}


@pytest.mark.parametrize("expression", NEEDING_MORE)
@pytest.mark.parametrize("key", ["where", "select"])
def test_what_needs_more_than_one_change_is_refused_at_start(stream, key, expression):
    with pytest.raises(TransformInvalid, match=NEEDING_MORE[expression]) as refused:
        apply(stream, Transform(where=expression) if key == "where" else Transform(select={"id": expression}))
    assert refused.value.remedy


@pytest.mark.parametrize("transform", [{"where": "rand() < 0.5"}, {"select": {"id": "uuid()"}}])
def test_chance_is_refused(stream, transform):
    with pytest.raises(TransformInvalid, match="another value each time"):
        transformed(stream, **transform)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ({"where": "after:total::double >= 0"}, [(1, None), (3, "where")]),
        ({"where": "position < 3", "select": {"total": "after:total::double"}}, [(1, None), (2, None)]),
        ({"select": {"total": "after:total::double", "one": "1"}}, [(1, None), (2, None), (3, "select"), (4, None), (5, None)]),
        (
            {"where": "after:total::double > 1 or op <> 'insert'", "select": {"n": "100 / (position - 4)"}},
            [(3, "where"), (4, None), (5, None)],
        ),
    ],
)
def test_poison_that_is_to_be_spared_passes_as_it_was_and_says_what_raised(spark, transform, expected):
    import pyarrow as pa

    given = [
        Change(1, Op.INSERT, "orders", '{"id":1}', None, '{"total": 1.0}', AT),
        Change(2, Op.INSERT, "orders", '{"id":2}', None, '{"total": -1.0}', AT),
        Change(3, Op.INSERT, "orders", '{"id":3}', None, '{"total":  "a lot"}', AT),
        Change(4, Op.DELETE, "orders", '{"id":1}', '{"total": 1.0}', None, AT),
        Change(5, Op.SCHEMA, "orders", "{}", None, '{"columns": ["id"]}', AT),
    ]
    stream = spark.createDataFrame(pa.Table.from_batches([rows(to_batch(given), MARK)]))
    found = apply(stream, Transform(**transform), spares=True).toArrow().combine_chunks()
    seen = [piece for batch in found.to_batches() for piece in pieces(batch)]
    raised = {piece.change.position: piece.part for piece in seen if isinstance(piece, Raised)}
    assert [piece for piece in seen if isinstance(piece, Mark)] == [MARK]
    kept = [position for piece in seen if isinstance(piece, pa.RecordBatch) for position in piece.column("position").to_pylist()]
    assert sorted([(position, None) for position in kept] + list(raised.items()), key=lambda one: one[0]) == expected
    for piece in seen:
        if isinstance(piece, Raised):
            assert piece.change == given[piece.change.position - 1], "it was parked as something else"


def test_a_letter_that_is_put_through_again_comes_out_as_from_the_stream_or_with_sparks_words(spark):
    change = Change(3, Op.INSERT, "orders", '{"id":3}', None, '{"total":  "a lot"}', AT)
    mended = Transform(where="op = 'insert'", select={"total": "try_variant_get(after, '$.total', 'double')"})
    assert list(from_batch(put_through(Trial(spark, mended), change))) == [change.replace(after='{"total":null}')]
    assert put_through(Trial(spark, Transform(where="position > 3")), change).num_rows == 0
    with pytest.raises(
        TransformInvalid, match=r"transform\.where: after:total::double > 0 raised on change 3 .*INVALID_VARIANT_CAST"
    ):
        put_through(Trial(spark, Transform(where="after:total::double > 0")), change)
