"""The contract of a sink, over every kind. A new kind adds a rig to sink_rigs.py and a class here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sink_rigs import BarrierRig, DiscardRig, KafkaRig, MemoryRig, WebhookRig

from deadline import PATIENCE
from penstock.sinks.kafka import group_watermark, transactional
from penstock.testing import contract
from penstock.testing.receiver import Receiver
from servers.broker import Broker


class TestDiscard(contract.SinkContract):
    @pytest.fixture
    def rig(self) -> DiscardRig:
        return DiscardRig()


class TestTransportInMemory(contract.RetryContract, contract.PoisonContract):
    patience = PATIENCE

    @pytest.fixture(params=[1, 4], ids="{} at a time".format)
    def rig(self, request: pytest.FixtureRequest) -> MemoryRig:
        return MemoryRig(request.param)


class TestWebhook(contract.RetryContract, contract.PoisonContract):
    patience = PATIENCE

    @pytest.fixture(params=[False, True], ids=["sound", "fails half the time"])
    def fails(self, request: pytest.FixtureRequest) -> bool:
        return request.param

    @pytest.fixture(params=[1, 4], ids="{} at a time".format)
    def rig(self, request: pytest.FixtureRequest, fails: bool) -> Iterator[WebhookRig]:
        with Receiver() as receiver:
            yield WebhookRig(receiver, request.param, fails=fails)


class TestKafka(contract.SinkContract):
    patience = PATIENCE

    @pytest.fixture(params=["at-least-once", "exactly-once", "barrier"])
    def rig(self, request: pytest.FixtureRequest, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaRig:
        for module, limit in ((transactional, "STUCK_SECONDS"), (transactional, "STALL_SECONDS"), (group_watermark, "PATIENCE")):
            monkeypatch.setattr(module, limit, PATIENCE)
        return BarrierRig(broker, tmp_path) if request.param == "barrier" else KafkaRig(broker, request.param)
