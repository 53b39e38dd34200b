"""The metrics in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.event import COUNTERS, Counter
from penstock.metrics.health import ailment
from penstock.metrics.tally import ROLES
from penstock.metrics.watch import Sight, Watch
from penstock.text.printable import printable

_Values = Iterable[tuple[tuple[str, ...], float | None]]


def registry(watch: Watch) -> CollectorRegistry:
    """The metrics of the pipelines and of the process."""
    made = CollectorRegistry(auto_describe=False)
    made.register(_Pipelines(watch))
    ProcessCollector(registry=made)
    return made


class _Pipelines(Collector):
    """The metrics at the time of a scrape."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        sights = self._watch.sights()
        yield InfoMetricFamily("penstock", "The program.", value={"version": version("penstock")})
        yield from gauges(sights)
        yield from counters(sights)


def gauges(seen: Sequence[Sight]) -> Iterator[Metric]:
    """The gauges; unknown values are left out."""

    def plain(name: str, said: str, of: Callable[[Sight], float | None]) -> Metric:
        return _family(GaugeMetricFamily, name, said, (), (((one.status.name,), of(one)) for one in seen))

    states = (((one.status.name, role), one.tally.role == role) for one in seen for role in ROLES)
    yield _family(GaugeMetricFamily, "penstock_state", "1 for the role of this process in the pipeline.", ("state",), states)
    yield plain("penstock_healthy", "1 if the pipeline is healthy by /healthz.", lambda one: ailment(one) is None)
    errors = (((one.status.name, code), 1) for one in seen if (code := one.error and one.error[0]))
    yield _family(GaugeMetricFamily, "penstock_error", "1 for the current error.", ("code",), errors)
    yield plain("penstock_epoch", "The number of the last term.", lambda one: one.status.epoch)
    yield plain("penstock_position", "The position up to which all changes are delivered.", lambda one: one.status.position)
    yield plain("penstock_head", "The position of the last change in the source.", lambda one: one.status.head)
    yield plain("penstock_backlog_changes", "Changes between watermark and head.", lambda one: one.status.backlog)
    yield plain("penstock_lag_seconds", "Age of the oldest undelivered change, or 0.", lambda one: one.status.lag_seconds)
    yield plain(
        "penstock_oldest_undelivered_timestamp_seconds",
        "When the oldest undelivered change was committed; absent if there is none.",
        lambda one: _timestamp(one.status.oldest_undelivered),
    )
    yield plain("penstock_progress_age_seconds", "Seconds since the last observed progress.", lambda one: one.idle_seconds)
    yield plain("penstock_delivery_rate", "Current changes per second.", lambda one: one.status.rate)
    yield plain("penstock_dead_changes", "Dead letters: changes that are parked.", lambda one: one.status.dead)
    kept = (((one.status.name, reader.pipeline), reader.kept) for one in seen for reader in one.readers)
    held = "Changes that the source keeps for this reader alone."
    yield _family(GaugeMetricFamily, "penstock_log_held_changes", held, ("reader",), kept)


def counters(seen: Sequence[Sight]) -> Iterator[Metric]:
    """The counters of this process, which the classes of events define."""
    for one in COUNTERS:
        yield _family(CounterMetricFamily, one.name, one.help, (one.label,) if one.label else (), _counted(seen, one))


def _counted(seen: Sequence[Sight], counter: Counter) -> _Values:
    """The counts of each pipeline; a counter without a label starts at 0."""
    for one in seen:
        if counter.label is None:
            yield (one.status.name,), one.tally.counts[counter.name, ""]
            continue
        yield from (((one.status.name, label), times) for (name, label), times in one.tally.counts.items() if name == counter.name)


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, said: str, labels: tuple[str, ...], values: _Values
) -> Metric:
    family = kind(name, said, labels=("pipeline", *labels))
    for texts, value in values:
        if value is not None:
            family.add_metric([*map(printable, texts)], value)
    return family


def _timestamp(moment: str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None
