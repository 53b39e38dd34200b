"""Which records are sent alone, and which are condemned."""

from penstock.sinks.kafka.fault import ErrorScope
from penstock.sinks.kafka.shelf import Suspects


def test_a_record_that_failed_with_others_is_poison_when_it_fails_alone():
    suspects = Suspects()
    assert not suspects.convict(7, ErrorScope.BATCH)
    assert suspects == {7}
    assert suspects.convict(7, ErrorScope.BATCH)
    assert not suspects.convict(8, ErrorScope.BATCH)


def test_a_record_that_is_refused_itself_is_poison_at_once():
    suspects = Suspects()
    assert suspects.convict(7, ErrorScope.RECORD)
    assert suspects == set()
