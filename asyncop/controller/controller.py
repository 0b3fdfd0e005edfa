"""A controller: sources trigger keys, a queue orders them, workers reconcile them.

It promises for every key: a run after each change that reached the store (unless a predicate hides it), one run at a
time, a retry with backoff after a failure. One bad object never stops the others. Workers start when everything that
is read has synced; a namespace that we may not read keeps only its own objects waiting. What is read is `wiring`'s,
when a key runs is `agenda`'s, what a run does is `runner`'s.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

import structlog

from asyncop.api.errors import DecodeError
from asyncop.api.selectors import label_matcher, label_selector
from asyncop.controller.agenda import Agenda
from asyncop.controller.context import Context, Services, regarding_of
from asyncop.controller.finalizer import Finalizers, finalizer_name
from asyncop.controller.reconcile import Failed, FailedPermanently, FailedTemporarily, LeadLost, Outcome, Succeeded
from asyncop.controller.runner import Runner
from asyncop.controller.trigger import PAUSED
from asyncop.controller.wiring import Triggers, Wiring
from asyncop.metrics.controller import ControllerMetrics
from asyncop.workqueue.queue import QueueShutDownError

if TYPE_CHECKING:
    from asyncop.api.request import Request
    from asyncop.api.resource import Resource
    from asyncop.cache.informers import Informers
    from asyncop.cache.store import Delta
    from asyncop.client import Client
    from asyncop.client.wire import Record
    from asyncop.controller.declaration import Reconciler
    from asyncop.controller.recorder import Recorder
    from asyncop.controller.source import Kind

log = structlog.get_logger("asyncop.controller")

SLICE = 0.01  # seconds that one worker may run without letting the loop breathe; probes and watches share it
RESYNC_STEPS = 600


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
        finalizer = finalizer_name(finalizers.operator, declared.name) if declared.finalize_function else ""
        matches = label_matcher(label_selector(declared.labels)) if declared.labels else None
        self._runner = Runner(declared, client, finalizers, finalizer, matches)
        self._wiring = Wiring(declared, client, namespaces, finalizer)
        self._agenda = Agenda(self.name, client.field_manager)
        self._services = Services(self.name, client, self._wiring.stores, recorder, options)
        self._recorder = recorder
        self._metrics = ControllerMetrics(self.name)
        self._unreadable: set[Request] = set()
        self._held: set[Request] = set()  # until a namespace that it needs may be read
        self._triggers = Triggers(
            primary=self._primary_changed,
            source=self._agenda.changed,
            any_delta=self._agenda.forget_own,
            primary_delta=self._track_unreadable,
            more_is_read=self._more_is_read,
        )
        self._prepared = asyncio.Event()
        self.problem = ""
        """Why `prepare` failed last; empty once it has succeeded."""

    # -- set-up

    async def prepare(self, informers: Informers) -> None:
        """Resolve every kind and declare what is read. If it raises, it may be called again.

        Raises:
            NotFoundError: the server doesn't know a kind (yet).
            ForbiddenError, TransportError: it can't be asked.
        """
        await self._wiring.connect(informers, self._triggers)
        self._services.regarding = regarding_of((self.resource.api_version, self.resource.kind))
        self._prepared.set()

    async def prepare_absent(self, informers: Informers) -> bool:
        """Try again for optional kinds that weren't there; whether all are now."""
        await self._wiring.connect_absent(informers, self._triggers)
        return not self._wiring.absent

    @property
    def is_prepared(self) -> bool:
        """Whether every kind has been resolved and declared."""
        return self._prepared.is_set()

    @property
    def kinds(self) -> list[Kind]:
        """Every kind that it declares to watch or to use."""
        return [self.declared.kind, *(source.kind for source in self.declared.sources), *self.declared.uses]

    @property
    def resource(self) -> Resource:
        """What it reconciles; known once it is prepared."""
        return self._wiring.resource

    @property
    def unsynced(self) -> list[str]:
        """Why the controller isn't ready: what it reads that has not synced once, with the latest failure."""
        return self._wiring.unsynced() if self.is_prepared else [self.problem or "kinds not resolved yet"]

    async def wait_synced(self) -> None:
        """Wait until everything that is read has synced once."""
        await self._wiring.wait_synced()

    # -- changes

    def _primary_changed(self, request: Request, delta: Delta) -> None:
        if delta.new is not None:
            self._agenda.primary_changed(request, delta)
        elif delta.old is not None:
            self._forget(request, delta.old)

    def _forget(self, request: Request, old: Record) -> None:
        """The object is gone: nothing of it may outlive it, least of all for one reborn under its name."""
        self._runner.forget(old.metadata.uid)
        last = self._readable(old) if self.declared.gone_function is not None else None
        if last is None:
            self._services.forget(old.metadata.uid)
        self._agenda.gone(request, last)

    def _readable(self, record: Record) -> Any | None:
        try:
            return self._wiring.view.project(record)
        except DecodeError:
            return None

    def _track_unreadable(self, delta: Delta) -> None:
        """An object that doesn't fit its class is told once, in an Event and a metric; its kind goes on."""
        if delta.new is None:
            self._unreadable.discard(delta.request)
            return
        try:
            self._wiring.view.project(delta.new)
        except DecodeError as error:
            if delta.request not in self._unreadable:
                about = self._services.regarding(delta.new)
                self._recorder.record(about, "Unreadable", f"{self.name} can't read it: {error}", "Warning")
            self._unreadable.add(delta.request)
        else:
            self._unreadable.discard(delta.request)

    def _more_is_read(self) -> None:
        """Look again at what was held back."""
        held, self._held = self._held, set()
        for request in held:
            self._agenda.enqueue(request)

    # -- running

    async def run(self) -> None:
        """Reconcile every object, then what changes, until cancelled; after `drain` it only waits for that.

        May be run again after it was cancelled, as when the lead is won back: nothing of the former run is left.
        """
        await self._prepared.wait()
        await self._wiring.wait_settled()
        loop = asyncio.get_running_loop()

        def enqueue(request: Request) -> None:
            loop.call_soon_threadsafe(self._agenda.enqueue, request)

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

    async def drain(self) -> None:
        """Take no new keys and wait until the running ones have ended. If cancelled, they go on."""
        await self._agenda.drain()

    def _begin(self) -> None:
        self._metrics.max_concurrent.set(self.declared.workers)
        self._metrics.watch(failing=lambda: {**self._agenda.failing(), "unreadable": len(self._unreadable)})
        requests = self._wiring.view.requests()
        self._agenda.begin(requests)
        log.info("Started workers", controller=self.name, count=self.declared.workers, objects=len(requests))

    def _end(self) -> None:
        self._agenda.end()
        self._held.clear()
        self._services.memos.clear()
        self._services.applied.clear()
        self._metrics.close()

    async def _work(self) -> None:
        since = perf_counter()
        queue = self._agenda.queue
        while True:
            try:
                request = await queue.get()
            except QueueShutDownError:
                return
            self._metrics.active_workers.inc()
            try:
                await self._process(request)
            finally:
                self._metrics.active_workers.dec()
                self._agenda.done(request)
            if perf_counter() - since > SLICE:
                await asyncio.sleep(0)
                since = perf_counter()

    async def _resync(self) -> None:
        """Look at every object again once a period, a few at a time."""
        period = self.declared.resync
        if not period:
            return
        while True:
            keys = self._wiring.view.requests()
            steps = max(1, min(len(keys), RESYNC_STEPS))
            for step in range(steps):
                await asyncio.sleep(period / steps)
                for request in keys[step::steps]:
                    self._agenda.resync(request)

    async def _process(self, request: Request) -> None:
        if self._agenda.departed(request) is not None and not await self._tell_departed(request):
            return
        view = self._wiring.view
        try:
            obj = view.at(request)
        except DecodeError:
            obj = None  # reported when it entered the store
        if obj is None or self._is_paused(obj):
            self._agenda.nothing_to_do(request)
            return
        if self._wiring.holds_back(request.namespace):
            self._held.add(request)
            return
        ctx = Context(self._services, request, obj, self._agenda.queue.failures(request))
        started = perf_counter()  # not the loop's clock: it stands still while a reconcile doesn't await
        outcome = await self._runner.run(obj, self.resource, ctx)
        self._metrics.time_seconds.observe(perf_counter() - started)
        self._settle(request, obj, outcome, ctx)
        if not view.knows(request):  # it went away meanwhile; what the run remembered of it goes too
            self._services.forget(obj.metadata.uid)
            self._agenda.nothing_to_do(request)

    async def _tell_departed(self, request: Request) -> bool:
        """Run `gone` for what is no longer there; whether all of it has been told."""
        while (last := self._agenda.departed(request)) is not None:
            ctx = Context(self._services, request, last, self._agenda.queue.failures(request))
            outcome = await self._runner.depart(last, ctx)
            if not isinstance(outcome, Succeeded | FailedPermanently):
                self._settle(request, last, outcome, ctx)
                return False
            self._agenda.told(request)
            self._services.forget(last.metadata.uid)
        return True

    def _is_paused(self, obj: Any) -> bool:
        """A pause holds back everything but clean-up, or a paused object could never go."""
        is_cleaned_up = self.declared.finalize_function is not None and obj.metadata.deletion_timestamp is not None
        return obj.metadata.annotations.get(PAUSED) == "true" and not is_cleaned_up

    def _settle(self, request: Request, obj: Any, outcome: Outcome, ctx: Context) -> None:
        """Decide when the key runs again, count how the run ended, and log it if it didn't end well."""
        delay = self._agenda.settle(request, obj.metadata, outcome)
        match outcome:
            case Succeeded():
                self._metrics.reconcile_total("success" if delay is None else "requeue_after")
            case FailedTemporarily(error):
                self._metrics.reconcile_total("requeue_after")
                ctx.log.info("Reconciler asked to be run again", err=str(error), retry_in=delay)
            case FailedPermanently(error):
                self._metrics.reconcile_total("error")
                self._metrics.terminal_errors.inc()
                ctx.log.error("Reconciler gave up until something changes", err=str(error))
            case LeadLost():
                ctx.log.info("Reconciler was refused a write, since the lead may be lost")
            case Failed(error):
                self._metrics.reconcile_total("error")
                retry_in = None if delay is None else round(delay, 2)
                ctx.log.error("Reconciler failed", err=repr(error), retry_in=retry_in, exc_info=error)

    # -- looking

    def state(self) -> dict[str, Any]:
        """What it is doing, for a log line."""
        return {**self._agenda.state(), "unreadable": len(self._unreadable)}

    def describe(self, request: Request) -> dict[str, Any]:
        """What is known of one object and its runs."""
        cached = {"cached": self._wiring.view.knows(request), "unreadable": request in self._unreadable}
        return {**cached, **self._agenda.describe(request)}
