"""Run reconcilers in the test's own loop against a real API server, and wait for what they should bring about."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import asyncop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

LIMIT = 15.0


@contextlib.asynccontextmanager
async def operating(
    kubeconfig: Path, namespace: str | None, *reconcilers: asyncop.Reconciler[Any], **options: Any
) -> AsyncIterator[asyncop.Manager]:
    """The reconcilers at work in a namespace (None: in all); they must end cleanly."""
    manager = asyncop.Manager(
        reconcilers=reconcilers,
        tasks=options.pop("tasks", ()),
        controller_options=options.pop("controller_options", None),
        options=asyncop.ManagerOptions(
            name="contract",
            namespaces=None if namespace is None else (namespace,),
            kubeconfig=str(kubeconfig),
            **options,
        ),
    )
    running = asyncio.create_task(manager.run())
    try:
        yield manager
    finally:
        manager.stop()
        assert await running == 0


async def until(condition: Callable[[], bool], what: str) -> None:
    """Poll until it holds; AssertionError after the limit."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LIMIT
    while not await asyncio.to_thread(condition):
        assert loop.time() < deadline, f"not within {LIMIT:g} s: {what}"
        await asyncio.sleep(0.02)


def names(objects: Iterable[Any]) -> list[str]:
    return [obj.metadata.name for obj in objects]
