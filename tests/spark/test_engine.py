"""The engine without Spark: who waits for a warm-up."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from deadline import PATIENCE, until
from penstock.pipeline import Pipeline
from penstock.sinks.discard import DiscardSink
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
