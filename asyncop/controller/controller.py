"""A controller: sources trigger keys, a queue orders them, workers reconcile them.

It promises for every key: a run after each change that reached the store (unless a predicate hides it), one run at a
time, a retry with backoff after a failure. One bad object never stops the others. Workers start when everything that
is read has synced.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

import structlog

from asyncop.api.errors import DecodeError
from asyncop.api.selectors import field_selector, label_matcher, label_selector
from asyncop.cache.informers import Informer, Informers, Scope
from asyncop.controller.context import Context, DeclaredView, Services, Stores, regarding_of
from asyncop.controller.finalizer import Finalizers, finalizer_name
from asyncop.controller.ownership import identity
from asyncop.controller.reconcile import Failed, FailedPermanently, FailedTemporarily, LeadLost, Outcome, Succeeded
from asyncop.controller.runner import Runner
from asyncop.controller.source import Owns, Source, Watch
from asyncop.controller.trigger import Lens, mapped, owner, primary
from asyncop.metrics.controller import ControllerMetrics
from asyncop.metrics.workqueue import BACKLOG, CHANGE, QueueMetrics, QueueReadings
from asyncop.workqueue import Priority, WorkQueue
from asyncop.workqueue.queue import QueueShutDownError

if TYPE_CHECKING:
    from asyncop.api.meta import ObjectMeta
    from asyncop.api.request import Request
    from asyncop.api.resource import Resource
    from asyncop.cache.store import Delta
    from asyncop.cache.view import StoreView
    from asyncop.client import Client
    from asyncop.client.wire import Record
    from asyncop.controller.declaration import Reconciler
    from asyncop.controller.recorder import Recorder
    from asyncop.controller.source import Kind

log = structlog.get_logger("asyncop.controller")

PAUSED = "asyncop.dev/paused"
AFTER_LOST_LEAD = 1.0  # seconds; only if it was a false alarm does anybody still work then
OUTCOMES = 1000  # failures remembered for /debug/objects
SLICE = 0.01  # seconds that one worker may run without letting the loop breathe; probes and watches share it


class Controller:
    """Runs one declared reconciler."""

    def __init__(
        self,
        declared: Reconciler[Any],
        client: Client,
        recorder: Recorder,
        *,
        options: Any = None,
        namespaces: tuple[str, ...] | None = None,
        finalizers: Finalizers,
    ) -> None:
        self.declared = declared
        self.name = declared.name
        self._finalizer = finalizer_name(finalizers.operator, declared.name) if declared.finalize_function else ""
        matches = label_matcher(label_selector(declared.labels)) if declared.labels else None
        self._runner = Runner(declared, client, finalizers, self._finalizer, matches)
        self._client = client
        self._namespaces = namespaces
        self._stores = Stores(self.name)
        self._services = Services(self.name, client, self._stores, recorder, options)
        self._metrics = ControllerMetrics(self.name)
        self._queue_metrics = QueueMetrics(self.name)
        self.queue: WorkQueue[Request] = WorkQueue(metrics=self._queue_metrics)
        self._required: list[Informer] = []
        self._recorder = recorder
        self._given_up: dict[Request, Any] = {}
        self._unreadable: set[Request] = set()
        self._outcomes: dict[Request, str] = {}  # of runs that did not succeed, the latest last
        self._departed: dict[Request, deque[Any]] = {}  # what is gone and not told of yet, oldest first
        self._changed_meanwhile: dict[Request, set[tuple[Request, str]]] = {}  # by running key: (object, version)
        self._view: StoreView[Any]
        self._prepared = asyncio.Event()
        self._is_active = False  # nothing is queued while nobody works: a standby only keeps its caches warm
        self.problem = ""
        """Why `prepare` failed last; empty once it has succeeded."""

    # -- set-up

    async def prepare(self, informers: Informers) -> None:
        """Resolve every kind, declare what is read and subscribe to what triggers.

        If it raises, nothing has been declared and it may be called again.

        Raises:
            NotFoundError: the server doesn't know a kind (yet).
            ForbiddenError, TransportError: it can't be asked.
        """
        declared = self.declared
        resource = await self._client.resolve(declared.kind)
        sources = [(source, await self._client.resolve(source.kind)) for source in declared.sources]
        self._add_primary(informers, resource)
        for source, source_resource in sources:
            self._add_source(informers, source, source_resource, resource)
        self._prepared.set()

    def _add_primary(self, informers: Informers, resource: Resource) -> None:
        declared = self.declared
        view, lens = self._reader(informers, declared, None, resource)
        self._view, self._resource = view, resource
        self._services.regarding = regarding_of((resource.api_version, resource.kind))
        view.subscribe(self._track_unreadable)
        view.subscribe(primary(lens, declared.predicates, self._primary_changed))

    def _add_source(self, informers: Informers, source: Source, resource: Resource, of: Resource) -> None:
        view, lens = self._reader(informers, source, source, resource)
        if isinstance(source, Watch):
            view.subscribe(mapped(lens, source.predicates, source.mapper, self._stores, self._source_changed))
        elif isinstance(source, Owns):
            view.subscribe(owner(lens, source.predicates, of, self._source_changed))

    def _reader(
        self, informers: Informers, declared: Reconciler[Any] | Source, source: Source | None, resource: Resource
    ) -> tuple[StoreView[Any], Lens]:
        """Declare one kind that is read: its informer, its view, and how the view sees changes."""
        informer = self._informer(informers, declared, resource)
        if source is None or not source.optional:
            self._required.append(informer)
        cls = declared.kind if isinstance(declared.kind, type) else None
        view = informer.view(cls, declared.indexes)
        view.subscribe(self._forget_own)
        self._stores.add(declared.kind, source, DeclaredView(view, resource))
        return view, Lens(view, cls, self._client.field_manager)

    def _informer(self, informers: Informers, declared: Reconciler[Any] | Source, resource: Resource) -> Informer:
        namespaces = self._namespaces if declared.namespaces is None else declared.namespaces
        scope = Scope(
            resource,
            tuple(sorted(namespaces)) if namespaces is not None and resource.namespaced else None,
            label_selector(declared.labels),
            field_selector(declared.fields),
        )
        if declared is self.declared and self._finalizer and scope.labels:
            # What leaves the selector, even while we were down, must lose our finalizer: so it has to be seen.
            scope = scope._replace(labels="", match=scope.labels, finalizer=self._finalizer)
        return informers.get(scope)

    # -- triggers

    def _primary_changed(self, request: Request, delta: Delta) -> None:
        if delta.new is None:
            self._forget(request, delta)
            return
        given_up = self._given_up.get(request)
        if given_up is not None and given_up == identity(delta.new.metadata):
            return
        self._add(request, delta)

    def _source_changed(self, request: Request, delta: Delta) -> None:
        self._add(request, delta)

    def _add(self, request: Request, delta: Delta) -> None:
        """Queue the key, or note why it must run once more after the run under way."""
        if not self._is_active:
            return  # every key is queued when the work begins
        self._given_up.pop(request, None)
        if delta.new is not None and self.queue.is_processing(request):
            version = (delta.request, delta.new.metadata.resource_version)
            self._changed_meanwhile.setdefault(request, set()).add(version)
        else:
            self.queue.add(request, Priority.BACKLOG if delta.is_initial else Priority.CHANGE)

    def _forget_own(self, delta: Delta) -> None:
        """What the watch has brought during a run turns out to be what the run itself wrote: no reason to run again."""
        if delta.is_echo and delta.writer == self._client.field_manager and delta.new is not None:
            for versions in self._changed_meanwhile.values():
                versions.discard((delta.request, delta.new.metadata.resource_version))

    def _enqueue(self, request: Request) -> None:
        if self._is_active:
            self._given_up.pop(request, None)
            self.queue.add(request)

    def _forget(self, request: Request, delta: Delta) -> None:
        """The object is gone: nothing of it may outlive it, least of all for one reborn under its name."""
        self.queue.forget(request)
        self.queue.cancel_timer(request)
        self._given_up.pop(request, None)
        if delta.old is None:
            return
        self._runner.forget(delta.old.metadata.uid)
        last = self._readable(delta.old) if self.declared.gone_function and self._is_active else None
        if last is None:
            self._services.forget(delta.old.metadata.uid)
        else:
            self._departed.setdefault(request, deque()).append(last)
            self.queue.add(request)

    def _readable(self, record: Record) -> Any | None:
        try:
            return self._view.project(record)
        except DecodeError:
            return None

    def _track_unreadable(self, delta: Delta) -> None:
        """An object that doesn't fit its class is told once, in an Event and a metric; its kind goes on."""
        if delta.new is None:
            self._unreadable.discard(delta.request)
            return
        try:
            self._view.project(delta.new)
        except DecodeError as error:
            if delta.request not in self._unreadable:
                about = self._services.regarding(delta.new)
                self._recorder.record(about, "Unreadable", f"{self.name} can't read it: {error}", "Warning")
            self._unreadable.add(delta.request)
        else:
            self._unreadable.discard(delta.request)

    # -- running

    @property
    def is_prepared(self) -> bool:
        """Whether every kind has been resolved and declared."""
        return self._prepared.is_set()

    @property
    def unsynced(self) -> list[str]:
        """Why the controller isn't ready: what it reads that has not synced once, with the latest failure."""
        if not self.is_prepared:
            return [self.problem or "kinds not resolved yet"]
        return [
            "; ".join(informer.failures.values()) or f"{informer.scope.resource.group_resource}: first list under way"
            for informer in self._required
            if not informer.is_synced
        ]

    async def wait_synced(self) -> None:
        """Wait until everything that is read has synced once."""
        for informer in self._required:
            await informer.wait_synced()

    async def run(self) -> None:
        """Reconcile every object, then what changes, until cancelled; after `drain` it only waits for that.

        May be run again after it was cancelled, as when the lead is won back: nothing of the former run is left.
        """
        await self._prepared.wait()
        await self.wait_synced()
        loop = asyncio.get_running_loop()

        def enqueue(request: Request) -> None:
            loop.call_soon_threadsafe(self._enqueue, request)

        self._begin()
        self.declared.running.append(enqueue)
        try:
            async with asyncio.TaskGroup() as tasks:
                resync = tasks.create_task(self._resync(), name=f"resync {self.name}")
                workers = [
                    tasks.create_task(self._work(), name=f"worker {self.name} {number}")
                    for number in range(self.declared.workers)
                ]
                await asyncio.wait(workers)
                resync.cancel()
            await asyncio.Event().wait()  # drained: other controllers may still be ending their work
        finally:
            self.declared.running.remove(enqueue)
            self._end()

    def _begin(self) -> None:
        self._is_active = True
        self._publish()
        for request in self._view.requests():
            self.queue.add(request, Priority.BACKLOG)
        log.info("Started workers", controller=self.name, count=self.declared.workers, objects=len(self._view))

    def _end(self) -> None:
        self._is_active = False
        self.queue.shut_down()
        self.queue = WorkQueue(metrics=self._queue_metrics)
        self._given_up.clear()
        self._changed_meanwhile.clear()
        self._departed.clear()
        self._services.memos.clear()
        self._services.applied.clear()
        self._metrics.close()
        self._queue_metrics.close()

    def _publish(self) -> None:
        queue = self.queue
        self._metrics.max_concurrent.set(self.declared.workers)
        self._metrics.watch(
            failing=lambda: {
                "error": queue.statistics().failing,
                "permanent": len(self._given_up),
                "unreadable": len(self._unreadable),
            }
        )
        self._queue_metrics.watch(
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

    @property
    def kinds(self) -> list[Kind]:
        """Every kind that it declares to watch or to use."""
        return [self.declared.kind, *(source.kind for source in self.declared.sources), *self.declared.uses]

    @property
    def resource(self) -> Resource:
        """What it reconciles; known once it is prepared."""
        return self._resource

    def state(self) -> dict[str, Any]:
        """What the queue is doing, for a log line."""
        statistics = self.queue.statistics()
        return {
            "working": self._is_active,
            "ready": statistics.ready,
            "waiting": statistics.waiting,
            "processing": statistics.processing,
            "failing": statistics.failing,
            "given_up": len(self._given_up),
            "unreadable": len(self._unreadable),
        }

    def describe(self, request: Request) -> dict[str, Any]:
        """What is known of one object and its runs."""
        due = self.queue.due(request)
        last = self._outcomes.get(request)
        now = asyncio.get_running_loop().time()
        return {
            "cached": self._view.knows(request),
            "unreadable": request in self._unreadable,
            "queued": self.queue.is_pending(request),
            "running": self.queue.is_processing(request),
            "attempts": self.queue.failures(request),
            "givenUp": request in self._given_up,
            "nextRetryIn": None if due is None else round(max(0.0, due - now), 3),
            "lastResult": last or "success or none",
        }

    async def drain(self) -> None:
        """Take no new keys and wait until the running ones have ended. If cancelled, they go on."""
        self.queue.shut_down()
        await self.queue.join()

    async def _work(self) -> None:
        since = perf_counter()
        while True:
            try:
                request = await self.queue.get()
            except QueueShutDownError:
                return
            self._metrics.active_workers.inc()
            try:
                await self._process(request)
            finally:
                self._metrics.active_workers.dec()
                if self._changed_meanwhile.pop(request, None):
                    self.queue.add(request)
                self.queue.done(request)
            if perf_counter() - since > SLICE:
                await asyncio.sleep(0)
                since = perf_counter()

    async def _resync(self) -> None:
        """Look at every object again once a period, a few at a time; what has given up stays given up."""
        period = self.declared.resync
        if not period:
            return
        while True:
            keys = self._view.requests()
            steps = max(1, min(len(keys), 600))
            for step in range(steps):
                await asyncio.sleep(period / steps)
                for request in keys[step::steps]:
                    if request not in self._given_up:
                        self.queue.add(request, Priority.BACKLOG)

    async def _process(self, request: Request) -> None:
        if not await self._tell_departed(request):
            return
        try:
            obj = self._view.at(request)
        except DecodeError:
            obj = None  # reported when it entered the store
        if obj is None or self._is_paused(obj):
            self.queue.forget(request)
            self.queue.cancel_timer(request)
            return
        ctx = Context(self._services, request, obj, self.queue.failures(request))
        started = perf_counter()  # not the loop's clock: it stands still while a reconcile doesn't await
        outcome = await self._runner.run(obj, self._resource, ctx)
        self._metrics.time_seconds.observe(perf_counter() - started)
        self._settle(request, obj.metadata, outcome, ctx)
        if not self._view.knows(request):  # it went away meanwhile; what the run remembered of it goes too
            self._services.forget(obj.metadata.uid)

    async def _tell_departed(self, request: Request) -> bool:
        """Run `gone` for what is no longer there; whether all of it has been told."""
        departed = self._departed.get(request)
        while departed:
            last = departed[0]
            ctx = Context(self._services, request, last, self.queue.failures(request))
            outcome = await self._runner.depart(last, ctx)
            if not isinstance(outcome, Succeeded | FailedPermanently):
                self._settle(request, last.metadata, outcome, ctx)
                return False
            departed.popleft()
            self._services.forget(last.metadata.uid)
        self._departed.pop(request, None)
        return True

    def _is_paused(self, obj: Any) -> bool:
        """A pause holds back everything but clean-up, or a paused object could never go."""
        is_cleaned_up = self.declared.finalize_function is not None and obj.metadata.deletion_timestamp is not None
        return obj.metadata.annotations.get(PAUSED) == "true" and not is_cleaned_up

    def _remember(self, request: Request, outcome: Outcome) -> None:
        """Keep what people ask for when an object doesn't do what it should: how its last run ended."""
        self._outcomes.pop(request, None)
        if not isinstance(outcome, Succeeded):
            self._outcomes[request] = repr(getattr(outcome, "error", outcome))
            if len(self._outcomes) > OUTCOMES:
                del self._outcomes[next(iter(self._outcomes))]

    def _settle(self, request: Request, metadata: ObjectMeta, outcome: Outcome, ctx: Context) -> None:
        """Decide when the key runs again."""
        self._remember(request, outcome)
        match outcome:
            case Succeeded(requeue_after):
                self.queue.forget(request)
                if requeue_after is None:
                    self.queue.cancel_timer(request)
                else:
                    self.queue.add_after(request, requeue_after)
                self._metrics.reconcile_total("success" if requeue_after is None else "requeue_after")
            case FailedTemporarily(error):
                self.queue.add_after(request, error.delay)
                self._metrics.reconcile_total("requeue_after")
                ctx.log.info("Reconciler asked to be run again", err=str(error), retry_in=error.delay)
            case FailedPermanently(error):
                self.queue.forget(request)
                self.queue.cancel_timer(request)
                self._given_up[request] = identity(metadata)
                self._metrics.reconcile_total("error")
                self._metrics.terminal_errors.inc()
                ctx.log.error("Reconciler gave up until something changes", err=str(error))
            case LeadLost():
                self.queue.add_after(request, AFTER_LOST_LEAD)
            case Failed(error):
                delay = self.queue.add_rate_limited(request)
                self._metrics.reconcile_total("error")
                ctx.log.error("Reconciler failed", err=repr(error), retry_in=round(delay, 2), exc_info=error)
