"""Events reach the server, also those of the last moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from asyncop.api.meta import ObjectMeta
from asyncop.client import Client, Transport
from asyncop.controller.recorder import Recorder, Regarding
from tests.unit.client.conftest import connection_to
from tests.unit.client.server import Server, ok

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

pytestmark = pytest.mark.asyncio

ABOUT = Regarding("v1", "ConfigMap", ObjectMeta(name="a", namespace="default"))


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def recorder(server: Server) -> AsyncIterator[Recorder]:
    transport = Transport(connection_to(server.url), user_agent="test/1", timeout=5)
    yield Recorder(Client(transport), "test")
    await transport.aclose()


async def test_an_event_whose_posting_is_cancelled_is_posted_by_the_flush(server: Server, recorder: Recorder) -> None:
    has_come, never = asyncio.Event(), asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        has_come.set()
        await never.wait()
        raise AssertionError

    server.then(hang, ok({}), ok({}))
    posting = asyncio.create_task(recorder.run())
    recorder.record(ABOUT, "First", "hangs")
    recorder.record(ABOUT, "Second", "waits")
    await has_come.wait()

    posting.cancel()
    await asyncio.wait({posting})
    await recorder.flush(5)

    assert [request.json["reason"] for request in server.received] == ["First", "First", "Second"]
    assert server.received[0].json["metadata"] == server.received[1].json["metadata"]
