"""The engine without Spark: who waits for a warm-up, and what a trainer leaves behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from deadline import PATIENCE, until
from penstock.coordinators.kafka.coordinator import KafkaCoordinator
from penstock.errors import ConfigInvalid
from penstock.files.sockets import make_folder
from penstock.pipeline import Pipeline
from penstock.sinks.discard.sink import DiscardSink
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sources.synthetic import SyntheticSource
from penstock.spark import engine as module
from penstock.spark.daemon import MODULES
from penstock.spark.engine import Engine


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Engine]:
    """Starts an engine that has no session."""
    monkeypatch.setenv(MODULES, "")
    monkeypatch.setattr(module, "open_session", lambda *_, **__: None)
    monkeypatch.setattr(module, "close_session", lambda _: None)
    pipeline: Any = Pipeline("orders", SyntheticSource(), DiscardSink(), None)  # type: ignore[arg-type]
    return lambda: Engine([pipeline], bool)


def test_who_is_called_does_not_wait_for_a_warm_up_of_another_pipeline(
    start: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, go_on, called, looks = Flag(), Flag(), Flag(), list[None]()

    def hang(*_: object) -> None:
        hangs.set()
        go_on.wait(PATIENCE)

    def is_called() -> bool:
        looks.append(None)
        return called.is_set()

    monkeypatch.setattr(module, "warm", hang)
    engine = start()
    first, second = (Thread(target=engine.warm, args=(is_enough,), daemon=True) for is_enough in (bool, is_called))
    first.start()
    assert hangs.wait(PATIENCE)
    second.start()
    until(lambda: len(looks) > 1)
    assert second.is_alive()
    called.set()
    until(lambda: not second.is_alive())
    go_on.set()
    first.join()
    engine.close()


def test_a_trainer_that_is_killed_leaves_nothing_in_the_temporary_folder(
    start: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/java\nexec cat\n")  # it ends with its input, as Spark's does
    java.chmod(0o755)
    (java.parent.parent / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "TRAINING_SECONDS", 0.0)
    with short_folder() as temporary:
        monkeypatch.setenv("TMPDIR", temporary)
        engine = start()
        until((tmp_path / "java").exists)
        engine.close()
        assert os.listdir(temporary) == []


@contextmanager
def short_folder() -> Iterator[str]:
    """A temporary folder whose path is short enough for sockets."""
    folder = make_folder("penstock-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def test_the_daemon_imports_the_modules_of_the_parts_and_those_that_their_kinds_name() -> None:
    sink = KafkaSink(config={"bootstrap.servers": "a:1"})
    pipeline: Any = Pipeline("orders", SyntheticSource(), sink, KafkaCoordinator("kafka://a:1/state"))
    assert {"penstock.sources.synthetic", "penstock.sinks.kafka.transactional", "confluent_kafka.admin"} <= {
        *module.modules([pipeline])
    }


def test_a_broken_package_that_a_pipeline_does_not_use_does_not_prevent_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Pipeline) -> Any:
        raise ConfigInvalid("the package acme cannot be used")

    monkeypatch.setattr(module.registry, "parts", broken)
    pipeline: Any = Pipeline("orders", SyntheticSource(), DiscardSink(), KafkaCoordinator("kafka://a:1/state"))
    assert "penstock.sources.synthetic" in module.modules([pipeline])
