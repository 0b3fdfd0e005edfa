"""The registry, its text form, and the factories for controllers' own metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import Metric

REGISTRY = CollectorRegistry()
RENDER_INTERVAL = 1.0
"""Seconds for which a rendered text is served again, however many ask."""

MetricT = TypeVar("MetricT", Counter, Gauge, Histogram)

_made: dict[str, Counter | Gauge | Histogram] = {}


def counter(name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
    """A counter; asked for again under its name (a module loaded twice), the same one.

    Raises:
        ValueError: the name is taken by a metric of another type or with other labels.
    """
    return _once(Counter, name, doc, labels)


def gauge(name: str, doc: str, labels: Sequence[str] = ()) -> Gauge:
    """A gauge; otherwise like `counter`."""
    return _once(Gauge, name, doc, labels)


def histogram(name: str, doc: str, labels: Sequence[str] = (), buckets: Iterable[float] | None = None) -> Histogram:
    """A histogram; default buckets are prometheus_client's, 5 ms to 10 s. Otherwise like `counter`."""
    if buckets is None:
        return _once(Histogram, name, doc, labels)
    known = _known(Histogram, name, labels)
    if known is None:
        known = _made[name] = Histogram(name, doc, labels, registry=REGISTRY, buckets=tuple(buckets))
    return known


def _once(kind: type[MetricT], name: str, doc: str, labels: Sequence[str]) -> MetricT:
    known = _known(kind, name, labels)
    if known is None:
        known = kind(name, doc, labels, registry=REGISTRY)
        _made[name] = known
    return known


def _known(kind: type[MetricT], name: str, labels: Sequence[str]) -> MetricT | None:
    known = _made.get(name)
    if known is None:
        return None
    if not isinstance(known, kind) or known._labelnames != tuple(labels):
        raise ValueError(
            f"the metric {name} exists already, as a {type(known).__name__.lower()} with labels {known._labelnames}"
        )
    return known


class _WithoutCreated:
    """The registry without the `_created` series that prometheus_client adds to each counter and histogram.

    They double the number of series and nothing reads them.
    """

    def collect(self) -> Iterator[Metric]:
        for metric in REGISTRY.collect():
            if metric.type in ("counter", "histogram", "summary"):
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _Text:
    """The registry's latest text."""

    def __init__(self) -> None:
        self._text = b""
        self._good_until = float("-inf")

    def render(self) -> tuple[bytes, str]:
        now = time.monotonic()
        if now >= self._good_until:
            self._text = generate_latest(_WithoutCreated())
            self._good_until = now + RENDER_INTERVAL
        return self._text, CONTENT_TYPE_PLAIN_0_0_4


_text = _Text()


def render() -> tuple[bytes, str]:
    """All metrics in Prometheus' text format and its content type; at most `RENDER_INTERVAL` old."""
    return _text.render()
