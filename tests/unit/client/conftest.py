"""A server, and a transport and client connected to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest_asyncio

from asyncop.client import Client, Connection, Transport
from asyncop.client.door import open_door
from tests.unit.client.server import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def connection_to(url: str, **more: Any) -> Connection:
    """A connection without credentials."""
    open_door()
    from kubernetes_asyncio.client import Configuration

    configuration = more.pop("configuration", None) or Configuration()
    return Connection(url, configuration, namespace="default", context="", source="test", **more)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def transport(server: Server) -> AsyncIterator[Transport]:
    transport = Transport(connection_to(server.url), user_agent="test/1", timeout=5)
    yield transport
    await transport.aclose()


@pytest_asyncio.fixture
async def client(transport: Transport) -> Client:
    return Client(transport, field_manager="tester")
