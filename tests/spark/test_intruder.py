"""Spark's ports give nothing to a process that does not have the secret of the session."""

from __future__ import annotations

from typing import Any

import psutil
from intruder import blocks, ports


def test_no_port_of_spark_gives_a_block_to_a_stranger(spark: Any) -> None:
    assert spark.range(10).repartition(2).count() == 10  # its tasks are broadcast
    listening = ports(psutil.Process(spark.sparkContext._gateway.proc.pid))
    assert len(listening) >= 3  # of the driver, of its blocks, and of its gateway
    assert [len(block) for port in listening for block in blocks(port)] == []
