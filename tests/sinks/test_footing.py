"""Which partitions know a producer: nothing of a key goes after the first before that one is known to be there."""

from collections import Counter
from types import SimpleNamespace

import confluent_kafka as kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sinks.kafka.footing import Footing
from penstock.sinks.kafka.record import Record

SIZE = 3


def record(key, topic="t"):
    return Record(topic, key, b"")


def partition_of(one):
    return one.key[0] % SIZE


def acknowledge(footing, one):
    footing.sent(one)
    footing.reported(one, partition_of(one))


class Counting:
    """A producer whose brokers have topics of this size, or do not answer; it notes the topics it was asked about."""

    def __init__(self, size=SIZE):
        self.asked, self._size = [], size

    def list_topics(self, topic, seconds):
        self.asked.append(topic)
        if self._size is None:
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TRANSPORT))
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=range(self._size))})


@pytest.fixture
def footing():
    return Footing(Counting())


def test_the_second_of_a_key_waits_for_the_first_and_then_no_more(footing):
    one = record(b"\0")
    assert not footing.holds_back(one)
    footing.sent(one)
    assert footing.holds_back(one)
    footing.reported(one, partition_of(one))
    for _ in range(3):
        assert not footing.holds_back(one)
        footing.sent(one)


def test_other_keys_and_topics_do_not_wait(footing):
    footing.sent(record(b"\0"))
    assert not footing.holds_back(record(b"\3"))
    assert not footing.holds_back(record(b"\0", topic="other"))
    assert not footing.holds_back(record(None))


def test_what_failed_proves_nothing(footing):
    one = record(b"\0")
    footing.sent(one)
    footing.reported(one, None)
    footing.sent(one)
    assert footing.holds_back(one)


def test_nothing_waits_once_every_partition_has_acknowledged_and_that_is_asked_once(footing):
    for number in range(SIZE):
        acknowledge(footing, record(bytes([number])))
    for number in range(SIZE, 3 * SIZE):
        one = record(bytes([number]))
        footing.sent(one)
        assert not footing.holds_back(one)
    assert footing.producer.asked == ["t"]


def test_a_topic_whose_size_is_not_known_is_never_firm():
    footing = Footing(Counting(None))
    for number in range(SIZE):
        acknowledge(footing, record(bytes([number])))
    footing.sent(record(b"\7"))
    assert footing.holds_back(record(b"\7"))


def test_brokers_that_do_not_answer_are_asked_again_only_when_they_have_acknowledged_something():
    footing = Footing(Counting(None))
    acknowledge(footing, record(b"\0"))
    footing.sent(record(b"\7"))
    for _ in range(5):
        assert footing.holds_back(record(b"\7"))
    assert footing.producer.asked == ["t"]
    acknowledge(footing, record(b"\0"))
    assert footing.holds_back(record(b"\7"))
    assert footing.producer.asked == ["t", "t"]


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans())))
def test_two_of_a_key_are_under_way_only_where_the_producer_is_known(steps):
    footing, known, under_way = Footing(Counting()), set(), []
    for number, is_answer in steps:
        one = record(bytes([number]))
        if is_answer and under_way:
            answered = under_way.pop(0)
            footing.reported(answered, partition_of(answered))
            known.add(partition_of(answered))
        elif not footing.holds_back(one):
            footing.sent(one)
            under_way.append(one)
        twice = {one for one, times in Counter(under_way).items() if times > 1}
        assert all(partition_of(one) in known for one in twice)
