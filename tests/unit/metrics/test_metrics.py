"""The metrics' names and labels, and who answers for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from asyncop import metrics
from asyncop.metrics import rest_client
from asyncop.metrics.cache import CacheMetrics
from asyncop.metrics.controller import ControllerMetrics
from asyncop.metrics.registry import _Text
from asyncop.metrics.workqueue import BACKLOG, CHANGE, QueueMetrics, QueueReadings

if TYPE_CHECKING:
    from collections.abc import Iterator


def samples() -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Everything that a scrape gives now: name -> labels -> number."""
    text, content_type = _Text().render()
    assert content_type.startswith("text/plain; version=0.0.4")
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(name: str, /, **labels: str) -> float | None:
    return samples().get(name, {}).get(tuple(sorted(labels.items())))


@pytest.fixture
def queue() -> Iterator[QueueMetrics]:
    made = QueueMetrics("q")
    yield made
    made.close()


def readings(depth: int = 0, adds: int = 0, running: tuple[float, ...] = ()) -> QueueReadings:
    return QueueReadings(
        depth=lambda: {CHANGE: depth, BACKLOG: 1}, adds=lambda: adds, retries=lambda: 2, running=lambda: running
    )


LABELS = {
    "controller_runtime_reconcile_total": {"controller", "result"},
    "controller_runtime_reconcile_errors_total": {"controller"},
    "controller_runtime_terminal_reconcile_errors_total": {"controller"},
    "controller_runtime_reconcile_time_seconds_bucket": {"controller", "le"},
    "controller_runtime_active_workers": {"controller"},
    "controller_runtime_max_concurrent_reconciles": {"controller"},
    "workqueue_depth": {"name", "controller", "priority"},
    "workqueue_adds_total": {"name", "controller"},
    "workqueue_retries_total": {"name", "controller"},
    "workqueue_queue_duration_seconds_bucket": {"name", "controller", "le"},
    "workqueue_work_duration_seconds_bucket": {"name", "controller", "le"},
    "workqueue_unfinished_work_seconds": {"name", "controller"},
    "workqueue_longest_running_processor_seconds": {"name", "controller"},
    "rest_client_requests_total": {"code", "method", "host"},
    "rest_client_request_duration_seconds_bucket": {"verb", "host", "le"},
    "asyncop_build_info": {"version", "python", "kubernetes_asyncio"},
    "asyncop_cache_objects": {"resource"},
    "asyncop_cache_bytes": {"resource"},
    "asyncop_watch_restarts_total": {"resource", "reason"},
    "asyncop_watch_failing": {"resource", "namespace", "verb"},
    "asyncop_watch_last_event_timestamp_seconds": {"resource"},
    "asyncop_event_loop_lag_seconds_bucket": {"le"},
    "asyncop_objects_failing": {"controller", "reason"},
    "process_resident_memory_bytes": set(),
    "python_info": {"version", "implementation", "major", "minor", "patchlevel"},
}


def test_names_and_labels_are_those_of_controller_runtime(queue: QueueMetrics) -> None:
    controller, cache = ControllerMetrics("c"), CacheMetrics("pods")
    queue.watch(readings())
    controller.watch(lambda: {"error": 1})
    cache.watch(objects=lambda: 1, raw_bytes=lambda: 2, failing=lambda: [("ns", "list")])
    cache.restarted("410")
    cache.event_seen()
    rest_client.observe("GET", "host:1", "200", 0.1)

    found = samples()

    assert {name: {key for key, _ in next(iter(found.get(name, {(): 0})))} for name in LABELS} == LABELS
    assert not [name for name in found if name.endswith("_created")]
    controller.close()
    cache.close()


def test_an_error_counts_as_a_result_and_as_an_error() -> None:
    controller = ControllerMetrics("errors")
    controller.reconcile_total("success")
    controller.reconcile_total("error")
    controller.terminal_errors.inc()

    assert value("controller_runtime_reconcile_total", controller="errors", result="success") == 1
    assert value("controller_runtime_reconcile_total", controller="errors", result="error") == 1
    assert value("controller_runtime_reconcile_total", controller="errors", result="requeue_after") == 0
    assert value("controller_runtime_reconcile_errors_total", controller="errors") == 1
    assert value("controller_runtime_terminal_reconcile_errors_total", controller="errors") == 1


def test_a_histogram_counts_cumulatively_bounds_included() -> None:
    controller = ControllerMetrics("times")
    for seconds in (0.005, 0.0051, 59, 61):
        controller.time_seconds.observe(seconds)

    name = "controller_runtime_reconcile_time_seconds"
    buckets = {le: value(f"{name}_bucket", controller="times", le=le) for le in ("0.005", "0.01", "60.0", "+Inf")}
    assert buckets == {"0.005": 1, "0.01": 2, "60.0": 3, "+Inf": 4}
    assert value(f"{name}_count", controller="times") == 4
    assert value(f"{name}_sum", controller="times") == pytest.approx(120.0101)


