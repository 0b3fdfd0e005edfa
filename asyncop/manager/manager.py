"""The manager: starts everything in order, supervises it, and ends it in order.

Start: health server, API server reached, kinds resolved, informers, then each controller's workers once what it reads
has synced. A kind that the server doesn't know, or refuses, keeps only its own controller waiting.

End (SIGTERM, SIGINT): not ready; queues hand out nothing more; running reconciles end within `graceful_timeout`, else
they are cancelled; Events are flushed; connections and servers close. A second signal ends the process at once. A core
task that ends by itself is a defect: everything stops and the exit code is 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from asyncop.aio.backoff import Backoff, BackoffPolicy
from asyncop.api.errors import ApiError, AsyncopError, ConfigError, TransportError
from asyncop.cache.informers import Informers
from asyncop.client import Client, connect
from asyncop.controller import Controller, Reconciler, Recorder, Task
from asyncop.manager.http import Checks, HealthServer, MetricsServer
from asyncop.manager.loop_lag import LoopLag
from asyncop.manager.signals import StopSignal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping

log = structlog.get_logger("asyncop.manager")

EXIT_CLEAN, EXIT_CRASH, EXIT_UNREACHABLE = 0, 1, 4
FLUSH_TIMEOUT = 5.0
PROBE_TIMEOUT = 5.0
RETRY = BackoffPolicy(initial=1.0, maximum=30.0, jitter=0.2)


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """How one operator runs; the command line's flags."""

    name: str = "asyncop"
    """The operator's identity: field managers and the Events' reporter derive from it."""
    namespaces: tuple[str, ...] | None = None
    """None: the whole cluster."""
    kubeconfig: str | None = None
    context: str | None = None
    health_address: str = ""
    """`:8081`; empty: no health server."""
    metrics_address: str = ""
    start_timeout: float = 120.0
    """Seconds to wait for the API server at start."""
    graceful_timeout: float = 45.0
    """Seconds that running reconciles get at the end."""


class ApiUnreachableError(AsyncopError):
    """The API server didn't answer within the start timeout; exit code 4."""


class CoreTaskEndedError(AsyncopError):
    """A task that must run for the operator's life has returned."""


