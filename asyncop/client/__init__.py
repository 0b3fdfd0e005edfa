"""The client of one API server: configuration, connections, discovery and verbs.

The only package that imports kubernetes_asyncio (cheaply, `door` says how) and, with the manager, aiohttp. What it
gives out is bytes, `asyncop.api` values and errors of `asyncop.api.errors`; caching is left to `asyncop.cache`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from asyncop.client.client import Client
from asyncop.client.config import Connection, load_connection
from asyncop.client.rate_limit import RateLimit
from asyncop.client.transport import Transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Client", "Connection", "RateLimit", "Transport", "connect", "load_connection"]


@asynccontextmanager
async def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    user_agent: str = "asyncop",
    field_manager: str = "asyncop",
    rate_limit: RateLimit | None = None,
) -> AsyncIterator[Client]:
    """A client for the cluster that `load_connection` finds; its connections are closed at the end of the block.

    Nothing is sent until the first call, so an unreachable server shows there.

    Raises:
        ConfigError: kubeconfig, context or a certificate is missing or wrong.
    """
    connection = await load_connection(kubeconfig, context)
    transport = Transport(connection, user_agent=user_agent, rate_limit=rate_limit)
    try:
        yield Client(transport, field_manager)
    finally:
        await transport.aclose()
