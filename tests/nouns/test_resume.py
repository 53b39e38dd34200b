"""Where a pipeline goes on."""

import pytest

from penstock.running.resume import decide


@pytest.mark.parametrize(
    ("known", "registered", "said", "error", "by"),
    [
        (False, None, None, None, "file"),
        (False, None, "now", None, "person"),
        (False, 17, None, None, None),
        (False, 17, "17", None, "person"),
        (True, 17, None, None, "watermark"),
        (True, 17, "beginning", None, "watermark"),
        (True, 17, "beginning", {"code": "sink.exhausted"}, "watermark"),
        (True, 17, "beginning", {"code": "source.rewound"}, "person"),
        (True, 17, "40", {"code": "capture.broken"}, "person"),
        (True, 17, None, {"code": "source.rewound"}, "watermark"),
    ],
)
def test_the_store_decides_unless_only_a_person_can(known, registered, said, error, by):
    assert decide(known, registered, said, error) == by
