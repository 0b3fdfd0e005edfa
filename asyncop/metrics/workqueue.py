"""The queues of controllers, by client-go's names.

What a queue counts anyway (adds, retries, what waits and runs) is asked of it when somebody scrapes; only the two
durations are told. Priorities are controller-runtime's numbers: `0` for changes, `-100` for initial lists and resyncs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncop.metrics.series import Distributions, Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from asyncop.metrics.series import Read

CHANGE, BACKLOG = "0", "-100"

_LABELS = ("name", "controller")
_BOUNDS = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))  # controller-runtime's: 10 ns to 1000 s

_depth = Readings(
    "gauge",
    "workqueue_depth",
    "Current depth of workqueue by workqueue and priority",
    (*_LABELS, "priority"),
)
_adds = Readings("counter", "workqueue_adds_total", "Total number of adds handled by workqueue", _LABELS)
_retries = Readings("counter", "workqueue_retries_total", "Total number of retries handled by workqueue", _LABELS)
_unfinished = Readings(
    "gauge",
    "workqueue_unfinished_work_seconds",
    "Seconds of work in progress that work_duration has not observed yet. Large values indicate stuck reconciles",
    _LABELS,
)
_longest = Readings(
    "gauge",
    "workqueue_longest_running_processor_seconds",
    "How many seconds has the longest running processor for workqueue been running",
    _LABELS,
)
_queue_duration = Distributions(
    "workqueue_queue_duration_seconds",
    "How long in seconds an item stays in workqueue before being requested",
    _LABELS,
    bounds=_BOUNDS,
)
_work_duration = Distributions(
    "workqueue_work_duration_seconds",
    "How long in seconds processing an item from workqueue takes",
    _LABELS,
    bounds=_BOUNDS,
)


@dataclass(frozen=True, kw_only=True)
class QueueReadings:
    """What a queue answers at a scrape."""

    depth: Callable[[], Mapping[str, int]]
    """Keys ready to be taken, by priority (`CHANGE`, `BACKLOG`)."""
    adds: Callable[[], int]
    retries: Callable[[], int]
    running: Callable[[], Iterable[float]]
    """For each key in process, for how many seconds it has been so."""


class QueueMetrics:
    """One controller's queue. `close` when it ends."""

    def __init__(self, controller: str) -> None:
        self._labels = (controller, controller)
        self._watched: list[tuple[Readings, Read]] = []
        self.queue_duration = _queue_duration.labels(*self._labels)
        """Seconds from ready to taken."""
        self.work_duration = _work_duration.labels(*self._labels)
        """Seconds from taken to done."""

    def watch(self, queue: QueueReadings) -> None:
        """Ask `queue` at each scrape; replaces what another queue of this name answered."""
        labels = self._labels

        def longest() -> float:
            return max(queue.running(), default=0.0)

        self._watch(_depth, lambda: [((*labels, priority), count) for priority, count in queue.depth().items()])
        self._watch(_adds, lambda: [(labels, queue.adds())])
        self._watch(_retries, lambda: [(labels, queue.retries())])
        self._watch(_unfinished, lambda: [(labels, sum(queue.running()))])
        self._watch(_longest, lambda: [(labels, longest())])

    def close(self) -> None:
        """Stop asking. What was counted as a duration stays."""
        for readings, read in self._watched:
            readings.unwatch(self._labels, read)
        self._watched.clear()

    def _watch(self, readings: Readings, read: Read) -> None:
        self._watched.append((readings, read))
        readings.watch(self._labels, read)
