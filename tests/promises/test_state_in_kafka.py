"""Terms and watermarks in Kafka, on the whole path."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from fix_rig import Rig
from penstock.coordinators.kafka.log import GONE_SECONDS
from penstock.testing.broker import Broker


def test_brokers_that_are_away_for_longer_than_a_session_are_waited_for(breakable_broker: Broker, tmp_path: Path) -> None:
    state = f"kafka://{breakable_broker.servers}/state-{uuid.uuid4().hex[:8]}?session-timeout=6s"
    with Rig(tmp_path, state=state) as rig:
        program = rig.start()
        rig.until_delivered(rig.shop.sell(20))
        breakable_broker.kill()
        program.until_event("TermGone")
        rig.shop.sell(20)
        time.sleep(GONE_SECONDS + 3)  # the length of the fault
        breakable_broker.start()
        rig.until_settled()
        assert rig.breaches() == []
        assert program.terminate() == 0
        assert not program.events("Halted")
