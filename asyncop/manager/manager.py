"""The manager: starts one operator, answers its probes, and ends it in order.

Start: health and metrics servers, then the API server is waited for, then the operation (`operation.py`) begins.

End (SIGTERM, SIGINT): not ready; queues hand out nothing more; running reconciles end within `graceful_timeout`, else
they are cancelled; Events are flushed; the lease is released; connections and servers close. A second signal ends the
process at once. A core task that ends by itself is a defect: everything stops and the exit code is 1.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import structlog

from asyncop.api.errors import ConfigError
from asyncop.client import Client, connect
from asyncop.manager.block_watch import watch_for_blocks
from asyncop.manager.diagnosis import describe_object, log_state
from asyncop.manager.exit import EXIT_CLEAN, EXIT_CRASH, EXIT_UNREACHABLE, end_at_once
from asyncop.manager.http import Checks, HealthServer, MetricsServer
from asyncop.manager.loop_lag import LoopLag
from asyncop.manager.operation import FLUSH_TIMEOUT, STOP_LIMIT, Operation
from asyncop.manager.options import ManagerOptions
from asyncop.manager.reach import ApiUnreachableError, reach
from asyncop.manager.signals import StopSignal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from asyncop.controller import Reconciler, Task

log = structlog.get_logger("asyncop.manager")


class Manager:
    """One operator: its reconcilers and tasks on one event loop.

    Args:
        reconcilers: what runs; names must differ.
        tasks: functions that run for the operator's life.
        client: an open client to use instead of the one that `options` describe; the caller closes it.
        options: how it runs.
        controller_options: by reconciler name, the instance that `ctx.options` is; default: the class' defaults.

    Raises:
        ConfigError: two reconcilers have one name, or `controller_options` don't fit them.
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
        self._check_controller_options()
        self._operation: Operation | None = None
        self._stop = StopSignal()
        self._is_draining = self._was_ready = False
        self._lag = LoopLag()

    def _check_names(self) -> None:
        names = [declared.name for declared in self._reconcilers]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two controllers are named {name!r}; give one of them another name=")

    def _check_controller_options(self) -> None:
        classes = {declared.name: declared.options for declared in self._reconcilers}
        for name, given in self._controller_options.items():
            if name not in classes:
                there = ", ".join(classes) or "none"
                raise ConfigError(f"controller_options: no reconciler is named {name!r}; it has: {there}")
            kind = classes[name]
            if kind is None:
                raise ConfigError(f"controller_options: {name} takes no options; give it options= where it is declared")
            if not isinstance(given, kind):
                raise ConfigError(f"controller_options: {name} takes an instance of {kind.__name__}, not {given!r}")

    async def run(self) -> int:
        """Run until a signal or `stop`; returns the exit code.

        Cancellation ends it at once, without draining.

        Raises:
            ConfigError: the kubeconfig, context, an address or a declaration is wrong.
        """
        with self._stop.on_signals(lambda: log_state(self._operation)):
            async with contextlib.AsyncExitStack() as stack:
                await self._serve(stack)
                await stack.enter_async_context(watch_for_blocks())
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
            stopped.cancel()
            await self._end(core)

    def _verdict(self, core: asyncio.Task[None]) -> int:
        error = core.exception()
        for cause in _causes(error):
            if isinstance(cause, ConfigError):
                raise cause
            if isinstance(cause, ApiUnreachableError):
                log.critical(str(cause))
                return EXIT_UNREACHABLE
        log.critical("A core task ended, so the operator stops", err=_first_line(error), exc_info=error)
        return EXIT_CRASH

    async def _core(self) -> None:
        """Everything between the first try to reach the API server and the end."""
        async with self._connected() as client, asyncio.TaskGroup() as group:
            lag = group.create_task(self._lag.run(), name="loop lag")
            await reach(client, self._options.start_timeout)
            self._operation = Operation(client, self._options, self._reconcilers, self._tasks, self._controller_options)
            await self._operation.run()
            lag.cancel()

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

    async def _drain(self) -> None:
        log.info("Stopping: no new work, running reconciles end", limit=self._options.graceful_timeout)
        self._is_draining = True
        if self._operation is None:
            return
        try:
            async with asyncio.timeout(self._options.graceful_timeout):
                await self._operation.drain()
        except TimeoutError:
            log.warning("Cancelling reconciles that did not end in time")

    @staticmethod
    async def _end(core: asyncio.Task[None]) -> None:
        """Cancel and wait; what doesn't end even so would keep the process for ever, so it ends with it."""
        core.cancel()
        await asyncio.wait({core}, timeout=STOP_LIMIT + 2 * FLUSH_TIMEOUT)
        if not core.done():
            log.critical("Something goes on after its cancellation, so the process ends without it")
            end_at_once(EXIT_CRASH)
        if not core.cancelled():
            core.exception()  # reported before, or the consequence of the end

    # -- probes

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        checks = Checks()
        checks.add("event-loop", ("livez",), self._lag.problem)
        checks.add("started", ("startupz",), lambda: None if self._is_started else "still starting")
        checks.add("caches", ("readyz",), self._unready)
        checks.add("shutdown", ("readyz",), lambda: "draining" if self._is_draining else None)
        health = HealthServer(self._options.health_address, checks, self._describe)
        metrics = MetricsServer(self._options.metrics_address)
        for server in (health, metrics):
            await server.start()
            stack.push_async_callback(server.aclose)

    def _describe(self, resource: str, namespace: str, name: str) -> dict[str, Any]:
        return describe_object(self._operation, resource, namespace, name)

    @property
    def _is_started(self) -> bool:
        return self._operation is not None and self._operation.is_started

    def _unready(self) -> str | None:
        """Why not ready; after the first time that all was synced, no watch and no outage takes it back."""
        if self._was_ready:
            return None
        if self._operation is None or not self._operation.is_started:
            return "still starting"
        problems = self._operation.unready
        self._was_ready = not problems
        return "; ".join(problems) or None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The errors in a tree of groups."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _causes(member)
    elif error is not None:
        yield error


def _first_line(error: BaseException | None) -> str:
    return "; ".join(f"{type(cause).__name__}: {cause}" for cause in _causes(error))
