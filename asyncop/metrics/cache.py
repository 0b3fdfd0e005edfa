"""Stores and watches, by resource."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from asyncop.metrics.series import Readings, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncop.metrics.series import Read, Value

_objects = Readings("gauge", "asyncop_cache_objects", "Objects in the cache", ("resource",))
_bytes = Readings(
    "gauge",
    "asyncop_cache_bytes",
    "Bytes of objects kept as they came, for untyped readers; typed projections are not in it",
    ("resource",),
)
_restarts = Values(
    "counter",
    "asyncop_watch_restarts_total",
    "Watches that ended and were opened again, by reason",
    ("resource", "reason"),
)
_failing = Readings(
    "gauge",
    "asyncop_watch_failing",
    "1 while what is read of a resource can't be listed or watched; the namespace is empty for a whole cluster",
    ("resource", "namespace", "verb"),
)
_last_event = Values(
    "gauge",
    "asyncop_watch_last_event_timestamp_seconds",
    "When a watch last delivered something, bookmarks included, as seconds since the epoch",
    ("resource",),
)


class CacheMetrics:
    """One informer's metrics. Those of several informers of one resource (other selectors) are added up."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._last_event: Value | None = None  # there from the first event on: 0 would look like a watch dead for years
        self._watched: list[tuple[Readings, Read]] = []

    def event_seen(self) -> None:
        """The watch delivered something."""
        if self._last_event is None:
            self._last_event = _last_event.labels(self._resource)
        self._last_event.value = time.time()

    def restarted(self, reason: str) -> None:
        """A watch ended and is opened again."""
        _restarts.labels(self._resource, reason).inc()

    def watch(
        self,
        *,
        objects: Callable[[], int],
        raw_bytes: Callable[[], int],
        failing: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        """Ask at each scrape how much the store holds, and which (namespace, verb) fails right now."""
        labels = (self._resource,)
        self._watch(_objects, lambda: [(labels, objects())])
        self._watch(_bytes, lambda: [(labels, raw_bytes())])
        self._watch(_failing, lambda: [((self._resource, *where), 1) for where in failing()])

    def close(self) -> None:
        """Stop asking."""
        for readings, read in self._watched:
            readings.unwatch(self, read)
        self._watched.clear()

    def _watch(self, readings: Readings, read: Read) -> None:
        self._watched.append((readings, read))
        readings.watch(self, read)
