"""The queue's promises, one a test, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from asyncop.aio.backoff import BackoffPolicy
from asyncop.workqueue import Priority, WorkQueue
from asyncop.workqueue.queue import QueueShutDownError
from asyncop.workqueue.timers import Timers

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

STEADY = BackoffPolicy(initial=1.0, maximum=300.0)


async def test_a_key_added_many_times_waits_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(3):
        queue.add("a")
    assert await queue.get() == "a"
    assert len(queue) == 0


async def test_keys_come_out_in_the_order_of_arrival() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in "cab":
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["c", "a", "b"]


async def test_readd_while_processing_runs_exactly_once_more() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0, "never handed out twice at once"
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_changes_go_before_the_backlog_and_lift_a_key_out_of_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("old 1", Priority.BACKLOG)
    queue.add("old 2", Priority.BACKLOG)
    queue.add("new")
    queue.add("old 2")
    assert [await queue.get() for _ in range(3)] == ["new", "old 2", "old 1"]
    assert len(queue) == 0


async def test_a_delayed_key_comes_when_it_is_due_and_a_later_delay_replaces_the_earlier() -> None:
    queue: WorkQueue[str] = WorkQueue()
    loop = asyncio.get_running_loop()
    started = loop.time()
    queue.add_after("a", 60)
    queue.add_after("a", 10)
    queue.add_after("b", 20)
    assert await queue.get() == "a"
    assert loop.time() - started == pytest.approx(10)
    assert await queue.get() == "b"
    assert loop.time() - started == pytest.approx(20)


async def test_a_cancelled_timer_never_fires() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 1)
    queue.cancel_timer("a")
    queue.add_after("b", 2)
    assert await queue.get() == "b"
    assert len(queue) == 0


async def test_a_run_replaces_the_keys_timer_so_that_it_causes_no_run_of_its_own() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 1)
    queue.add("a")
    await queue.get()
    await asyncio.sleep(2)
    queue.done("a")
    assert len(queue) == 0


async def test_backoff_doubles_up_to_its_maximum_and_success_resets_it() -> None:
    queue: WorkQueue[str] = WorkQueue(STEADY)
    assert [queue.add_rate_limited("a") for _ in range(10)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert queue.failures("a") == 10
    queue.forget("a")
    assert queue.add_rate_limited("a") == 1


async def test_a_change_of_a_failing_key_runs_after_at_most_five_seconds_and_keeps_its_count() -> None:
    queue: WorkQueue[str] = WorkQueue(STEADY)
    loop = asyncio.get_running_loop()
    for _ in range(6):
        queue.add_rate_limited("a")
    failed_at = loop.time()
    queue.add("a")
    assert len(queue) == 0, "held back"
    assert await queue.get() == "a"
    assert loop.time() - failed_at == pytest.approx(5)
    assert queue.failures("a") == 6


async def test_an_often_changing_failing_key_is_not_run_at_once_when_its_run_ends() -> None:
    queue: WorkQueue[str] = WorkQueue(STEADY)
    loop = asyncio.get_running_loop()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add_rate_limited("a")
    failed_at = loop.time()
    queue.done("a")
    assert await queue.get() == "a"
    assert loop.time() - failed_at == pytest.approx(1)


async def test_a_cancelled_get_loses_no_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()  # the wake-up was meant for it
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_shutting_down_ends_waiting_workers_and_hands_out_nothing_more() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.shut_down()
    with pytest.raises(QueueShutDownError):
        await waiting
    queue.add("a")
    queue.add_after("b", 0.1)
    with pytest.raises(QueueShutDownError):
        await queue.get()
    assert len(queue) == 0


async def test_join_waits_for_what_is_being_processed() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.shut_down()
    joined = asyncio.create_task(queue.join())
    await asyncio.sleep(1)
    assert not joined.done()
    queue.done("a")
    await joined


async def test_a_key_that_waits_again_and_again_leaves_no_garbage_behind() -> None:
    timers: Timers[str] = Timers(lambda key: None)
    when = asyncio.get_running_loop().time() + 60
    for _ in range(10_000):
        timers.set("a", when)
    assert len(timers) == 1
    assert timers.entries <= 65


async def test_statistics_tell_what_the_queue_is_doing() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("ready")
    queue.add("backlog", Priority.BACKLOG)
    queue.add_after("waiting", 5)
    queue.add_rate_limited("failing")
    await queue.get()
    statistics = queue.statistics()
    assert (statistics.ready, statistics.ready_backlog, statistics.waiting) == (1, 1, 2)
    assert (statistics.processing, statistics.failing) == (1, 1)
