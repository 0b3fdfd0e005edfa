"""Controllers, by controller-runtime's names, and how many objects fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from asyncop.metrics.series import Distributions, Readings, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncop.metrics.series import Read

ReconcileResult = Literal["success", "error", "requeue", "requeue_after"]
_RESULTS: tuple[ReconcileResult, ...] = ("success", "error", "requeue", "requeue_after")

# controller-runtime's buckets
_BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0),
    *(40.0, 50.0, 60.0),
)

_total = Values(
    "counter",
    "controller_runtime_reconcile_total",
    "Total number of reconciliations per controller",
    ("controller", "result"),
)
_errors = Values(
    "counter",
    "controller_runtime_reconcile_errors_total",
    "Total number of reconciliation errors per controller",
    ("controller",),
)
_terminal_errors = Values(
    "counter",
    "controller_runtime_terminal_reconcile_errors_total",
    "Total number of terminal reconciliation errors per controller",
    ("controller",),
)
_time = Distributions(
    "controller_runtime_reconcile_time_seconds",
    "Length of time per reconciliation per controller",
    ("controller",),
    bounds=_BOUNDS,
)
_active_workers = Values(
    "gauge",
    "controller_runtime_active_workers",
    "Number of currently used workers per controller",
    ("controller",),
)
_max_concurrent = Values(
    "gauge",
    "controller_runtime_max_concurrent_reconciles",
    "Maximum number of concurrent reconciles per controller",
    ("controller",),
)
_failing = Readings(
    "gauge",
    "asyncop_objects_failing",
    "Objects whose latest reconcile failed, or that can't be read, by reason",
    ("controller", "reason"),
)


class ControllerMetrics:
    """One controller's metrics, its series looked up once. All results are there from the start, with 0."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._failing: Read | None = None
        self._results = {result: _total.labels(controller, result) for result in _RESULTS}
        self.errors = _errors.labels(controller)
        self.terminal_errors = _terminal_errors.labels(controller)
        """Errors after which a key is given up; they count as errors too."""
        self.time_seconds = _time.labels(controller)
        self.active_workers = _active_workers.labels(controller)
        self.max_concurrent = _max_concurrent.labels(controller)

    def reconcile_total(self, result: ReconcileResult) -> None:
        """Count one reconcile; `error` is counted in `errors` too, as controller-runtime does."""
        self._results[result].value += 1
        if result == "error":
            self.errors.value += 1

    def watch(self, failing: Callable[[], Mapping[str, int]]) -> None:
        """Ask at each scrape how many objects fail, by reason; replaces what another controller of the name says."""
        controller = self._controller
        self._failing = lambda: [((controller, reason), count) for reason, count in failing().items()]
        _failing.watch(controller, self._failing)

    def close(self) -> None:
        """Stop asking."""
        if self._failing is not None:
            _failing.unwatch(self._controller, self._failing)
