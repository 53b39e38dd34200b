"""The metrics by name, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.event import COUNTERS, Counter
from penstock.metrics.health import ailment
from penstock.metrics.tally import ROLES
from penstock.metrics.watch import Sight, Watch
from penstock.printable import printable

_Values = Iterable[tuple[tuple[str, ...], float | None]]


def registry(watch: Watch) -> CollectorRegistry:
    """What is served: the pipelines, and the process itself."""
    made = CollectorRegistry(auto_describe=False)
    made.register(_Pipelines(watch))
    ProcessCollector(registry=made)
    return made


class _Pipelines(Collector):
    """Made anew for each scrape from what was seen."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        sights = self._watch.sights()
        yield InfoMetricFamily("penstock", "The program.", value={"version": version("penstock")})
        yield from gauges(sights)
        yield from counters(sights)


def gauges(sights: Iterable[Sight]) -> Iterator[Metric]:
    """How things are. What nobody knows is left out."""
    seen = list(sights)

    def plain(name: str, said: str, of: Callable[[Sight], float | None]) -> Metric:
        return _gauge(name, said, (), (((one.status.name,), of(one)) for one in seen))

    states = (((one.status.name, role), one.tally.role == role) for one in seen for role in ROLES)
    yield _gauge("penstock_state", "1 for what this process is to the pipeline.", ("state",), states)
    yield plain("penstock_healthy", "Whether /healthz calls it well.", lambda one: ailment(one) is None)
    errors = (((one.status.name, code), 1) for one in seen if (code := one.error and one.error[0]))
    yield _gauge("penstock_error", "1 for the error that has not passed yet.", ("code",), errors)
    yield plain("penstock_epoch", "The number of the last term.", lambda one: one.status.epoch)
    yield plain("penstock_position", "Everything up to here is delivered.", lambda one: one.status.position)
    yield plain("penstock_head", "The last change in the source.", lambda one: one.status.head)
    yield plain("penstock_backlog_changes", "Changes between the two.", lambda one: one.status.backlog)
    yield plain("penstock_lag_seconds", "Age of the oldest undelivered change, or 0.", lambda one: one.status.lag_seconds)
    yield plain(
        "penstock_oldest_undelivered_timestamp_seconds",
        "When the oldest undelivered change was committed; absent if there is none.",
        lambda one: _timestamp(one.status.oldest_undelivered),
    )
    yield plain("penstock_progress_age_seconds", "Since it was seen to get on.", lambda one: one.idle_seconds)
    yield plain("penstock_delivery_rate", "Changes per second, just now.", lambda one: one.status.rate)
    yield plain("penstock_dead_changes", "Dead letters: changes that are parked.", lambda one: one.status.dead)
    kept = (((one.status.name, reader.pipeline), reader.kept) for one in seen for reader in one.readers)
    yield _gauge("penstock_log_held_changes", "Changes that the source keeps for this reader alone.", ("reader",), kept)


def counters(sights: Iterable[Sight]) -> Iterator[Metric]:
    """What this process has done since it began, as the classes of the events say."""
    seen = list(sights)
    return (_counter(one.name, one.help, (one.label,) if one.label else (), _counted(seen, one)) for one in COUNTERS)


def _counted(seen: Iterable[Sight], counter: Counter) -> _Values:
    """The counts of each pipeline; without a label there is always one."""
    for one in seen:
        if counter.label is None:
            yield (one.status.name,), one.tally.counts[counter.name, ""]
            continue
        yield from (((one.status.name, label), times) for (name, label), times in one.tally.counts.items() if name == counter.name)


def _gauge(name: str, said: str, labels: tuple[str, ...], values: _Values) -> Metric:
    return _filled(GaugeMetricFamily(name, said, labels=("pipeline", *labels)), values)


def _counter(name: str, said: str, labels: tuple[str, ...], values: _Values) -> Metric:
    return _filled(CounterMetricFamily(name, said, labels=("pipeline", *labels)), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: _Values) -> Metric:
    for labels, value in values:
        if value is not None:
            family.add_metric([*map(printable, labels)], value)
    return family


def _timestamp(moment: str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None
