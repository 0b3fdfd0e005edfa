"""The queue between watches and workers.

It promises: a key waits at most once; a key is never handed out twice before `done`; a key added while it is being
processed is handed out once more afterwards; keys of a higher priority go first, and within one priority the order is
that of arrival. Nothing is lost on cancellation of `get`. It belongs to one event loop and is not thread-safe.

Verbs are client-go's; two priorities are controller-runtime's: what changed runs before the backlog of initial lists
and resyncs.
"""

from __future__ import annotations

import asyncio
import enum
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Generic, TypeVar

from asyncop.aio.backoff import BackoffPolicy
from asyncop.workqueue.timers import Timers

if TYPE_CHECKING:
    from asyncop.metrics.workqueue import QueueMetrics

KeyT = TypeVar("KeyT", bound=Hashable)

DEFAULT_BACKOFF = BackoffPolicy(initial=0.1, maximum=300.0, jitter=0.1)
HOLD_AFTER_FAILURE = 5.0
"""A change of a failing key runs at most once per min(its backoff, this many seconds)."""


class Priority(enum.IntEnum):
    """Which keys go first."""

    BACKLOG = 0
    """Initial lists, resyncs, becoming leader."""
    CHANGE = 1
    """Something happened: a change, a timer, a retry."""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """What the queue is doing now; metrics, tests and people read the same."""

    ready: int
    """Keys that a worker could take now."""
    ready_backlog: int
    """How many of them are of backlog priority."""
    waiting: int
    """Keys with a timer."""
    processing: int
    """Keys handed out and not done."""
    failing: int
    """Keys with failures in a row."""