def test_a_queue_is_asked_at_each_scrape(queue: QueueMetrics) -> None:
    queue.watch(readings(depth=3, adds=7, running=(1.5, 2.0)))

    assert value("workqueue_depth", name="q", controller="q", priority="0") == 3
    assert value("workqueue_depth", name="q", controller="q", priority="-100") == 1
    assert value("workqueue_adds_total", name="q", controller="q") == 7
    assert value("workqueue_retries_total", name="q", controller="q") == 2
    assert value("workqueue_unfinished_work_seconds", name="q", controller="q") == 3.5
    assert value("workqueue_longest_running_processor_seconds", name="q", controller="q") == 2.0


def test_an_idle_queue_has_nothing_unfinished(queue: QueueMetrics) -> None:
    queue.watch(readings())

    assert value("workqueue_unfinished_work_seconds", name="q", controller="q") == 0
    assert value("workqueue_longest_running_processor_seconds", name="q", controller="q") == 0


def test_the_newest_queue_of_a_name_answers_and_the_old_ones_end_changes_nothing(queue: QueueMetrics) -> None:
    newer = QueueMetrics("q")
    queue.watch(readings(adds=1))
    newer.watch(readings(adds=2))
    queue.close()

    assert value("workqueue_adds_total", name="q", controller="q") == 2

    newer.close()
    assert value("workqueue_adds_total", name="q", controller="q") is None


def test_informers_of_one_resource_are_added_up_until_they_close() -> None:
    one, other = CacheMetrics("tests.example"), CacheMetrics("tests.example")
    one.watch(objects=lambda: 3, raw_bytes=lambda: 10)
    other.watch(objects=lambda: 4, raw_bytes=lambda: 0)
    assert value("asyncop_cache_objects", resource="tests.example") == 7
    assert value("asyncop_cache_bytes", resource="tests.example") == 10

    one.close()
    assert value("asyncop_cache_objects", resource="tests.example") == 4
    other.close()
    assert value("asyncop_cache_objects", resource="tests.example") is None


def test_the_last_event_has_a_time_once_there_was_one() -> None:
    before = time.time()
    cache = CacheMetrics("events")
    assert value("asyncop_watch_last_event_timestamp_seconds", resource="events") is None

    cache.event_seen()
    assert before <= (value("asyncop_watch_last_event_timestamp_seconds", resource="events") or 0) <= time.time()


def test_failing_objects_are_counted_by_reason_until_the_controller_closes() -> None:
    controller = ControllerMetrics("failing")
    controller.watch(lambda: {"error": 2, "unreadable": 1})
    assert value("asyncop_objects_failing", controller="failing", reason="error") == 2
    assert value("asyncop_objects_failing", controller="failing", reason="unreadable") == 1

    controller.close()
    assert value("asyncop_objects_failing", controller="failing", reason="error") is None


def test_a_controllers_own_metric_is_made_once() -> None:
    first = metrics.counter("test_made_once_total", "Made once", ["reason"])
    first.labels("x").inc()

    assert metrics.counter("test_made_once_total", "Made once", ("reason",)) is first
    assert value("test_made_once_total", reason="x") == 1
    assert value("test_made_once_created", reason="x") is None
    gauge = metrics.gauge("test_made_once_too", "A gauge")
    gauge.set(3)
    assert value("test_made_once_too") == 3
    histogram = metrics.histogram("test_made_once_seconds", "Buckets of its own", buckets=(1, 2))
    assert metrics.histogram("test_made_once_seconds", "Buckets of its own", buckets=(1, 2)) is histogram


def test_a_name_that_is_taken_is_refused() -> None:
    metrics.counter("test_taken_total", "Taken", ["reason"])

    with pytest.raises(ValueError, match="test_taken_total exists already, as a counter with labels"):
        metrics.counter("test_taken_total", "Taken", ["other"])
    with pytest.raises(ValueError, match="test_taken_total exists already"):
        metrics.gauge("test_taken_total", "Taken", ["reason"])
    with pytest.raises(ValueError, match="workqueue_depth"):
        metrics.gauge("workqueue_depth", "Ours")


def test_a_text_is_served_again_for_a_second() -> None:
    text = _Text()
    counter = metrics.counter("test_rendered_total", "Rendered")
    first = text.render()
    counter.inc()

    assert text.render() is not first
    assert text.render()[0] is first[0]
