"""The format penstock: the captured text as it is, in a body that every JSON parser reads."""

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.change import Change, Op, to_batch
from penstock.formats.penstock import PenstockFormat

FORMAT = PenstockFormat("orders")
AT = 1_767_225_600_000_000  # 2026-01-01

values = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.builds(lambda base64: {"$blob": base64}, st.sampled_from(["", "AP8=", "aGVsbG8="])),
    st.sampled_from([{"$real": "inf"}, {"$real": "-inf"}]),
)
images = st.dictionaries(st.text(), values, max_size=4)
texts = st.text(st.characters(exclude_categories=["Cs"]))


@st.composite
def changes(draw):
    written = [draw(st.none() | images) for _ in range(2)]
    key, (before, after) = draw(images), (image if image is None else json.dumps(image) for image in written)
    op = draw(st.sampled_from([op for op in Op if op is not Op.RESOLVED]))
    at = draw(st.integers(-AT, AT * 4))
    error = draw(st.none() | texts)
    return Change(
        draw(st.integers(1, 2**63 - 1)),
        op,
        draw(texts),
        json.dumps(key),
        before,
        after,
        at,
        None,
        error,
        schema=draw(st.none() | st.integers(0, 9)),
    )


def expected(change, previous):
    whole = {
        "position": change.position,
        "previous": previous,
        "table": change.table,
        "op": change.op,
        "key": json.loads(change.key),
    }
    images = {"before": change.before, "after": change.after}
    whole |= {name: json.loads(image) for name, image in images.items() if image is not None}
    rest = {"error": change.error, "schema": change.schema}
    return whole | {name: value for name, value in rest.items() if value is not None}


@given(st.lists(changes(), min_size=1, max_size=5), st.none() | st.integers(0, 2**63 - 1), texts)
def test_any_change_is_read_back_whole(offered, previous, pipeline):
    form = PenstockFormat(pipeline)
    body = json.loads(form.body(form.texts(to_batch(offered), previous)))
    assert body["pipeline"] == pipeline
    for change in body["changes"]:
        assert change.pop("at").endswith("Z")
    chain = [previous, *(change.position for change in offered)]
    assert body["changes"] == [expected(*pair) for pair in zip(offered, chain, strict=False)]


@given(st.lists(changes(), min_size=1, max_size=6), st.data())
def test_a_change_is_the_same_text_however_it_is_batched(offered, data):
    whole = FORMAT.texts(to_batch(offered), 1)
    cut = data.draw(st.integers(0, len(offered)))
    head = FORMAT.texts(to_batch(offered[:cut]), 1)
    assert head + FORMAT.texts(to_batch(offered[cut:]), offered[cut - 1].position if cut else 1) == whole


def one(*fields, **more):
    return FORMAT.body(FORMAT.texts(to_batch([Change(*fields, **more)]), None)).decode()


def test_an_insert_has_no_before():
    assert one(1, Op.INSERT, "orders", '{"id":1}', None, '{"id":1}', AT) == (
        '{"pipeline":"orders","changes":[{"position":1,"previous":null,"table":"orders","op":"insert","key":{"id":1},'
        '"after":{"id":1},"at":"2026-01-01T00:00:00.000Z"}]}'
    )


def test_a_delete_has_no_after():
    assert one(2, Op.DELETE, "orders", '{"id":1}', '{"id":1}', None, AT + 1_999) == (
        '{"pipeline":"orders","changes":[{"position":2,"previous":null,"table":"orders","op":"delete","key":{"id":1},'
        '"before":{"id":1},"at":"2026-01-01T00:00:00.001Z"}]}'
    )


def test_an_image_is_sent_as_it_was_captured_to_the_last_byte():
    image = '{"b": 1.0 ,"a":1e400,"n":9223372036854775807,"d":0.10000000000000001,"t":"\\u00e4ä","a":{"$blob":"AP8="}}'
    assert f'"before":{image},"after":{image},' in one(1, Op.UPDATE, "t", image, image, image, AT)


def test_an_error_of_capture_is_named():
    image = '{"id":1,"note":{"$text":"/w=="}}'
    assert one(1, Op.INSERT, "t", '{"id":1}', None, image, AT, error='text of "note" is not UTF-8').endswith(
        ',"after":{"id":1,"note":{"$text":"/w=="}},"at":"2026-01-01T00:00:00.000Z","error":"text of \\"note\\" is not UTF-8"}]}'
    )


def test_names_are_escaped():
    body = json.loads(PenstockFormat('say "ä"\n').body(FORMAT.texts(to_batch([Change(1, Op.INSERT, '"; drop\\', "{}")]), None)))
    assert (body["pipeline"], body["changes"][0]["table"]) == ('say "ä"\n', '"; drop\\')


def test_times_before_1970_count_backwards():
    assert '"at":"1969-12-31T23:59:59.999Z"' in one(1, Op.INSERT, "t", "{}", None, "{}", -1)
