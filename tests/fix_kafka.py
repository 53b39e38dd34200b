"""One Kafka broker for all tests that need one; a test that stops it starts it again. Topics are each test's own."""

from collections.abc import Iterator

import pytest

from penstock.testing.broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started
