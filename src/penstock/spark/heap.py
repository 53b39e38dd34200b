"""The size of the heap of the JVM, and of the largest row that it can carry."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.pipeline import Pipeline
from penstock.spark.outsize import HEAP_PER_ROW
from penstock.text.size import GIB, MIB, Bytes

SMALLEST_DEFAULT, LARGEST_DEFAULT = GIB, 4 * GIB

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files with the memory limit of a container."""


def default_heap() -> Bytes:
    """A quarter of the memory of this machine or container, between two limits."""
    return Bytes(max(SMALLEST_DEFAULT, min(LARGEST_DEFAULT, machine_memory() // 4)) // MIB * MIB)


def machine_memory(limits: tuple[str, ...] = _LIMITS) -> int:
    """The memory of this machine or container."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_read(limits)])


def _read(limits: tuple[str, ...]) -> Iterator[int]:
    for path in limits:
        with suppress(OSError, ValueError):  # ValueError: `max`
            yield int(Path(path).read_text())


def heap_settings(memory: int | None, *, is_local: bool) -> Mapping[str, str]:
    """The settings for a heap of this size, on a cluster also for the executors, which carry the rows."""
    size = f"{(memory or default_heap()) // MIB}m"
    return {"spark.driver.memory": size} | ({"spark.executor.memory": size} if memory and not is_local else {})


def heap_of(command: Sequence[str]) -> str:
    """The size of the heap in the command line of a JVM."""
    return next((part.removeprefix("-Xmx") for part in command if part.startswith("-Xmx")), "default size")


def max_row(spark: Any, pipeline: Pipeline) -> Bytes:
    """The size of the largest row that this session may carry."""
    return pipeline.source.max_row or Bytes(_heap_of_session(spark) // HEAP_PER_ROW)


def _heap_of_session(spark: Any) -> int:
    """The heap of the driver with a local master, otherwise of the executors."""
    context = spark.sparkContext
    part = "driver" if str(context.master).startswith("local") else "executor"
    text = spark.conf.get(f"spark.{part}.memory", "1g")
    return int(context._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb(text)) * MIB