class Manager:
    """One operator: its reconcilers and tasks on one event loop.

    Args:
        reconcilers: what runs; names must differ.
        tasks: functions that run for the operator's life.
        client: an open client to use instead of the one that `options` describe; the caller closes it.
        options: how it runs.
        controller_options: by reconciler name, the instance that `ctx.options` is; default: the class' defaults.
    """

    def __init__(
        self,
        *,
        reconcilers: Iterable[Reconciler[Any]] = (),
        tasks: Iterable[Task[Any]] = (),
        client: Client | None = None,
        options: ManagerOptions | None = None,
        controller_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._reconcilers, self._tasks = list(reconcilers), list(tasks)
        self._given_client = client
        self._options = options or ManagerOptions()
        self._controller_options = dict(controller_options or {})
        self._check_names()
        self._controllers: list[Controller] = []
        self._stop = StopSignal()
        self._is_started = self._is_draining = self._was_ready = False
        self._lag = LoopLag()

    def _check_names(self) -> None:
        names = [declared.name for declared in self._reconcilers]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two controllers are named {name!r}; give one of them another name=")

    # -- the whole life

    async def run(self) -> int:
        """Run until a signal or `stop`; returns the exit code.

        Cancellation ends it at once, without draining.

        Raises:
            ConfigError: the kubeconfig, context or an address is wrong.
        """
        with self._stop.on_signals():
            async with contextlib.AsyncExitStack() as stack:
                await self._serve(stack)
                return await self._run_until_stopped()

    def stop(self) -> None:
        """End as SIGTERM does; callable from the loop's thread."""
        self._stop.set()

    async def _run_until_stopped(self) -> int:
        core = asyncio.create_task(self._core(), name="core")
        stopped = asyncio.create_task(self._stop.wait(), name="stop signal")
        try:
            await asyncio.wait({core, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if core.done():
                return self._verdict(core)
            await self._drain()
            return EXIT_CLEAN
        finally:
            await _cancelled(stopped)
            await _cancelled(core)

    def _verdict(self, core: asyncio.Task[None]) -> int:
        error = core.exception()
        config_error = next((cause for cause in _causes(error) if isinstance(cause, ConfigError)), None)
        if config_error is not None:
            raise config_error
        if isinstance(error, ApiUnreachableError):
            log.critical(str(error))
            return EXIT_UNREACHABLE
        log.critical("A core task ended, so the operator stops", err=_first_line(error), exc_info=error)
        return EXIT_CRASH

    async def _core(self) -> None:
        """Everything between reaching the API server and the end."""
        async with self._connected() as client:
            await self._reach(client)
            self._recorder = Recorder(client, self._options.name)
            informers = Informers(client)
            self._controllers = [self._controller(declared, client) for declared in self._reconcilers]
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_core_task("event recorder", self._recorder.run), name="event recorder")
                    group.create_task(_core_task("loop lag", self._lag.run), name="loop lag")
                    await self._start_controllers(group, informers)
                    for task in self._tasks:
                        group.create_task(self._user_task(task, client), name=f"task {task.name}")
                    group.create_task(self._freeze_caches(), name="freeze caches")
                    self._is_started = True
            finally:
                await self._recorder.flush(FLUSH_TIMEOUT)

    async def _drain(self) -> None:
        log.info("Stopping: no new work, running reconciles end", limit=self._options.graceful_timeout)
        self._is_draining = True
        try:
            async with asyncio.timeout(self._options.graceful_timeout):
                await asyncio.gather(*(controller.drain() for controller in self._controllers))
        except TimeoutError:
            log.warning("Cancelling reconciles that did not end in time")

    # -- start

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        if self._given_client is not None:
            yield self._given_client
            return
        options = self._options
        async with connect(
            options.kubeconfig, options.context, user_agent=f"asyncop/{options.name}", field_manager=options.name
        ) as client:
            yield client

    async def _reach(self, client: Client) -> None:
        """Wait until the API server answers; an answer that refuses us is an answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.start_timeout
        backoff = Backoff(RETRY, reset_after=float("inf"))
        while True:
            try:
                await client.raw("GET", "/version", timeout=PROBE_TIMEOUT)
            except ApiError as error:
                if error.status != 401 and error.status < 500:
                    return
                problem: AsyncopError = error
            except TransportError as error:
                problem = error
            else:
                return
            delay = backoff.next(loop.time())
            if loop.time() + delay > deadline:
                raise ApiUnreachableError(
                    f"the API server did not answer within {self._options.start_timeout:g} s: {problem}"
                )
            log.warning("Waiting for the API server", err=str(problem), retry_in=round(delay, 1))
            await asyncio.sleep(delay)

    def _controller(self, declared: Reconciler[Any], client: Client) -> Controller:
        options = self._controller_options.get(declared.name)
        if options is None and declared.options is not None:
            options = declared.options()
        return Controller(
            declared,
            client.bound(field_manager=f"{self._options.name}.{declared.name}"),
            self._recorder,
            options=options,
            namespaces=self._options.namespaces,
        )

    async def _start_controllers(self, group: asyncio.TaskGroup, informers: Informers) -> None:
        """Prepare all, so that they share watches, then start; those with a kind that is missing follow later."""
        for controller in self._controllers:
            await self._prepare(controller, informers)
        for controller in self._controllers:
            if controller.is_prepared:
                self._start(group, controller, informers)
            else:
                group.create_task(self._start_late(group, controller, informers), name=f"waiting {controller.name}")

    async def _prepare(self, controller: Controller, informers: Informers) -> None:
        try:
            await controller.prepare(informers)
        except ConfigError:
            raise
        except AsyncopError as error:
            controller.problem = str(error)
            log.warning("Controller waits for a kind", controller=controller.name, err=str(error))

    async def _start_late(self, group: asyncio.TaskGroup, controller: Controller, informers: Informers) -> None:
        backoff = Backoff(RETRY, reset_after=float("inf"))
        while not controller.is_prepared:
            await asyncio.sleep(backoff.next(asyncio.get_running_loop().time()))
            await self._prepare(controller, informers)
        self._start(group, controller, informers)

    @staticmethod
    def _start(group: asyncio.TaskGroup, controller: Controller, informers: Informers) -> None:
        for informer in informers.unstarted():
            name = f"informer {informer.scope.resource.group_resource}"
            group.create_task(_core_task(name, informer.start()), name=name)
        name = f"controller {controller.name}"
        group.create_task(_core_task(name, controller.run), name=name)

    async def _freeze_caches(self) -> None:
        """Once the caches are full, take what lives for ever out of the garbage collector's sight.

        A collection of the oldest generation would otherwise walk the stores' dicts again and again, for nothing.
        """
        for controller in self._controllers:
            if controller.is_prepared:
                await controller.wait_synced()
        gc.collect()
        gc.freeze()

    async def _user_task(self, task: Task[Any], client: Client) -> None:
        function: Callable[..., Awaitable[None]] = task.function
        takes_client = bool(inspect.signature(function).parameters)
        await (function(client) if takes_client else function())

    # -- probes

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        checks = Checks()
        checks.add("event-loop", ("livez",), self._lag.problem)
        checks.add("started", ("startupz",), lambda: None if self._is_started else "still starting")
        checks.add("caches", ("readyz",), self._unready)
        checks.add("shutdown", ("readyz",), lambda: "draining" if self._is_draining else None)
        health = HealthServer(self._options.health_address, checks)
        metrics = MetricsServer(self._options.metrics_address)
        for server in (health, metrics):
            await server.start()
            stack.push_async_callback(server.aclose)

    def _unready(self) -> str | None:
        """Why not ready; after the first time that all was synced, no watch and no outage takes it back."""
        if self._was_ready:
            return None
        if not self._is_started:
            return "still starting"
        problems = [
            f"{controller.name}: {reason}" for controller in self._controllers for reason in controller.unsynced
        ]
        self._was_ready = not problems
        return "; ".join(problems) or None


async def _core_task(name: str, work: Callable[[], Awaitable[None]]) -> None:
    await work()
    raise CoreTaskEndedError(f"{name} has ended")


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for it; what it raises was reported before or is the cancellation."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The errors in a tree of groups."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _causes(member)
    elif error is not None:
        yield error


def _first_line(error: BaseException | None) -> str:
    return "; ".join(f"{type(cause).__name__}: {cause}" for cause in _causes(error))
