"""One operator at work on a reached API server: caches, controllers, tasks, Events, and the lead.

Caches fill whether we lead or not, so a standby is warm and ready. What acts (workers, tasks of the leader) runs only
while we lead, or always where there is no election. When the lead is lost it is cancelled at once; what still runs
`STOP_LIMIT` seconds later can't be stopped, and the process has to end.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from asyncop.aio.backoff import Backoff, BackoffPolicy
from asyncop.api.errors import AsyncopError, ConfigError
from asyncop.cache.informers import Informers
from asyncop.controller import Controller, Reconciler, Recorder, Task
from asyncop.controller.finalizer import Finalizers, finalizer_name
from asyncop.manager.exit import EXIT_LEAD_LOST, end_at_once
from asyncop.manager.leader import LeaderElector
from asyncop.manager.permissions import check_permissions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from asyncop.cache.informers import Informer
    from asyncop.client import Client
    from asyncop.manager.options import ManagerOptions

log = structlog.get_logger("asyncop.manager")

STOP_LIMIT = 5.0
FLUSH_TIMEOUT = 5.0
RETRY = BackoffPolicy(initial=1.0, maximum=30.0, jitter=0.2)  # of kinds that are not there yet


class CoreTaskEndedError(AsyncopError):
    """A task that must run for the operator's life has returned."""


