"""Which keys must run, and when: the queue of one controller and what is remembered around it.

Nothing is queued while nobody works (a standby only keeps its caches warm); `begin` queues every key. A change during a
run causes one more run, unless it turns out to be what the run itself wrote. What was given up waits for a change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from asyncop.api.errors import TooManyRequestsError
from asyncop.controller.ownership import identity
from asyncop.controller.reconcile import Failed, FailedPermanently, FailedTemporarily, LeadLost, Outcome, Succeeded
from asyncop.metrics.workqueue import BACKLOG, CHANGE, QueueMetrics, QueueReadings
from asyncop.workqueue import Priority, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncop.api.meta import ObjectMeta
    from asyncop.api.request import Request
    from asyncop.cache.store import Delta

AFTER_LOST_LEAD = 1.0  # seconds; only if it was a false alarm does anybody still work then
OUTCOMES = 1000  # failures remembered for whoever asks


class Agenda:
    """The keys of one controller. `writer` is its field manager."""

    def __init__(self, controller: str, writer: str) -> None:
        self._writer = writer
        self._metrics = QueueMetrics(controller)
        self.queue: WorkQueue[Request] = WorkQueue(metrics=self._metrics)
        self.is_active = False
        self._is_ending = False
        self._given_up: dict[Request, Any] = {}
        self._changed_meanwhile: dict[Request, set[tuple[Request, str]]] = {}  # by running key: (object, version)
        self._departed: dict[Request, deque[Any]] = {}  # what is gone and not told of yet, oldest first
        self._outcomes: dict[Request, str] = {}  # of runs that did not succeed, the latest last

    # -- the work begins and ends

    def begin(self, requests: Iterable[Request]) -> None:
        """Queue every key, as backlog, and take changes from now on; after `drain` nothing is taken any more."""
        self.is_active = True
        if self._is_ending:
            self.queue.shut_down()
        self._publish()
        for request in requests:
            self.queue.add(request, Priority.BACKLOG)

    def end(self) -> None:
        """Forget everything; whoever waits for a key is told that there are no more."""
        self.is_active = False
        self.queue.shut_down()
        self.queue = WorkQueue(metrics=self._metrics)
        for remembered in (self._given_up, self._changed_meanwhile, self._departed, self._outcomes):
            remembered.clear()
        self._metrics.close()

    async def drain(self) -> None:
        """Hand out nothing more, ever, and wait until the running keys are done. If cancelled, they go on."""
        self._is_ending = True
        self.queue.shut_down()
        await self.queue.join()

    # -- what happens

    def primary_changed(self, request: Request, delta: Delta) -> None:
        """An object of the controller's own kind appeared or changed."""
        given_up = self._given_up.get(request)
        if given_up is None or delta.new is None or given_up != identity(delta.new.metadata):
            self.changed(request, delta)

    def changed(self, request: Request, delta: Delta) -> None:
        """Something that concerns the key changed: queue it, or note that it must run once more after its run."""
        if not self.is_active:
            return
        self._given_up.pop(request, None)
        if delta.new is not None and self.queue.is_processing(request):
            version = (delta.request, delta.new.metadata.resource_version)
            self._changed_meanwhile.setdefault(request, set()).add(version)
        else:
            self.queue.add(request, Priority.BACKLOG if delta.is_initial else Priority.CHANGE)

    def forget_own(self, delta: Delta) -> None:
        """What the watch has brought during a run turns out to be what the run itself wrote: no reason to run again."""
        if delta.is_echo and delta.writer == self._writer and delta.new is not None:
            for versions in self._changed_meanwhile.values():
                versions.discard((delta.request, delta.new.metadata.resource_version))

    def enqueue(self, request: Request) -> None:
        """Somebody asks for a run."""
        if self.is_active:
            self._given_up.pop(request, None)
            self.queue.add(request)

    def resync(self, request: Request) -> None:
        """Look at it again some time; what has given up stays given up."""
        if request not in self._given_up:
            self.queue.add(request, Priority.BACKLOG)

    def gone(self, request: Request, last: Any | None) -> None:
        """The object is gone: nothing of its key outlives it. `last` is what has still to be told of."""
        self.nothing_to_do(request)
        if last is not None and self.is_active:
            self._departed.setdefault(request, deque()).append(last)
            self.queue.add(request)

    def departed(self, request: Request) -> Any | None:
        """The oldest former object of the key that is not told of yet."""
        waiting = self._departed.get(request)
        return waiting[0] if waiting else None

    def told(self, request: Request) -> None:
        """The oldest has been told of."""
        self._departed[request].popleft()
        if not self._departed[request]:
            del self._departed[request]

    # -- a run ends

    def done(self, request: Request) -> None:
        """A worker is through with the key."""
        if self._changed_meanwhile.pop(request, None):
            self.queue.add(request)
        self.queue.done(request)

    def nothing_to_do(self, request: Request) -> None:
        """There is nothing to run for the key now, and nothing to remember of its runs."""
        self.queue.forget(request)
        self.queue.cancel_timer(request)
        self._given_up.pop(request, None)
        self._outcomes.pop(request, None)

    def settle(self, request: Request, metadata: ObjectMeta, outcome: Outcome) -> float | None:
        """Decide when the key runs again; returns the delay in seconds if it does by itself."""
        self._remember(request, outcome)
        delay: float | None = None
        match outcome:
            case Succeeded(delay):
                self.queue.forget(request)
            case FailedTemporarily(error):
                delay = error.delay
            case FailedPermanently():
                self.queue.forget(request)
                self._given_up[request] = identity(metadata)
            case LeadLost():
                delay = AFTER_LOST_LEAD
            case Failed(error):
                delay = self.queue.add_rate_limited(request)
                if isinstance(error, TooManyRequestsError) and (error.retry_after or 0) > delay:
                    delay = error.retry_after or delay
                    self.queue.add_after(request, delay)
                return delay
        if delay is None:
            self.queue.cancel_timer(request)
        else:
            self.queue.add_after(request, delay)
        return delay

    def _remember(self, request: Request, outcome: Outcome) -> None:
        """Keep how the last run ended, if not well: that is what people ask for."""
        self._outcomes.pop(request, None)
        if not isinstance(outcome, Succeeded):
            self._outcomes[request] = repr(getattr(outcome, "error", outcome))
            if len(self._outcomes) > OUTCOMES:
                del self._outcomes[next(iter(self._outcomes))]

    # -- looking

    def failing(self) -> dict[str, int]:
        """How many keys fail, by reason."""
        return {"error": self.queue.statistics().failing, "permanent": len(self._given_up)}

    def state(self) -> dict[str, Any]:
        """What the queue is doing, for a log line."""
        statistics = self.queue.statistics()
        return {
            "working": self.is_active,
            "ready": statistics.ready,
            "waiting": statistics.waiting,
            "processing": statistics.processing,
            "failing": statistics.failing,
            "given_up": len(self._given_up),
        }

    def describe(self, request: Request) -> dict[str, Any]:
        """What is known of one key and its runs."""
        due = self.queue.due(request)
        now = asyncio.get_running_loop().time()
        return {
            "queued": self.queue.is_pending(request),
            "running": self.queue.is_processing(request),
            "attempts": self.queue.failures(request),
            "givenUp": request in self._given_up,
            "nextRetryIn": None if due is None else round(max(0.0, due - now), 3),
            "lastResult": self._outcomes.get(request, "success or none"),
        }

    def _publish(self) -> None:
        queue = self.queue
        self._metrics.watch(
            QueueReadings(
                depth=lambda: {
                    CHANGE: queue.statistics().ready - queue.statistics().ready_backlog,
                    BACKLOG: queue.statistics().ready_backlog,
                },
                adds=lambda: queue.adds,
                retries=lambda: queue.retries,
                running=queue.running,
            )
        )