class WorkQueue(Generic[KeyT]):
    """Keys to process, each once at a time."""

    def __init__(self, backoff: BackoffPolicy = DEFAULT_BACKOFF, metrics: QueueMetrics | None = None) -> None:
        self._backoff, self._metrics = backoff, metrics
        # Durations are taken from the system's clock: the loop's stands still while a worker doesn't await.
        self._ready: dict[Priority, OrderedDict[KeyT, float]] = {priority: OrderedDict() for priority in Priority}
        self._changes, self._backlog = self._ready[Priority.CHANGE], self._ready[Priority.BACKLOG]
        self._processing: dict[KeyT, float] = {}
        self._again: dict[KeyT, Priority] = {}
        self._failures: dict[KeyT, int] = {}
        self._held_until: dict[KeyT, float] = {}
        self._timers: Timers[KeyT] = Timers(self._timer_due)
        self._getters: deque[asyncio.Future[None]] = deque()
        self._is_shut_down = False
        self._idle: asyncio.Event | None = None
        self.adds = 0
        self.retries = 0

    # -- adding

    def add(self, key: KeyT, priority: Priority = Priority.CHANGE) -> None:
        """Let `key` be processed as soon as a worker is free.

        A key that has just failed is held back for min(its backoff, 5 s) after the failure, so that an object that
        changes all the time doesn't turn its backoff off.
        """
        if self._is_shut_down:
            return
        self.adds += 1
        if key in self._processing:
            self._again[key] = max(priority, self._again.get(key, Priority.BACKLOG))
            return
        self._admit(key, priority)

    def add_after(self, key: KeyT, delay: float) -> None:
        """Let `key` be processed `delay` seconds from now; replaces the time it had."""
        if self._is_shut_down:
            return
        if delay <= 0:
            self.add(key)
        else:
            self._timers.set(key, self._now() + delay)

    def add_rate_limited(self, key: KeyT) -> float:
        """Count a failure of `key` and let it be processed again after its backoff; returns that delay in seconds."""
        failures = self._failures.get(key, 0)
        delay = self._backoff.delay(failures)
        self._failures[key] = failures + 1
        self._held_until[key] = self._now() + min(delay, HOLD_AFTER_FAILURE)
        self.retries += 1
        self.add_after(key, delay)
        return delay

    def cancel_timer(self, key: KeyT) -> None:
        """Drop the time set by `add_after` or `add_rate_limited`; what is already ready stays so."""
        self._timers.cancel(key)

    def forget(self, key: KeyT) -> None:
        """Reset the failure count: any success does that, also one that asks for another run."""
        self._failures.pop(key, None)
        self._held_until.pop(key, None)

    def failures(self, key: KeyT) -> int:
        """Failures of `key` in a row."""
        return self._failures.get(key, 0)

    # -- taking

    async def get(self) -> KeyT:
        """Wait for the next key; the caller must call `done` with it.

        If cancelled, no key is lost.

        Raises:
            QueueShutDownError: the queue takes no new work; the worker ends.
        """
        while True:
            if self._is_shut_down:
                raise QueueShutDownError
            key = self._take()
            if key is not None:
                return key
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake_one()  # the wake-up was ours: pass it on
                raise
            finally:
                if not getter.done():
                    getter.cancel()

    def done(self, key: KeyT) -> float:
        """Say that `key` has been processed; returns the seconds it took. Added meanwhile, it is ready again."""
        started = self._processing.pop(key)
        took = perf_counter() - started
        if self._metrics:
            self._metrics.work_duration.observe(took)
        again = self._again.pop(key, None)
        if again is not None and not self._is_shut_down:
            self._admit(key, again)
        if self._idle is not None and not self._processing:
            self._idle.set()
        return took

    # -- ending

    def shut_down(self) -> None:
        """Take no new keys and hand none out: every waiting and later `get` raises QueueShutDownError."""
        self._is_shut_down = True
        self._timers.close()
        while self._getters:
            self._wake_one()

    async def join(self) -> None:
        """Wait until nothing is being processed; of use after `shut_down`. If cancelled, nothing changes."""
        if self._processing:
            self._idle = asyncio.Event()
            await self._idle.wait()

    # -- looking

    def __len__(self) -> int:
        return len(self._changes) + len(self._backlog)

    def is_pending(self, key: KeyT) -> bool:
        """Whether `key` is ready or being processed."""
        return key in self._changes or key in self._backlog or key in self._processing

    def is_processing(self, key: KeyT) -> bool:
        """Whether a worker has `key` now."""
        return key in self._processing

    def due(self, key: KeyT) -> float | None:
        """The loop time at which the key's timer fires, if it has one."""
        return self._timers.get(key)

    def statistics(self) -> QueueStatistics:
        """A snapshot."""
        return QueueStatistics(
            ready=len(self),
            ready_backlog=len(self._backlog),
            waiting=len(self._timers),
            processing=len(self._processing),
            failing=len(self._failures),
        )

    def running(self) -> list[float]:
        """For each key being processed, for how many seconds it has been so."""
        now = perf_counter()
        return [now - since for since in self._processing.values()]

    # -- inside

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _admit(self, key: KeyT, priority: Priority) -> None:
        held_until = self._held_until.get(key)
        if held_until is None or self._now() >= held_until:
            self._make_ready(key, priority)
            return
        due = self._timers.get(key)
        self._timers.set(key, held_until if due is None else min(due, held_until))

    def _timer_due(self, key: KeyT) -> None:
        if key in self._processing:
            self._again[key] = Priority.CHANGE
        else:
            self._make_ready(key, Priority.CHANGE)

    def _make_ready(self, key: KeyT, priority: Priority) -> None:
        if key in self._changes:
            return
        if priority is Priority.CHANGE:
            since = self._backlog.pop(key, None)
            self._changes[key] = perf_counter() if since is None else since
        elif key in self._backlog:
            return
        else:
            self._backlog[key] = perf_counter()
        self._wake_one()

    def _take(self) -> KeyT | None:
        ready = self._changes or self._backlog
        if not ready:
            return None
        key, since = ready.popitem(last=False)
        now = perf_counter()
        if self._metrics:
            self._metrics.queue_duration.observe(now - since)
        self._processing[key] = now
        self._timers.cancel(key)  # a run replaces the key's timer, whatever set it
        return key

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


class QueueShutDownError(Exception):
    """The queue has been shut down: the worker that waited for a key ends."""