class Operation:
    """What runs between reaching the API server and the end. `run` once; `drain` before it is cancelled."""

    def __init__(
        self,
        client: Client,
        options: ManagerOptions,
        reconcilers: Iterable[Reconciler[Any]],
        tasks: Iterable[Task[Any]],
        controller_options: Mapping[str, Any],
    ) -> None:
        election = options.leader_election
        self._elector = LeaderElector(client, election) if election else None
        self._client = client.gated(self._elector.gate) if self._elector else client
        self._ungated, self._namespaces = client, options.namespaces
        self._owns_process = options.owns_process
        self._recorder = Recorder(self._client, options.name)
        self._informers = Informers(client)
        self._tasks = list(tasks)
        self.is_started = False
        declared_here = list(reconcilers)
        wanted = (
            finalizer_name(options.name, declared.name) for declared in declared_here if declared.finalize_function
        )
        finalizers = Finalizers(options.name, frozenset(wanted))
        self._controllers = [
            Controller(
                declared,
                self._client.bound(field_manager=f"{options.name}.{declared.name}"),
                self._recorder,
                options=controller_options.get(declared.name) or (declared.options and declared.options()),
                namespaces=options.namespaces,
                finalizers=finalizers,
            )
            for declared in declared_here
        ]

    async def run(self) -> None:
        """Work until cancelled. Then everything is cancelled, Events are posted, and the lease is released last.

        Raises:
            ConfigError: what was declared makes no sense on this server.
            ExceptionGroup: a core task or a user's task has failed.
        """
        try:
            async with asyncio.TaskGroup() as group:
                _spawn(group, "event recorder", self._recorder.run)
                await self._start_caches(group)
                for task in self._tasks:
                    if not task.leader:
                        group.create_task(self._user_task(task), name=f"task {task.name}")
                _spawn(group, "lead", self._lead if self._elector is None else partial(self._campaign, self._elector))
                if self._owns_process:
                    group.create_task(self._freeze_caches(), name="freeze caches")
                permissions = check_permissions(self._ungated, self._controllers, self._namespaces)
                group.create_task(permissions, name="check permissions")
                self.is_started = True
        finally:
            await self._recorder.flush(FLUSH_TIMEOUT)
            if self._elector is not None:
                await self._elector.release()

    @property
    def controllers(self) -> list[Controller]:
        """All of them, at work or not."""
        return self._controllers

    @property
    def informers(self) -> list[Informer]:
        """Every watch's."""
        return list(self._informers)

    async def drain(self) -> None:
        """Take no new work and wait until running reconciles have ended. The lead is kept meanwhile."""
        await asyncio.gather(*(controller.drain() for controller in self._controllers))

    @property
    def unready(self) -> list[str]:
        """What has not synced yet, by controller."""
        return [f"{controller.name}: {reason}" for controller in self._controllers for reason in controller.unsynced]

    # -- caches

    async def _start_caches(self, group: asyncio.TaskGroup) -> None:
        """Prepare all controllers, so that they share watches, then start those; a missing kind's follow later."""
        for controller in self._controllers:
            await self._prepare(controller)
        self._start_informers(group)
        for controller in self._controllers:
            group.create_task(self._prepare_late(group, controller), name=f"waiting {controller.name}")

    async def _prepare(self, controller: Controller) -> None:
        try:
            await controller.prepare(self._informers)
        except ConfigError:
            raise
        except AsyncopError as error:
            if controller.problem != str(error):  # told once: a kind may be missing for ever
                log.warning("Controller waits for a kind", controller=controller.name, err=str(error))
            controller.problem = str(error)

    async def _prepare_late(self, group: asyncio.TaskGroup, controller: Controller) -> None:
        backoff = Backoff(RETRY, reset_after=float("inf"))
        while not await self._is_complete(controller):
            await asyncio.sleep(backoff.next(asyncio.get_running_loop().time()))
            if not controller.is_prepared:
                await self._prepare(controller)
            self._start_informers(group)
        self._start_informers(group)

    async def _is_complete(self, controller: Controller) -> bool:
        """Whether everything that the controller reads is connected, optional kinds included."""
        try:
            return controller.is_prepared and await controller.prepare_absent(self._informers)
        except AsyncopError:
            return False

    def _start_informers(self, group: asyncio.TaskGroup) -> None:
        for informer in self._informers.unstarted():
            _spawn(group, f"informer {informer.scope.resource.group_resource}", informer.start())

    async def _freeze_caches(self) -> None:
        """Once the caches are full, take what lives for ever out of the garbage collector's sight.

        A collection of the oldest generation would otherwise walk the stores' dicts again and again, for nothing.
        """
        for controller in self._controllers:
            if controller.is_prepared:
                await controller.wait_synced()
        gc.collect()
        gc.freeze()

    # -- the lead

    async def _lead(self) -> None:
        """What only one replica may do."""
        async with asyncio.TaskGroup() as work:
            for task in self._tasks:
                if task.leader:
                    work.create_task(self._user_task(task), name=f"task {task.name}")
            for controller in self._controllers:
                _spawn(work, f"controller {controller.name}", controller.run)
            await asyncio.Event().wait()  # also with nothing to do: a lead ends by being cancelled

    async def _campaign(self, elector: LeaderElector) -> None:
        """Campaign, lead, and after a lost lead campaign again, for ever."""
        while True:
            await elector.acquire()
            async with asyncio.TaskGroup() as group:
                holding = group.create_task(elector.hold(), name="lease")
                work = group.create_task(self._lead(), name="leading")
                await asyncio.wait({holding, work}, return_when=asyncio.FIRST_COMPLETED)
                await self._stop(work)

    @staticmethod
    async def _stop(work: asyncio.Task[None]) -> None:
        """End the work of a lead that is lost; if it can't be stopped, end the process."""
        work.cancel()
        await asyncio.wait({work}, timeout=STOP_LIMIT)
        if not work.done():
            log.critical("Work of a lost lead goes on after its cancellation", seconds=STOP_LIMIT)
            end_at_once(EXIT_LEAD_LOST)

    async def _user_task(self, task: Task[Any]) -> None:
        function: Callable[..., Awaitable[None]] = task.function
        takes_client = bool(inspect.signature(function).parameters)
        try:
            await (function(self._client) if takes_client else function())
        except Exception:
            log.critical("Task failed, so the operator stops", task=task.name)
            raise


def _spawn(group: asyncio.TaskGroup, name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run a core task: one that ends by itself is a defect and ends all."""

    async def core() -> None:
        await work()
        raise CoreTaskEndedError(f"{name} has ended")

    group.create_task(core(), name=name)
